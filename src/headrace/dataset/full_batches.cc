#include "headrace/dataset/full_batches.h"

namespace headrace {

std::vector<int64_t> full_batches(std::span<const int64_t> sizes_bytes, const BatchLimits& limits) {
  std::vector<int64_t> ends;
  uint64_t bytes = 0, objects = 0;  // of the batch that is being filled
  for (size_t at = 0; at < sizes_bytes.size(); ++at) {
    const auto size_bytes = static_cast<uint64_t>(sizes_bytes[at]);
    // `bytes` is at most max_bytes, unless a single object is larger: then the batch is full.
    if (objects > 0 && size_bytes > limits.max_bytes - bytes) {
      ends.push_back(static_cast<int64_t>(at));
      bytes = objects = 0;
    }
    bytes += size_bytes;
    ++objects;
    if (bytes >= limits.max_bytes || objects == limits.max_objects) {
      ends.push_back(static_cast<int64_t>(at) + 1);
      bytes = objects = 0;
    }
  }
  return ends;
}

}  // namespace headrace
