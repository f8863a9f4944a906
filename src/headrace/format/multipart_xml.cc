#include "headrace/format/multipart_xml.h"

#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/format/http_date.h"
#include "headrace/format/percent.h"
#include "headrace/format/xml.h"
#include "headrace/format/xml_error.h"
#include "headrace/format/xml_scanner.h"

namespace headrace {

Result<std::string> parse_upload_id(std::string_view xml) {
  // What counts is what is inside; not all servers call the root InitiateMultipartUploadResult. And
  // an upload whose id was told is not left behind for a mistake that stands elsewhere.
  constexpr std::string_view kEnd = "UploadId>";
  const size_t end = xml.rfind(kEnd);
  XmlScanner scanner(xml.substr(0, end == xml.npos ? 0 : end + kEnd.size()));
  bool is_inside = scanner.enter() && scanner.name() != "Error";
  while (is_inside && (is_inside = scanner.enter())) {
    if (scanner.name() != "UploadId") {
      scanner.leave();
      continue;
    }
    XmlText text;
    std::string scratch;
    if (!scanner.leave_text(text)) break;
    const std::string_view id = without_white_space(text.read(scratch));
    if (id.empty()) break;
    return std::string(id);
  }
  return corrupt("the answer to the start of an upload has no UploadId");
}

std::string completion_xml(std::span<const SentPart> parts) {
  std::string xml = "<CompleteMultipartUpload>";
  for (const SentPart& part : parts) {
    xml += cat("<Part><PartNumber>", part.part_number, "</PartNumber><ETag>");
    append_xml(xml, part.etag);
    xml += "</ETag>";
    if (const std::string_view name = amz_names(part.checksum.kind()).element; !name.empty()) {
      xml += cat("<", name, ">", to_base64(part.checksum), "</", name, ">");
    }
    xml += "</Part>";
  }
  return xml + "</CompleteMultipartUpload>";
}

Result<CompletedUpload> completed_upload(std::string_view xml) {
  XmlDocument document;
  if (document.parse(xml)) {
    if (const XmlError error = read_xml_error(document); !error.code.empty()) {
      return fail(Code::kUnavailable, "the upload could not be completed: ", error.code, ": ",
                  error.message);
    }
    CompletedUpload upload{.generation =
                               std::string(unquoted_etag(xml_word(document.root(), "ETag")))};
    if (!upload.generation.empty() || document.root_name() == "CompleteMultipartUploadResult") {
      Result<std::vector<StoredChecksum>> checksums = xml_checksums(document.root());
      // What cannot be read is none: what was made is looked at.
      if (checksums) upload.checksums = std::move(*checksums);
      return upload;
    }
  }
  return corrupt("the answer to the end of an upload is no CompleteMultipartUploadResult");
}

Result<UploadsPage> parse_uploads(std::string_view xml) {
  XmlDocument document;
  if (!document.parse(xml) || (document.root_name() != "ListMultipartUploadsResult" &&
                               xml_word(document.root(), "IsTruncated").empty())) {
    return corrupt("the list of uploads is no ListMultipartUploadsResult");
  }
  const pugi::xml_node root = document.root();
  const std::string encoding = xml_word(root, "EncodingType");
  if (!encoding.empty() && encoding != "url") {
    return corrupt("a list of uploads with an unknown EncodingType");
  }
  const auto name = [&encoding](std::string text) -> Result<std::string> {
    if (encoding.empty()) return text;
    return form_decode(text);
  };
  UploadsPage page;
  for (const pugi::xml_node& each : root.children()) {
    if (xml_name(each) != "Upload") continue;
    Result<std::string> key = name(xml_text(each, "Key"));
    if (!key) return corrupt("the list of uploads has a malformed Key: ", key.error().message());
    UnfinishedUpload upload{.name = std::move(*key),
                            .upload_id = xml_word(each, "UploadId"),
                            .initiated = xml_word(each, "Initiated")};
    if (upload.name.empty() || upload.upload_id.empty()) {
      return corrupt("the list of uploads has one without Key or UploadId");
    }
    if (!upload.initiated.empty() && !parse_rfc3339(upload.initiated)) {
      return corrupt("the list of uploads has one with a malformed Initiated: ",
                     printable_line(upload.initiated, 40));
    }
    page.uploads.push_back(std::move(upload));
  }
  if (xml_word(root, "IsTruncated") == "true") {
    Result<std::string> next = name(xml_text(root, "NextKeyMarker"));
    if (!next || next->empty()) return corrupt("the list of uploads does not say how it goes on");
    page.next_name = std::move(*next);
    page.next_upload_id = xml_word(root, "NextUploadIdMarker");
  }
  return page;
}

}  // namespace headrace
