// What a store says about many objects.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "headrace/store/object_store.h"

namespace headrace {

// Asks about every name, at most `max_in_flight` at a time. An object that is not there is
// kNotFound in its place, and the rest goes on if `missing_ok`; every other error ends it: what was
// not asked yet is kCancelled. Cancelling ends what is under way.
std::shared_ptr<Pending<std::vector<Result<ObjectInfo>>>> stat_many(
    std::shared_ptr<ObjectStore> store, std::vector<std::string> names, bool missing_ok,
    size_t max_in_flight);

}  // namespace headrace
