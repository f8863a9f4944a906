// Sizes in bytes and half-open ranges.
#pragma once

#include <cstdint>

namespace headrace {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;
inline constexpr uint64_t kTiB = uint64_t{1} << 40;

struct ByteRange {  // Half-open [begin, end), in bytes from the start of the object.
  uint64_t begin = 0, end = 0;
  uint64_t size_bytes() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

}  // namespace headrace
