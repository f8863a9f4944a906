#include "headrace/format/xml.h"

#include <cstring>
#include <deque>

#include "headrace/format/xml_scanner.h"

namespace headrace {

bool XmlDocument::parse(std::string_view xml) {
  const size_t last = xml.find_last_not_of(kXmlWhiteSpace);
  if (last == xml.npos || xml[last] != '>') return false;
  if (xml.find('\0') != xml.npos || !has_good_references(xml)) return false;
  // A text is kept in its element: half as many nodes.
  constexpr unsigned kFlags = pugi::parse_cdata | pugi::parse_escapes | pugi::parse_eol |
                              pugi::parse_ws_pcdata_single | pugi::parse_embed_pcdata;
  text_.assign(xml);
  return document_.load_buffer_inplace(text_.data(), text_.size(), kFlags, pugi::encoding_utf8) &&
         root() && !root().next_sibling();
}

std::string_view XmlDocument::root_name() const { return xml_name(root()); }

std::string_view xml_name(const pugi::xml_node& node) {
  const char* const name = node.name();
  const char* const colon = std::strchr(name, ':');
  return colon == nullptr ? name : colon + 1;
}

std::string xml_text(const pugi::xml_node& element) {
  std::string text = element.value();
  for (const pugi::xml_node& child : element.children()) {
    if (child.type() == pugi::node_pcdata || child.type() == pugi::node_cdata) {
      text += child.value();
    }
  }
  return text;
}

std::string xml_text(const pugi::xml_node& parent, std::string_view name) {
  for (const pugi::xml_node& child : parent.children()) {
    if (xml_name(child) == name) return xml_text(child);
  }
  return "";
}

std::string xml_word(const pugi::xml_node& parent, std::string_view name) {
  return std::string(without_white_space(xml_text(parent, name)));
}

Result<std::vector<StoredChecksum>> xml_checksums(const pugi::xml_node& parent) {
  std::deque<std::string> values;  // stay where they are
  ToldSums told;
  const std::string type = xml_word(parent, "ChecksumType");
  told.set_type(type);
  for (const pugi::xml_node& child : parent.children()) {
    const ChecksumKind kind = kind_of_amz_element(xml_name(child));
    if (kind == ChecksumKind::kNone) continue;
    told.add(kind, values.emplace_back(without_white_space(xml_text(child))));
  }
  return told.all();
}

void append_xml(std::string& xml, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&': xml += "&amp;"; break;
      case '<': xml += "&lt;"; break;
      case '>': xml += "&gt;"; break;
      case '"': xml += "&quot;"; break;
      // Readers turn the bytes themselves into other white space.
      case '\t': xml += "&#9;"; break;
      case '\n': xml += "&#10;"; break;
      case '\r': xml += "&#13;"; break;
      default: xml += c;
    }
  }
}

}  // namespace headrace
