#include "headrace/store/s3/s3_paths.h"

#include <span>
#include <utility>

#include "headrace/format/amz_checksum.h"
#include "headrace/format/base64.h"
#include "headrace/format/percent.h"
#include "headrace/format/running_sum.h"

namespace headrace {
namespace {

std::string line(std::string_view name, std::string_view value) {
  return value.empty() ? std::string() : cat(name, ": ", value, "\r\n");
}

// https://docs.aws.amazon.com/AmazonS3/latest/userguide/ServerSideEncryptionCustomerKeys.html
std::string customer_key_lines(std::string_view prefix, std::span<const std::byte> key) {
  if (key.empty()) return "";
  return line(cat(prefix, "customer-algorithm"), "AES256") +
         line(cat(prefix, "customer-key"), base64_encode(key)) +
         line(cat(prefix, "customer-key-MD5"), to_base64(sum_of(ChecksumKind::kMd5, key)));
}

}  // namespace

S3Paths::S3Paths(std::string bucket, bool in_path, const S3Options& options, const Root& root)
    : bucket_(std::move(bucket)),
      bucket_path_(in_path ? cat("/", percent_encode(bucket_)) : ""),
      root_(root),
      root_path_(percent_encode_path(root.text())),
      root_value_(percent_encode(root.text())),
      looks_before_writes_(options.conditional_writes == ConditionalWrites::kLook) {
  for (const auto& [name, value] :
       {std::pair("x-amz-request-payer", std::string(options.requester_pays ? "requester" : "")),
        std::pair("x-amz-expected-bucket-owner", options.expected_bucket_owner)}) {
    common_lines_ += line(name, value);
    append_parameter(common_parameters_, name, value);
  }
  if (!common_parameters_.empty()) common_parameters_.erase(0, 1);  // its '&'
  constexpr std::string_view kEncryption = "x-amz-server-side-encryption";
  encryption_lines_ += line(kEncryption, options.encryption);
  encryption_lines_ += line(cat(kEncryption, "-aws-kms-key-id"), options.kms_key_id);
  customer_key_lines_ = customer_key_lines(cat(kEncryption, "-"), options.customer_key);
  copy_source_key_lines_ =
      customer_key_lines("x-amz-copy-source-server-side-encryption-", options.customer_key);
}

void S3Paths::begin(HttpRequest& request, std::string_view method, std::string_view name) const {
  request.method = method;
  request.target.append(bucket_path_).append("/").append(root_path_);
  percent_encode_path_to(request.target, name);
  request.header_lines.append(common_lines_);
}

void S3Paths::begin_bucket(HttpRequest& request) const {
  request.target.append(bucket_path_).append(bucket_path_.empty() ? "/" : "");
  request.header_lines.append(common_lines_);
}

std::string S3Paths::source(std::string_view name) const {
  return cat("/", percent_encode(bucket_), "/", root_path_, percent_encode_path(name));
}

void S3Paths::append_below(std::string& target, std::string_view parameter,
                           std::string_view name) const {
  if (root_value_.empty() && name.empty()) return;
  target.append("&").append(parameter).append("=").append(root_value_);
  percent_encode_to(target, name);
}

void S3Paths::append_parameter(std::string& target, std::string_view name, std::string_view value) {
  if (value.empty()) return;
  target.append("&").append(name).append("=");
  percent_encode_to(target, value);
}

void S3Paths::add_precondition(HttpRequest& request, const Precondition& precondition,
                               S3Change change) {
  if (!precondition.generation) return;
  const bool creates = precondition.generation->empty();
  if (creates) {
    request.add_header("If-None-Match", "*");
  } else {
    if (!request.check_text("the expected generation", *precondition.generation)) return;
    request.add_header("If-Match", quoted_etag(*precondition.generation));
  }
  if (precondition.if_refused == Precondition::IfRefused::kLeaveOut) {
    using H = S3Headers;
    switch (change) {
      case S3Change::kWrite: request.optional |= creates ? H::kCreate : H::kReplace; break;
      case S3Change::kEndOfUpload:
        request.optional |= creates ? H::kCreateByEnd : H::kReplaceByEnd;
        break;
      case S3Change::kCopy:
        request.optional |= creates ? H::kCreateByCopy : H::kReplaceByCopy;
        break;
    }
  }
}

void S3Paths::add_checksum_mode(HttpRequest& request) {
  request.header_lines.append("x-amz-checksum-mode: ENABLED\r\n");
  request.optional |= S3Headers::kChecksumMode;
}

void S3Paths::add_sums(HttpRequest& request, const SentSums& sums) {
  for (const Checksum& sum : sums.all()) {
    const bool is_md5 = sum.kind() == ChecksumKind::kMd5;
    const std::string_view header = is_md5 ? "Content-MD5" : amz_names(sum.kind()).header;
    request.add_header(header, to_base64(sum));
  }
}

void S3Paths::add_new_object(HttpRequest& request, const WriteRequest& write) const {
  request.add_header("Content-Type", content_type_or_default(write.content_type));
  if (!write.content_encoding.empty()) {
    request.add_header("Content-Encoding", write.content_encoding);
  }
  add_encryption(request);
}

}  // namespace headrace
