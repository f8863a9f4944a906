// Letters and digits of ASCII, whatever the locale.
#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace {

constexpr char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline std::string ascii_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = ascii_lower(c);
  return lower;
}

// Exactly first: what is compared with small letters usually has them.
constexpr bool same_ignoring_case(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) { return ascii_lower(x) == ascii_lower(y); };
  return a.size() == b.size() && (a == b || std::ranges::equal(a, b, same));
}

inline constexpr std::string_view kHexDigits = "0123456789abcdef";

// -1 if it is not a hexadecimal digit.
constexpr int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = ascii_lower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// The number that all of `text` is: digits alone, and for signed types a '-' before them. None if
// it is something else, or does not fit.
template <std::integral Number = uint64_t>
std::optional<Number> parse_number(std::string_view text, int base = 10) {
  Number number = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [parsed, error] = std::from_chars(begin, end, number, base);
  return error == std::errc() && parsed == end ? std::optional(number) : std::nullopt;
}

constexpr bool is_blank(char c) { return c == ' ' || c == '\t'; }

// Without blanks at both ends.
constexpr std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Visible characters of ASCII: what a request target may consist of.
constexpr bool is_visible_ascii(std::string_view text) {
  bool bad = false;  // no early exit: the loop compiles to a few vector instructions
  for (const char c : text) bad |= c <= ' ' || c > '~';
  return !bad;
}

// The same plus blanks: what a header value may consist of (RFC 9110, 5.5, without bytes beyond
// ASCII, which servers interpret differently).
constexpr bool is_printable_ascii(std::string_view text) {
  bool bad = false;
  for (const char c : text) bad |= (c < ' ' && c != '\t') || c > '~';
  return !bad;
}

// What an operator can read in one line: printable characters, with one blank for white space.
inline std::string printable_line(std::string_view text, size_t max_chars = 200) {
  std::string out;
  for (const char c : text) {
    if (out.size() == max_chars) break;
    const bool is_space = c == ' ' || (c >= '\t' && c <= '\r');
    if (is_space) {
      if (!out.empty() && out.back() != ' ') out += ' ';
    } else if (c > ' ' && c < 0x7F) {
      out += c;
    }
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

}  // namespace headrace
