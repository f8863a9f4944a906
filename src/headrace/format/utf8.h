// Text as code points, for code that computes with the characters of names.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

// `text` is UTF-8; what comes of other bytes is not specified.
std::u32string decode_utf8(std::string_view text);
std::string encode_utf8(std::u32string_view text);

}  // namespace headrace
