// Removes the composites that killed processes have left behind.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "headrace/store/object_store.h"
#include "headrace/store/temporary_names.h"

namespace headrace {

// In the background, deletes one by one the objects that headrace has composed in this bucket (a
// store of full names) before `before` and not deleted. Names that begin with `spared` are left
// alone. Objects that cannot be listed or deleted stay, and the next process tries again.
void sweep_composites(std::shared_ptr<ObjectStore> bucket, TemporaryNames temporaries,
                      std::string spared, std::chrono::system_clock::time_point before);

}  // namespace headrace
