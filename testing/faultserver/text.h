// Small text helpers: percent-encoding, base64, dates, numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace faultserver {

// Bytes that are not "%XX" stay as they are; a '+' is a plus in paths and a space in queries.
std::string percent_decode(std::string_view text, bool plus_is_space);
// Encodes everything but unreserved characters.
std::string percent_encode(std::string_view text);

std::string base64_encode(std::string_view bytes);
std::optional<std::string> base64_decode(std::string_view text);
std::string hex(std::string_view bytes);
std::string hex16(uint64_t value);

std::string lower(std::string_view text);
bool equal_ignoring_case(std::string_view a, std::string_view b);
std::string_view trim(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);

std::optional<uint64_t> parse_u64(std::string_view text);
std::optional<int64_t> parse_i64(std::string_view text);
void append_number(std::string& out, uint64_t value);
// With leading zeros up to `width`.
void append_padded(std::string& out, uint64_t value, int width);

// Microseconds since 1970, UTC.
int64_t now_us();
std::string iso_time(int64_t us);
std::string http_date(int64_t us);

// The character with that number.
void append_utf8(std::string& out, uint32_t character);

// Escapes &, <, > and quotes.
std::string xml_escape(std::string_view text);

// A good mix of 64 bits (the finaliser of splitmix64); the source of everything pseudo-random here.
constexpr uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace faultserver
