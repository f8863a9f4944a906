// The XML of multipart uploads: an upload is started, gets numbered parts, and is completed. S3
// introduced it; Google Cloud Storage and others support it, too.
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateMultipartUpload.html
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/format/amz_checksum.h"
#include "headrace/format/checksum.h"
#include "headrace/format/xml_error.h"

namespace headrace {

// A part that the server has, as it must be named when the upload is completed.
struct SentPart {
  uint32_t part_number = 1;  // from 1
  std::string etag = {};     // as the server reported it, with its quotes
  Checksum checksum = {};    // named too, unless of no kind; S3 compares it
  Checksum ours = {};        // of the bytes that were sent, of the kind that went along
  bool operator==(const SentPart&) const = default;
};

// An upload that was started and neither completed nor aborted.
struct UnfinishedUpload {
  std::string name = {};
  std::string upload_id = {};
  std::string initiated = {};  // as in RFC 3339; "" where the server does not say
  bool operator==(const UnfinishedUpload&) const = default;
};

struct UploadsPage {
  std::vector<UnfinishedUpload> uploads = {};
  // Where the next page starts; both "" on the last one.
  std::string next_name = {}, next_upload_id = {};
};

// Errors of all below: kCorrupt if it is not the expected document.

// Of the answer to the request that starts an upload.
Result<std::string> parse_upload_id(std::string_view xml);
// The body that completes an upload of these parts, in their order.
std::string completion_xml(std::span<const SentPart> parts);
// Of the answer to it.
struct CompletedUpload {
  std::string generation = {};                 // the ETag, without its quotes
  std::vector<StoredChecksum> checksums = {};  // the best first
};
// An error that came with a good status is kUnavailable, to be sent again.
Result<CompletedUpload> completed_upload(std::string_view xml);
Result<UploadsPage> parse_uploads(std::string_view xml);

}  // namespace headrace
