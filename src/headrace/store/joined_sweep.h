// What processes that were killed have left behind of joined objects.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "headrace/store/object_store.h"
#include "headrace/store/temporary_names.h"

namespace headrace {

// Deletes, one after the other and in the background, what headrace has composed in this bucket,
// which is a store of full names, and not deleted, if it was written before `before`. Names that
// begin with `spared` are left alone. What cannot be listed or deleted stays: the next process
// tries again.
void sweep_composites(std::shared_ptr<ObjectStore> bucket, TemporaryNames temporaries,
                      std::string spared, std::chrono::system_clock::time_point before);

}  // namespace headrace
