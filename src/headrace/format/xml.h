// XML documents: the answers of S3 and its kind, but for listings (xml_scanner), and how texts are
// written into requests.
#pragma once

#include <pugixml.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/format/amz_checksum.h"

namespace headrace {

// One document, checked and in memory. pugixml parses it, and is more lenient than a reader may be
// who must tell a whole answer from the beginning of one; so this also refuses a second root, text
// behind it, NUL (which ends a text for pugixml), and references to anything but characters.
// Declarations of document types are skipped; nothing is expanded or fetched.
// Thread: confined.
class XmlDocument {
 public:
  // False if `xml` is none.
  bool parse(std::string_view xml);
  pugi::xml_node root() const { return document_.document_element(); }
  std::string_view root_name() const;

 private:
  std::string text_;  // which the nodes point into
  pugi::xml_document document_;
};

// The part of a name behind the namespace's prefix.
std::string_view xml_name(const pugi::xml_node& node);
// All text right inside of an element, as it is: names of objects may begin with a blank. (The text
// in front of the first child is the element's own value.)
std::string xml_text(const pugi::xml_node& element);
// That of the first child of this name, "" if there is none.
std::string xml_text(const pugi::xml_node& parent, std::string_view name);
// The same without white space at both ends.
std::string xml_word(const pugi::xml_node& parent, std::string_view name);

// The Checksum* elements of S3, with ChecksumType: as ToldSums::all().
Result<std::vector<StoredChecksum>> xml_checksums(const pugi::xml_node& parent);

// Appends `text`, escaped so that every reader gets the same text back.
void append_xml(std::string& xml, std::string_view text);

}  // namespace headrace
