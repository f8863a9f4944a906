#include "headrace/format/xml_error.h"

#include "headrace/base/ascii.h"
#include "headrace/format/body_shape.h"
#include "headrace/format/http_date.h"
#include "headrace/format/xml.h"

namespace headrace {
namespace {

// Null if it is no error. Some services wrap it.
pugi::xml_node error_of(const XmlDocument& document) {
  if (document.root_name() == "Error") return document.root();
  if (document.root_name() != "ErrorResponse") return {};
  for (const pugi::xml_node& child : document.root().children()) {
    if (xml_name(child) == "Error") return child;
  }
  return {};
}

}  // namespace

std::optional<XmlError> parse_late_xml_error(std::string_view xml) {
  std::string_view name = first_element(xml);
  name.remove_prefix(name.find(':') + 1);  // npos + 1 is 0
  if (name != "Error" && name != "ErrorResponse") return std::nullopt;
  return parse_xml_error(xml);
}

XmlError read_xml_error(const XmlDocument& document) {
  const pugi::xml_node error = error_of(document);
  if (!error) return {};
  const auto line = [&error](std::string_view name) {
    return printable_line(xml_text(error, name));
  };
  XmlError out{.code = line("Code"),
               .message = line("Message"),
               .region = line("Region"),
               .endpoint = line("Endpoint"),
               .bucket = line("Bucket"),
               .request_id = line("RequestId")};
  if (out.request_id.empty()) {
    out.request_id = printable_line(xml_text(document.root(), "RequestId"));
  }
  out.object_bytes = parse_number(xml_word(error, "ActualObjectSize"));
  if (const auto time = parse_rfc3339(xml_word(error, "ServerTime"))) out.server_time = *time;
  return out;
}

XmlError parse_xml_error(std::string_view xml) {
  XmlDocument document;
  return document.parse(xml) ? read_xml_error(document) : XmlError{};
}

}  // namespace headrace
