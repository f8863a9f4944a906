// The XML of multipart uploads: an upload is started, gets numbered parts, and is completed. S3
// introduced it; Google Cloud Storage and others support it, too.
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateMultipartUpload.html
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"

namespace headrace {

// A part that the server has, as it must be named when the upload is completed.
struct SentPart {
  uint32_t part_number = 1;  // from 1
  std::string etag = {};     // as the server reported it, with its quotes
  bool operator==(const SentPart&) const = default;
};

// An upload that was started and neither completed nor aborted.
struct UnfinishedUpload {
  std::string name = {};
  std::string upload_id = {};
  std::string initiated = {};  // ISO 8601; "" where the server does not say
  bool operator==(const UnfinishedUpload&) const = default;
};

struct UploadsPage {
  std::vector<UnfinishedUpload> uploads = {};
  // Where the next page starts; both "" on the last one.
  std::string next_name = {}, next_upload_id = {};
};

// The contents of an error document; "" if it is something else.
struct XmlError {
  std::string code = {}, message = {};
};

// Errors of all below: kCorrupt if it is not the expected document.

// Of the answer to the request that starts an upload.
Result<std::string> parse_upload_id(std::string_view xml);
// The body that completes an upload of these parts, in their order.
std::string completion_xml(std::span<const SentPart> parts);
// Of the answer to it, which may be an error although its status is 200: kUnavailable, to be sent
// again.
Result<void> check_completion(std::string_view xml);
Result<UploadsPage> parse_uploads(std::string_view xml);
XmlError parse_xml_error(std::string_view xml);

}  // namespace headrace
