#include "headrace/dataset/packed_sequences.h"

#include <algorithm>

namespace headrace {

Result<PackedSequences> PackedSequences::pack(const MegatronIndex& index,
                                              std::span<const size_t> order) {
  PackedSequences out;
  uint64_t file_end = 0, stream_end = 0;
  for (const size_t sequence : order) {
    if (sequence >= index.sequence_count()) {
      return invalid_argument("there is no sequence ", sequence, "; the index has ",
                              index.sequence_count());
    }
    const uint64_t begin = index.begin(sequence);
    const uint64_t size_bytes = index.length(sequence) * index.item_bytes();
    if (size_bytes == 0) continue;
    if (size_bytes > uint64_t{INT64_MAX} - stream_end) {
      return invalid_argument("the sequences have more than 2^63 bytes together");
    }
    stream_end += size_bytes;
    if (out.ends_.empty() || begin != file_end) {
      out.begins_.push_back(begin);
      out.ends_.push_back(stream_end);
    } else {
      out.ends_.back() = stream_end;
    }
    file_end = begin + size_bytes;
  }
  out.begins_.shrink_to_fit();
  out.ends_.shrink_to_fit();
  return out;
}

void PackedSequences::append_ranges(ByteRange window, std::vector<ByteRange>& out) const {
  auto part = static_cast<size_t>(std::ranges::upper_bound(ends_, window.begin) - ends_.begin());
  while (window.begin < window.end) {
    const uint64_t part_begin = part == 0 ? 0 : ends_[part - 1];
    const uint64_t end = std::min(window.end, ends_[part]);
    const uint64_t shift = begins_[part] - part_begin;  // may wrap around, and back again
    out.push_back({window.begin + shift, end + shift});
    window.begin = end;
    ++part;
  }
}

}  // namespace headrace
