// The answers of the S3 API. Those about multipart uploads, which other services understand, too,
// are in multipart_xml.
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html
#pragma once

#include <optional>
#include <string>
#include <string_view>

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
  std::string generation = {};                 // the ETag, without its quotes
  std::vector<StoredChecksum> checksums = {};  // the best first
};
Result<CopiedObject> parse_copied(std::string_view xml);

}  // namespace headrace
