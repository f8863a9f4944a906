#include "headrace/format/body_shape.h"

#include <algorithm>
#include <array>

#include "headrace/base/ascii.h"

namespace headrace {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool begins_with(std::string_view text, std::string_view prefix) {
  return same_ignoring_case(text.substr(0, prefix.size()), prefix);
}

// What pages begin with. None of these is the root of an answer of a store's.
bool is_of_html(std::string_view name) {
  return std::ranges::any_of(
      std::array<std::string_view, 10>{"html", "head", "body", "title", "meta", "script", "center",
                                       "div", "h1", "p"},
      [name](std::string_view each) { return same_ignoring_case(name, each); });
}

}  // namespace

std::string_view first_element(std::string_view text) {
  while (true) {
    text.remove_prefix(std::min(text.find('<'), text.size()));
    if (text.empty()) return "";
    const bool is_comment = text.starts_with("<!--");
    if (!is_comment && !text.starts_with("<?") && !text.starts_with("<!")) break;
    const std::string_view end = is_comment ? "-->" : ">";
    text.remove_prefix(std::min(text.find(end), text.size()));
  }
  text.remove_prefix(1);
  return text.substr(0, text.find_first_of(" \t\r\n/>"));
}

BodyShape shape_of(std::string_view body) {
  if (body.starts_with(kByteOrderMark)) body.remove_prefix(kByteOrderMark.size());
  body.remove_prefix(std::min(body.find_first_not_of(kWhiteSpace), body.size()));
  if (body.empty()) return BodyShape::kEmpty;
  if (body[0] == '{' || body[0] == '[') return BodyShape::kJson;
  if (body[0] != '<') return BodyShape::kOther;
  const std::string_view name = first_element(body);
  if (begins_with(body, "<!doctype html") || is_of_html(name)) return BodyShape::kHtml;
  return name.empty() ? BodyShape::kOther : BodyShape::kXml;
}

std::string_view label(BodyShape shape) {
  switch (shape) {
    case BodyShape::kEmpty: return "nothing";
    case BodyShape::kXml: return "XML";
    case BodyShape::kHtml: return "a page of HTML";
    case BodyShape::kJson: return "JSON";
    case BodyShape::kOther: return "text";
  }
  return "";
}

}  // namespace headrace
