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
  // False: the limit lies between `max_bytes` and the next byte, so that no batch reaches it.
  bool is_whole = true;
};

// Where each full batch of the objects with these sizes ends. A batch takes the objects that come
// next, as many as the limits allow; it is full when it has reached a limit, or the next object
// would exceed it. An object larger than `max_bytes` is a batch of its own. What follows the last
// end is the beginning of a batch that has room left. Sizes are not negative.
std::vector<int64_t> full_batches(std::span<const int64_t> sizes_bytes, const BatchLimits& limits);

// How to treat an object that is larger than a batch may be.
enum class Oversized {
  kOwnBatch,  // at once, before the batch that is being filled
  kLeftOut,
};

struct PackedBatches {
  std::vector<int64_t> indices;   // of the objects, batch after batch
  std::vector<int64_t> ends;      // where in `indices` each batch ends; behind the last: the rest
  std::vector<int64_t> left_out;  // objects that are in no batch, as they came
  uint64_t rest_bytes = 0;
};

// Batches as `full_batches` makes them, of the objects of `order` one after the other; but empty
// objects are left out, and oversized ones do not end the batch that is being filled.
// Sizes are not negative, and `order` has positions of `sizes_bytes`.
PackedBatches packed_batches(std::span<const int64_t> sizes_bytes, std::span<const int64_t> order,
                             Oversized oversized, const BatchLimits& limits);

}  // namespace headrace
