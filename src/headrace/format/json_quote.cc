#include "headrace/format/json_quote.h"

#include <simdjson.h>

#include <algorithm>

#include "headrace/base/ascii.h"

namespace headrace {
namespace {

// The length of the UTF-8 character at the beginning of `text`, 0 if there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text[0]);
  const size_t length = byte < 0x80 ? 1 : byte < 0xC2 ? 0 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
  if (length == 0 || length > text.size()) return 0;
  return simdjson::validate_utf8(text.substr(0, length)) ? length : 0;
}

}  // namespace

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  while (!text.empty()) {
    const size_t plain =
        static_cast<size_t>(std::ranges::find_if_not(text, is_plain) - text.begin());
    out.append(text.substr(0, plain));  // most texts are nothing else
    text.remove_prefix(plain);
    if (text.empty()) break;
    const size_t length = utf8_length(text);
    const char c = text[0];
    const auto byte = static_cast<unsigned char>(c);
    if (length == 0) {
      out += "\xEF\xBF\xBD";  // U+FFFD
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\u00";
      out += kHexDigits[byte >> 4];
      out += kHexDigits[byte & 15];
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
  return out;
}

}  // namespace headrace
