// Python's options, a dict by then, as the engine's structs.
#pragma once

#include "convert.h"
#include "headrace/store/options.h"

namespace headrace::python {

// Raises TypeError for a key that is not known and for a value of another type.
StoreOptions to_store_options(const nb::dict& options);
EngineOptions to_engine_options(const nb::dict& options);
// What each of them is when nobody says otherwise, by the same keys.
nb::dict default_options();

}  // namespace headrace::python
