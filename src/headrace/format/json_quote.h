// Texts as JSON strings: in requests, and names in messages.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

// `text` as a JSON string, with quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_quote(std::string_view text);

}  // namespace headrace
