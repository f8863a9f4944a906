#include "headrace/format/xml.h"

#include <simdjson.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>

namespace headrace {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

// Names of objects may have what XML 1.0 has not, which S3 refers to all the same.
bool is_character(uint32_t code) {
  return code != 0 && (code <= 0xD7FF || (code >= 0xE000 && code <= 0x10FFFF));
}

// What stands between '&' and ';'.
bool is_good_reference(std::string_view name) {
  if (!name.starts_with('#')) {
    return name == "amp" || name == "lt" || name == "gt" || name == "quot" || name == "apos";
  }
  name.remove_prefix(1);
  const bool is_hex = name.starts_with('x');
  if (is_hex) name.remove_prefix(1);
  uint32_t code = 0;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), code, is_hex ? 16 : 10);
  return error == std::errc() && end == name.data() + name.size() && is_character(code);
}

bool has_good_references(std::string_view xml) {
  constexpr size_t kLongest = 16;  // with zeros in front
  for (size_t at = xml.find('&'); at != xml.npos; at = xml.find('&', at + 1)) {
    const std::string_view rest = xml.substr(at + 1, kLongest);
    const size_t end = rest.find(';');
    if (end == rest.npos || !is_good_reference(rest.substr(0, end))) return false;
  }
  return true;
}

}  // namespace

bool XmlDocument::parse(std::string_view xml) {
  const size_t last = xml.find_last_not_of(kWhiteSpace);
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
  const std::string text = xml_text(parent, name);
  const size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) - begin + 1);
}

Result<std::optional<StoredChecksum>> xml_checksum(const pugi::xml_node& parent) {
  for (const pugi::xml_node& child : parent.children()) {
    const ChecksumKind kind = kind_of_amz_element(xml_name(child));
    if (kind == ChecksumKind::kNone) continue;
    const Result<StoredChecksum> sum = parse_amz_checksum(kind, xml_word(parent, xml_name(child)),
                                                          xml_word(parent, "ChecksumType"));
    if (!sum) return std::unexpected(sum.error());
    return std::optional(*sum);
  }
  return std::optional<StoredChecksum>();
}

bool fits_xml(std::string_view text) {
  if (!simdjson::validate_utf8(text)) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 && kWhiteSpace.find(text[i]) == kWhiteSpace.npos) return false;
    // U+FFFE and U+FFFF, which are no characters.
    if (byte == 0xEF && text.substr(i, 2) == "\xEF\xBF" && i + 2 < text.size() &&
        static_cast<unsigned char>(text[i + 2]) >= 0xBE) {
      return false;
    }
  }
  return true;
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
