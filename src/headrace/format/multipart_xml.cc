#include "headrace/format/multipart_xml.h"

#include <pugixml.hpp>

#include <utility>

namespace headrace {
namespace {

// The part of a name behind the namespace's prefix.
std::string_view local_name(const pugi::xml_node& node) {
  const std::string_view name = node.name();
  const size_t colon = name.find(':');
  return colon == name.npos ? name : name.substr(colon + 1);
}

std::string text_of(const pugi::xml_node& parent, std::string_view name) {
  for (const pugi::xml_node& child : parent.children()) {
    if (local_name(child) == name) return child.child_value();
  }
  return "";
}

// Thread: confined.
class Document {
 public:
  // False if `xml` is none. Declarations of document types are skipped, entities not expanded.
  bool parse(std::string_view xml) {
    return static_cast<bool>(document_.load_buffer(xml.data(), xml.size(),
                                                   pugi::parse_default | pugi::parse_trim_pcdata,
                                                   pugi::encoding_utf8));
  }
  pugi::xml_node root() const { return document_.document_element(); }
  std::string_view root_name() const { return local_name(root()); }

 private:
  pugi::xml_document document_;
};

void append_escaped(std::string& xml, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&': xml += "&amp;"; break;
      case '<': xml += "&lt;"; break;
      case '>': xml += "&gt;"; break;
      case '"': xml += "&quot;"; break;
      default: xml += c;
    }
  }
}

}  // namespace

Result<std::string> parse_upload_id(std::string_view xml) {
  Document document;
  if (!document.parse(xml) || document.root_name() != "InitiateMultipartUploadResult") {
    return corrupt("the answer to the start of an upload is no InitiateMultipartUploadResult");
  }
  std::string id = text_of(document.root(), "UploadId");
  if (id.empty()) return corrupt("the answer to the start of an upload has no UploadId");
  return id;
}

std::string completion_xml(std::span<const SentPart> parts) {
  std::string xml = "<CompleteMultipartUpload>";
  for (const SentPart& part : parts) {
    xml += cat("<Part><PartNumber>", part.part_number, "</PartNumber><ETag>");
    append_escaped(xml, part.etag);
    xml += "</ETag></Part>";
  }
  return xml + "</CompleteMultipartUpload>";
}

Result<void> check_completion(std::string_view xml) {
  Document document;
  if (document.parse(xml)) {
    if (document.root_name() == "CompleteMultipartUploadResult") return {};
    if (document.root_name() == "Error") {
      return fail(Code::kUnavailable,
                  "the upload could not be completed: ", text_of(document.root(), "Code"), ": ",
                  text_of(document.root(), "Message"));
    }
  }
  return corrupt("the answer to the end of an upload is no CompleteMultipartUploadResult");
}

Result<UploadsPage> parse_uploads(std::string_view xml) {
  Document document;
  if (!document.parse(xml) || document.root_name() != "ListMultipartUploadsResult") {
    return corrupt("the list of uploads is no ListMultipartUploadsResult");
  }
  UploadsPage page;
  for (const pugi::xml_node& each : document.root().children()) {
    if (local_name(each) != "Upload") continue;
    UnfinishedUpload upload{.name = text_of(each, "Key"),
                            .upload_id = text_of(each, "UploadId"),
                            .initiated = text_of(each, "Initiated")};
    if (upload.name.empty() || upload.upload_id.empty()) {
      return corrupt("the list of uploads has one without Key or UploadId");
    }
    page.uploads.push_back(std::move(upload));
  }
  if (text_of(document.root(), "IsTruncated") == "true") {
    page.next_name = text_of(document.root(), "NextKeyMarker");
    page.next_upload_id = text_of(document.root(), "NextUploadIdMarker");
    if (page.next_name.empty()) return corrupt("the list of uploads does not say how it goes on");
  }
  return page;
}

XmlError parse_xml_error(std::string_view xml) {
  Document document;
  if (!document.parse(xml) || document.root_name() != "Error") return {};
  return {.code = text_of(document.root(), "Code"), .message = text_of(document.root(), "Message")};
}

}  // namespace headrace
