#include "headrace/store/s3/s3_uploads.h"

#include <algorithm>
#include <array>
#include <span>

#include "headrace/base/ascii.h"
#include "headrace/format/amz_checksum.h"
#include "headrace/format/http_range.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/format/percent.h"
#include "headrace/format/s3_xml.h"
#include "headrace/store/s3/s3_errors.h"

namespace headrace {

void S3MultipartUploads::build_start(HttpRequest& request, const WriteRequest& write,
                                     SumLevel level) const {
  paths_.begin(request, "POST", write.name);
  request.target.append("?uploads=");
  paths_.add_new_object(request, write);
  if (const std::string_view algorithm = amz_names(sum_kind(level)).algorithm; !algorithm.empty()) {
    request.add_header("x-amz-checksum-algorithm", algorithm);
    if (level != SumLevel::kComposite) {
      request.header_lines.append("x-amz-checksum-type: FULL_OBJECT\r\n");
    }
  }
  request.has_body = true;
}

AnnouncedSum S3MultipartUploads::announced_sum(const ResponseHead& head, SumLevel level) const {
  const std::string_view algorithm = head.find("x-amz-checksum-algorithm").value_or("");
  const std::string_view type = head.find("x-amz-checksum-type").value_or("");
  if (algorithm.empty() || algorithm != amz_names(sum_kind(level)).algorithm) {
    return AnnouncedSum::kNone;
  }
  if (type == "FULL_OBJECT") return AnnouncedSum::kWhole;
  return type == "COMPOSITE" ? AnnouncedSum::kOfParts : AnnouncedSum::kNone;
}

void S3MultipartUploads::build_part(HttpRequest& request, std::string_view name,
                                    std::string_view upload_id, uint32_t part_number,
                                    std::span<const std::span<const std::byte>> bytes,
                                    const SentSums& sums) const {
  paths_.begin(request, "PUT", name);
  request.target.append("?partNumber=").append(std::to_string(part_number));
  S3Paths::append_parameter(request.target, "uploadId", upload_id);
  S3Paths::add_sums(request, sums);
  paths_.add_customer_key(request);
  request.body.assign(bytes.begin(), bytes.end());
  request.has_body = true;
}

// Cloudflare R2: "InvalidPart: All non-trailing parts must have the same length."
// https://developers.cloudflare.com/r2/objects/multipart-objects/#limitations
bool S3MultipartUploads::wants_equal_parts(const Error& refusal) const {
  const std::string_view text = refusal.message();
  return refusal.code() == Code::kInvalidArgument && text.contains("same length");
}

void S3MultipartUploads::build_complete(HttpRequest& request, const MultipartCompletion& completion,
                                        std::string& scratch) const {
  scratch = completion_xml(completion.parts);
  paths_.begin(request, "POST", completion.name);
  request.target.append("?uploadId=");
  percent_encode_to(request.target, completion.upload_id);
  request.add_header("Content-Type", "application/xml");
  if (!completion.sum.empty()) {
    S3Paths::add_sums(request, {completion.sum});
    request.header_lines.append("x-amz-checksum-type: FULL_OBJECT\r\n");
  }
  request.add_header("x-amz-mp-object-size", std::to_string(completion.size_bytes));
  request.optional |= S3Headers::kObjectSize;
  paths_.add_write_precondition(request, completion.precondition, S3Change::kEndOfUpload);
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

ObjectMetadata S3PartCopies::metadata(const ResponseHead& head) const {
  constexpr std::string_view kOwn = "x-amz-meta-";
  ObjectMetadata metadata;
  for (const HeaderField& field : head.fields()) {
    const bool is_own = field.name.size() > kOwn.size() &&
                        same_ignoring_case(field.name.substr(0, kOwn.size()), kOwn);
    const bool is_kept =
        is_own ||
        std::ranges::any_of(
            std::array<std::string_view, 6>{"content-type", "content-encoding", "cache-control",
                                            "content-disposition", "content-language", "expires"},
            [&](std::string_view name) { return same_ignoring_case(field.name, name); });
    if (is_kept) metadata.emplace_back(field.name, field.value);
  }
  return metadata;
}

void S3PartCopies::build_start(HttpRequest& request, std::string_view name,
                               const ObjectMetadata& metadata) const {
  paths_.begin(request, "POST", name);
  request.target.append("?uploads=");
  for (const auto& [header, value] : metadata) request.add_header(header, value);
  paths_.add_encryption(request);
  request.has_body = true;
}

void S3PartCopies::build_part(HttpRequest& request, const CopiedPart& part) const {
  paths_.begin(request, "PUT", part.name);
  request.target.append("?partNumber=").append(std::to_string(part.part_number));
  S3Paths::append_parameter(request.target, "uploadId", part.upload_id);
  request.add_header("x-amz-copy-source", paths_.source(part.source_name));
  if (request.check_text("the source's generation", part.source_generation)) {
    request.add_header("x-amz-copy-source-if-match", quoted_etag(part.source_generation));
  }
  request.header_lines.append("x-amz-copy-source-range: ");
  append_range(request.header_lines, part.range);
  request.header_lines.append("\r\n");
  paths_.add_customer_key(request);
  paths_.add_copy_source_customer_key(request);
  request.has_body = true;
}

Result<SentPart> S3PartCopies::parse_part(const Response& response, uint32_t part_number) const {
  const Result<CopiedObject> copied = parse_copied(response.body);
  if (!copied) return std::unexpected(copied.error());
  return SentPart{.part_number = part_number, .etag = quoted_etag(copied->generation)};
}

void S3Copies::build_copy(HttpRequest& request, const CopyRequest& copy, std::string_view) const {
  paths_.begin(request, "PUT", copy.name);
  request.add_header("x-amz-copy-source", paths_.source(copy.source_name));
  if (!copy.source_generation.empty()) {
    request.add_header("x-amz-copy-source-if-match", quoted_etag(copy.source_generation));
  }
  paths_.add_write_precondition(request, copy.precondition, S3Change::kCopy);
  paths_.add_encryption(request);
  paths_.add_copy_source_customer_key(request);
  request.has_body = true;
}

// The answer has neither size nor name, so the copy is looked at.
Result<CopyStep> S3Copies::parse_copy(const Response& response) const {
  if (const auto copied = parse_copied(response.body); !copied) {
    return std::unexpected(copied.error());
  }
  return CopyStep{.done = true, .token = "", .object = std::nullopt};
}

}  // namespace headrace
