#include "headrace/dataset/full_batches.h"

namespace headrace {

namespace {

// What is in the batch that is being filled.
class OpenBatch {
 public:
  explicit OpenBatch(const BatchLimits& limits) : limits_(limits) {}

  // `bytes_` exceeds the limit only with a single object, and then the batch is full.
  bool has_room_for(uint64_t size_bytes) const {
    return objects_ == 0 || size_bytes <= limits_.max_bytes - bytes_;
  }
  void add(uint64_t size_bytes) {
    bytes_ += size_bytes;
    ++objects_;
  }
  bool is_full() const {
    return bytes_ > limits_.max_bytes || (bytes_ == limits_.max_bytes && limits_.is_whole) ||
           objects_ == limits_.max_objects;
  }
  void begin_anew() { bytes_ = objects_ = 0; }
  uint64_t bytes() const { return bytes_; }

 private:
  const BatchLimits limits_;
  uint64_t bytes_ = 0, objects_ = 0;
};

}  // namespace

std::vector<int64_t> full_batches(std::span<const int64_t> sizes_bytes, const BatchLimits& limits) {
  std::vector<int64_t> ends;
  OpenBatch open(limits);
  for (size_t at = 0; at < sizes_bytes.size(); ++at) {
    const auto size_bytes = static_cast<uint64_t>(sizes_bytes[at]);
    if (!open.has_room_for(size_bytes)) {
      ends.push_back(static_cast<int64_t>(at));
      open.begin_anew();
    }
    open.add(size_bytes);
    if (open.is_full()) {
      ends.push_back(static_cast<int64_t>(at) + 1);
      open.begin_anew();
    }
  }
  return ends;
}

PackedBatches packed_batches(std::span<const int64_t> sizes_bytes, std::span<const int64_t> order,
                             Oversized oversized, const BatchLimits& limits) {
  PackedBatches packed;
  packed.indices.reserve(order.size());
  OpenBatch open(limits);
  std::vector<int64_t> filling;  // the objects of `open`, which oversized ones may overtake
  const auto close = [&packed, &open, &filling] {
    packed.indices.insert(packed.indices.end(), filling.begin(), filling.end());
    packed.ends.push_back(static_cast<int64_t>(packed.indices.size()));
    filling.clear();
    open.begin_anew();
  };
  for (const int64_t index : order) {
    const auto size_bytes = static_cast<uint64_t>(sizes_bytes[static_cast<size_t>(index)]);
    if (size_bytes > limits.max_bytes && oversized == Oversized::kOwnBatch) {
      packed.indices.push_back(index);
      packed.ends.push_back(static_cast<int64_t>(packed.indices.size()));
      continue;
    }
    if (size_bytes == 0 || size_bytes > limits.max_bytes) {
      packed.left_out.push_back(index);
      continue;
    }
    if (!open.has_room_for(size_bytes)) close();
    filling.push_back(index);
    open.add(size_bytes);
    if (open.is_full()) close();
  }
  packed.indices.insert(packed.indices.end(), filling.begin(), filling.end());
  packed.rest_bytes = open.bytes();
  return packed;
}

}  // namespace headrace
