// The answers of the S3 API, and the bodies of its requests. Those of multipart uploads, which
// other services understand, too, are in multipart_xml.
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/format/amz_checksum.h"
#include "headrace/format/column_page.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/format/object_info.h"

namespace headrace {

// Each of these fails with kCorrupt on a document that is malformed, that ends early, or that
// contradicts itself, and never returns the part that could be read. Elements that are not known
// are skipped.

// ListObjectsV2. Names are decoded if the answer says that they are encoded (EncodingType), and
// taken as they are if not: some servers ignore that they were asked to. The generation is the
// ETag without its quotes. A listing names the algorithm of a checksum and has no value, so there
// is none in what is returned.
Result<ColumnPage> parse_s3_list(std::string_view xml);

// CopyObject and UploadPartCopy.
struct CopiedObject {
  std::string generation = {};  // the ETag, without its quotes
  std::chrono::system_clock::time_point updated{};
  std::optional<StoredChecksum> checksum = {};
};
Answer<CopiedObject> parse_copied(std::string_view xml);

// DeleteObjects.
struct DeleteTarget {
  std::string name = {};
  std::string version_id = {};  // "" for the current version
  std::string etag = {};        // delete only this; "" for any
};
// True for names that a request to delete several objects can contain. XML has no way to write
// control characters, so objects with such names are deleted one by one.
bool can_delete_together(std::string_view name);
// At most 1000. With `quiet`, the answer only has what failed.
// Errors: kInvalidArgument for a target of which can_delete_together is false.
Result<std::string> delete_xml(std::span<const DeleteTarget> targets, bool quiet);

struct DeleteResult {
  struct Deleted {
    std::string name = {}, version_id = {};
    bool operator==(const Deleted&) const = default;
  };
  struct Failure {
    std::string name = {}, version_id = {}, code = {}, message = {};
    bool operator==(const Failure&) const = default;
  };
  std::vector<Deleted> deleted = {};  // also what was not there
  std::vector<Failure> failures = {};
};
Answer<DeleteResult> parse_deleted(std::string_view xml);

// GetBucketLocation: the region of a bucket, "us-east-1" where the service leaves it empty.
Answer<std::string> parse_location(std::string_view xml);

}  // namespace headrace
