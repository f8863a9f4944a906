// Converts Python's options, given as a dict, to the engine's structs.
#pragma once

#include "convert.h"
#include "headrace/store/options.h"

namespace headrace::python {

// Raises TypeError for an unknown key, and for a value of the wrong type.
StoreOptions to_store_options(const nb::dict& options);
EngineOptions to_engine_options(const nb::dict& options);
// The defaults, under the same keys.
nb::dict default_options();

}  // namespace headrace::python
