#include "headrace/store/name_before.h"

#include "headrace/format/utf8.h"

namespace headrace {

std::string name_before(std::string_view name) {
  std::u32string before = decode_utf8(name);
  if (before.empty()) return "";
  char32_t& last = before.back();
  if (last == 0) {
    before.pop_back();
  } else {
    last = last == 0xE000 ? 0xD7FF : last - 1;  // between them are no characters
    before += char32_t{0x10FFFF};
  }
  return encode_utf8(before);
}

}  // namespace headrace
