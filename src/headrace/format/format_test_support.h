// The inverses of some of format/, which only tests and fuzzers need.
#pragma once

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/format/base64.h"
#include "headrace/format/http_range.h"

namespace headrace {

inline std::string format_range(ByteRange range) {
  std::string out;
  append_range(out, range);
  return out;
}

inline Result<std::vector<std::byte>> base64_decode(std::string_view text) {
  std::vector<std::byte> out(text.size() / 4 * 3);
  const Result<size_t> size = base64_decode(text, out);
  if (!size) return std::unexpected(size.error());
  out.resize(*size);
  return out;
}

inline void append_padded(std::string& out, uint64_t value, size_t width) {
  char digits[24];
  const char* end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  const auto size = static_cast<size_t>(end - digits);
  if (size < width) out.append(width - size, '0');
  out.append(digits, size);
}

// In UTC, with as many fraction digits as are needed: none, three, six or nine. What it writes,
// parse_rfc3339 reads back as the same time (years 1678 to 2261, which is what the clock can hold).
inline std::string format_rfc3339(std::chrono::system_clock::time_point time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::nanoseconds(time - day));
  std::string out;
  append_padded(out, static_cast<uint64_t>(static_cast<int>(date.year())), 4);
  out += '-';
  append_padded(out, static_cast<unsigned>(date.month()), 2);
  out += '-';
  append_padded(out, static_cast<unsigned>(date.day()), 2);
  out += 'T';
  append_padded(out, static_cast<uint64_t>(clock.hours().count()), 2);
  out += ':';
  append_padded(out, static_cast<uint64_t>(clock.minutes().count()), 2);
  out += ':';
  append_padded(out, static_cast<uint64_t>(clock.seconds().count()), 2);
  if (const auto fraction = static_cast<uint64_t>(clock.subseconds().count()); fraction != 0) {
    out += '.';
    if (fraction % 1'000'000 == 0) {
      append_padded(out, fraction / 1'000'000, 3);
    } else if (fraction % 1'000 == 0) {
      append_padded(out, fraction / 1'000, 6);
    } else {
      append_padded(out, fraction, 9);
    }
  }
  return out + 'Z';
}

}  // namespace headrace
