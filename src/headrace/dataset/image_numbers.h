// Converts values to the numbers of an image and back. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "headrace/base/ascii.h"
#include "headrace/format/object_info.h"

namespace headrace {

// For a generation that is a number in canonical form, so that it can be restored: that number plus
// one. 0 for anything else.
inline uint64_t number_of_generation(std::string_view generation) {
  if (generation.empty() || (generation.front() == '0' && generation.size() > 1)) return 0;
  return parse_number(generation).value_or(UINT64_MAX) + 1;
}

// Maps signed numbers to unsigned ones in the same order, so that their differences stay small.
inline constexpr uint64_t kSignBias = uint64_t{1} << 63;
inline uint64_t number_of_integer(int64_t value) {
  return static_cast<uint64_t>(value) + kSignBias;
}
inline int64_t integer_of(uint64_t number) { return static_cast<int64_t>(number - kSignBias); }

// Times, in nanoseconds.
inline uint64_t number_of_time(std::chrono::system_clock::time_point time) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch());
  return number_of_integer(since.count());
}
inline std::chrono::system_clock::time_point time_of(uint64_t number) {
  using std::chrono::system_clock;
  const std::chrono::nanoseconds since(integer_of(number));
  return system_clock::time_point(std::chrono::duration_cast<system_clock::duration>(since));
}

// `total` plus `count` times `size_bytes`; none if that is unknown or overflows.
inline std::optional<uint64_t> sum_of(uint64_t total, uint64_t size_bytes, uint64_t count) {
  uint64_t more = 0, sum = 0;
  if (size_bytes == kUnknownSize || __builtin_mul_overflow(size_bytes, count, &more) ||
      __builtin_add_overflow(total, more, &sum) || sum == kUnknownSize) {
    return {};
  }
  return sum;
}

// Whether `count` ranges of `length` bytes, the first from `begin` on, each `stride` behind the
// last, lie in an object of `object_bytes`. If its size is not known, offsets may have 63
// bits.
inline bool range_fits(uint64_t begin, uint64_t length, uint64_t stride, uint64_t count,
                       uint64_t object_bytes) {
  uint64_t way = 0, last = 0, end = 0;
  if (__builtin_mul_overflow(stride, count - 1, &way) ||
      __builtin_add_overflow(begin, way, &last) || __builtin_add_overflow(last, length, &end)) {
    return false;
  }
  return end <= (object_bytes == kUnknownSize ? uint64_t{INT64_MAX} : object_bytes);
}

}  // namespace headrace
