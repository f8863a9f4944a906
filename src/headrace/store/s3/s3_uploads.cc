#include "headrace/store/s3/s3_uploads.h"

#include <optional>
#include <span>
#include <utility>

#include "headrace/format/amz_checksum.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/format/percent.h"

namespace headrace {

void S3MultipartUploads::build_start(HttpRequest& request, const WriteRequest& write) const {
  paths_.begin(request, "POST", write.name);
  request.target.append("?uploads=");
  paths_.add_new_object(request, write);
  request.header_lines.append(
      "x-amz-checksum-algorithm: CRC32C\r\nx-amz-checksum-type: FULL_OBJECT\r\n");
  request.has_body = true;
}

void S3MultipartUploads::build_part(HttpRequest& request, std::string_view name,
                                    std::string_view upload_id, uint32_t part_number,
                                    std::span<const std::span<const std::byte>> bytes,
                                    Crc32c crc32c) const {
  paths_.begin(request, "PUT", name);
  request.target.append("?partNumber=").append(std::to_string(part_number));
  S3Paths::append_parameter(request.target, "uploadId", upload_id);
  request.add_header("x-amz-checksum-crc32c", crc32c.to_base64());
  paths_.add_customer_key(request);
  request.body.assign(bytes.begin(), bytes.end());
  request.has_body = true;
}

Result<std::optional<Crc32c>> S3MultipartUploads::part_crc32c(const ResponseHead& head) const {
  const std::optional<std::string_view> sum = head.find("x-amz-checksum-crc32c");
  if (!sum) return std::nullopt;
  const Result<Crc32c> crc32c = Crc32c::from_base64(*sum);
  if (!crc32c) return corrupt("the answer to a part of an upload has a malformed checksum");
  return *crc32c;
}

void S3MultipartUploads::build_complete(HttpRequest& request, const MultipartCompletion& completion,
                                        std::string& scratch) const {
  scratch = completion_xml(completion.parts);
  paths_.begin(request, "POST", completion.name);
  request.target.append("?uploadId=");
  percent_encode_to(request.target, completion.upload_id);
  request.add_header("Content-Type", "application/xml");
  request.add_header("x-amz-checksum-crc32c", completion.crc32c.to_base64());
  request.header_lines.append("x-amz-checksum-type: FULL_OBJECT\r\n");
  request.add_header("x-amz-mp-object-size", std::to_string(completion.size_bytes));
  S3Paths::add_precondition(request, completion.precondition);
  paths_.add_customer_key(request);
  request.body = {std::as_bytes(std::span(scratch))};
  request.has_body = true;
}

void S3MultipartUploads::build_abort(HttpRequest& request, std::string_view name,
                                     std::string_view upload_id) const {
  paths_.begin(request, "DELETE", name);
  request.target.append("?uploadId=");
  percent_encode_to(request.target, upload_id);
}

void S3MultipartUploads::build_list(HttpRequest& request, std::string_view prefix,
                                    std::string_view after_name,
                                    std::string_view after_upload_id) const {
  paths_.begin_bucket(request);
  request.target.append("?uploads=&encoding-type=url");
  if (!after_name.empty()) paths_.append_below(request.target, "key-marker", after_name);
  paths_.append_below(request.target, "prefix", prefix);
  S3Paths::append_parameter(request.target, "upload-id-marker", after_upload_id);
}

}  // namespace headrace
