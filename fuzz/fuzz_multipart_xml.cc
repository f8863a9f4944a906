// What is cut off gives the id that was told, or none; what is escaped is read back.
#include <string>

#include "fuzz/check.h"
#include "headrace/format/multipart_xml.h"

using namespace headrace;
using fuzz::check;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  if (const Result<std::string> id = parse_upload_id(text)) check(!id->empty());
  if (const Result<UploadsPage> page = parse_uploads(text)) {
    for (const UnfinishedUpload& upload : page->uploads) {
      check(!upload.name.empty() && !upload.upload_id.empty());
    }
    check(page->next_upload_id.empty() || !page->next_name.empty());
  }
  if (const Result<CompletedUpload> completed = completed_upload(text); !completed) {
    const Code code = completed.error().code();
    check(code == (parse_xml_error(text).code.empty() ? Code::kCorrupt : Code::kUnavailable));
  }

  // Printable text survives the way there and back, as the id of an upload.
  std::string etag = "x";
  for (const char c : text.substr(0, 64)) {
    if (c > ' ' && c < '\x7f') etag += c;
  }
  const SentPart part{.part_number = 1, .etag = etag};
  std::string xml = completion_xml(std::span(&part, 1));
  const size_t begin = xml.find("<ETag>") + 6;
  const std::string escaped = xml.substr(begin, xml.find("</ETag>") - begin);
  const std::string answer = cat("<InitiateMultipartUploadResult><UploadId>", escaped,
                                 "</UploadId></InitiateMultipartUploadResult>");
  const Result<std::string> back = parse_upload_id(answer);
  check(back && *back == etag);
  for (const size_t end : {answer.size() / 2, answer.size() - 1}) {
    const Result<std::string> cut = parse_upload_id(std::string_view(answer).substr(0, end));
    check(!cut || *cut == etag);
  }
  return 0;
}
