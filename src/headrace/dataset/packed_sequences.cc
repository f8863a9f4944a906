#include "headrace/dataset/packed_sequences.h"

#include <algorithm>
#include <cstring>

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

Result<PackedSequences> PackedSequences::from_parts(std::span<const std::byte> parts) {
  constexpr size_t kPartBytes = 2 * sizeof(uint64_t);
  PackedSequences out;
  const size_t count = parts.size() / kPartBytes;
  out.begins_.resize(count);
  out.ends_.resize(count);
  if (count > 0) {
    std::memcpy(out.begins_.data(), parts.data(), count * sizeof(uint64_t));
    std::memcpy(out.ends_.data(), parts.data() + count * sizeof(uint64_t),
                count * sizeof(uint64_t));
  }
  bool is_good = parts.size() % kPartBytes == 0 && out.size_bytes() <= uint64_t{INT64_MAX};
  uint64_t begin = 0;
  for (size_t part = 0; part < count; ++part) {
    const uint64_t end = out.ends_[part];
    is_good = is_good && begin < end && out.begins_[part] <= UINT64_MAX - (end - begin);
    begin = end;
  }
  if (!is_good) return invalid_argument("these are no parts of packed sequences");
  return out;
}

std::string PackedSequences::parts() const {
  const auto chars = [](const std::vector<uint64_t>& numbers) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(numbers));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  std::string out;
  out.reserve(2 * ends_.size() * sizeof(uint64_t));
  return out.append(chars(begins_)).append(chars(ends_));
}

uint64_t PackedSequences::file_byte(uint64_t at) const {
  std::vector<ByteRange> ranges;
  append_ranges({at, at + 1}, ranges);
  return ranges.front().begin;
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
