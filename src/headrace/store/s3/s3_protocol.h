// S3, as AWS and its kind speak it.
// https://docs.aws.amazon.com/AmazonS3/latest/API/Welcome.html
#pragma once

#include <memory>
#include <string>

#include "headrace/store/condition_proof.h"
#include "headrace/store/copies.h"
#include "headrace/store/multipart_uploads.h"
#include "headrace/store/protocol.h"
#include "headrace/store/s3/s3_conditions.h"
#include "headrace/store/s3/s3_home.h"
#include "headrace/store/s3/s3_paths.h"
#include "headrace/store/s3/s3_uploads.h"
#include "headrace/store/s3/s3_urls.h"
#include "headrace/store/url_signing.h"

namespace headrace {

// The generation of an object is its ETag, without quotes: listings report nothing better. Reads
// are conditional on it (If-Match), so 412 tells "changed" from 404 "gone".
// Thread: any (immutable, except for what its S3Home learns).
class S3Protocol final : public Protocol {
 public:
  S3Protocol(std::string bucket, std::shared_ptr<S3Home> home, const S3Options& options,
             Root root = Root(), Verify verify = Verify::kCrcs);

  void build_read(HttpRequest& request, std::string_view name, std::string_view generation,
                  std::optional<ByteRange> range) const override;
  ReadFacts read_facts(const ResponseHead& head) const override;
  // Pages begin after a name, not at it, and have no end.
  ListBounds list_bounds() const override { return ListBounds::kLoose; }
  void build_list(HttpRequest& request, const ListRequest& list) const override;
  Result<ColumnPage> parse_list(const Response& response, const ListRequest& list) const override;
  void build_stat(HttpRequest& request, std::string_view name) const override;
  Result<ObjectInfo> parse_stat(const Response& response, std::string_view name) const override;
  void build_write(HttpRequest& request, const WriteRequest& write,
                   std::span<const std::span<const std::byte>> bytes, const SentSums& sums,
                   std::string& scratch) const override;
  Result<ObjectInfo> parse_written(const Response& response, const WriteRequest& write,
                                   uint64_t size_bytes) const override;
  UploadSums first_sums() const override { return first_sums_; }
  Checksum told_sum(const ResponseHead& head, ChecksumKind kind) const override;
  // Where the service does not say that it has encrypted, the ETag may be one.
  Checksum told_md5(const ResponseHead& head) const override;
  // https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html
  Result<void> check_new_name(std::string_view name) const override;
  bool tells_missing_on_removal() const override { return false; }
  void build_remove(HttpRequest& request, std::string_view name,
                    const Precondition& precondition) const override;
  // AWS documents that it keeps to them; of others it is found out.
  const ConditionProof* condition_proof() const override {
    return keeps_conditions_ ? nullptr : &proof_;
  }
  bool looks_before_writes() const override { return looks_before_writes_; }
  const MultipartUploads* multipart() const override { return &multipart_; }
  const Copies* copies() const override { return &copies_; }
  UploadMethod default_upload_method() const override { return UploadMethod::kMultipart; }
  std::span<const OptionalHeaders> optional_headers() const override;
  const UrlSigning* url_signing() const override { return &urls_; }
  std::unique_ptr<Signer> make_signer() const override;
  std::shared_ptr<const Endpoint> moved_to() const override { return home_->moved_to(); }
  // HeadObject and GetObject tell sums only if they are asked to.
  HeaderGroups headers_for_sums() const override { return S3Headers::kChecksumMode; }
  Refusal refusal(const ErrorResponse& response) const override;
  // CompleteMultipartUpload, CopyObject and UploadPartCopy are documented to do so.
  // https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
  std::optional<Refusal> late_refusal(const ErrorResponse& response) const override;
  bool may_send(BodyShape shape) const override {
    return shape == BodyShape::kXml || Protocol::may_send(shape);
  }
  std::string url_of(std::string_view name) const override;

 private:
  const bool compares_etags_;
  const UploadSums first_sums_;
  const std::shared_ptr<S3Home> home_;
  const S3Paths paths_;
  const S3MultipartUploads multipart_;
  const S3Copies copies_;
  const S3Urls urls_;
  const S3ConditionProof proof_;
  const bool looks_before_writes_, keeps_conditions_;
};

// Errors: kInvalidArgument for an endpoint or options that cannot work.
Result<Provider> s3_provider(const Url& url, const StoreOptions& options);

}  // namespace headrace
