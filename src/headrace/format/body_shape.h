// What an answer is at first sight, where nothing of it is read.
#pragma once

#include <cstdint>
#include <string_view>

namespace headrace {

enum class BodyShape : uint8_t {
  kEmpty,  // or white space, as services send while they work
  kXml,
  kHtml,
  kJson,
  kOther,
};

// By its beginning alone.
BodyShape shape_of(std::string_view body);
// For messages: "a page of HTML".
std::string_view label(BodyShape shape);
// The name of the first element of XML or HTML, with its prefix; "" if there is none.
std::string_view first_element(std::string_view text);

}  // namespace headrace
