// Batches of objects whose bytes are bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

struct BatchLimits {
  uint64_t max_bytes = 0;
  uint64_t max_objects = UINT64_MAX;  // at least 1
};

// Where each full batch of the objects with these sizes ends. A batch takes the objects that come
// next, as many as the limits allow; it is full when it has reached a limit, or the next object
// would exceed it. An object larger than `max_bytes` is a batch of its own. What follows the last
// end is the beginning of a batch that has room left. Sizes are not negative.
std::vector<int64_t> full_batches(std::span<const int64_t> sizes_bytes, const BatchLimits& limits);

}  // namespace headrace
