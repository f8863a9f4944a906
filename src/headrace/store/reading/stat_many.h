// Metadata of many objects.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "headrace/store/object_store.h"

namespace headrace {

// Stats every name, at most `max_in_flight` at a time. A missing object gives kNotFound in its
// place; with `missing_ok` the others continue. Any other error ends the call, and names without an
// answer give kCancelled. So does cancelling.
std::shared_ptr<Pending<std::vector<Result<ObjectInfo>>>> stat_many(
    std::shared_ptr<ObjectStore> store, std::vector<std::string> names, bool missing_ok,
    size_t max_in_flight);

}  // namespace headrace
