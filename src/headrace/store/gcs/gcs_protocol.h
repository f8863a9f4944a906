// Google Cloud Storage by its JSON API.
// https://cloud.google.com/storage/docs/json_api/v1
#pragma once

#include <memory>
#include <string>

#include "headrace/store/composing.h"
#include "headrace/store/copies.h"
#include "headrace/store/gcs/gcs_paths.h"
#include "headrace/store/gcs/gcs_uploads.h"
#include "headrace/store/multipart_uploads.h"
#include "headrace/store/protocol.h"
#include "headrace/store/resumable_uploads.h"

namespace headrace {

// Reads are conditional on the listed generation (ifGenerationMatch), not addressed to it
// (generation=): 412 then tells "changed" from 404 "gone", in buckets without versions too.
// Accept-Encoding: gzip is always sent, so that objects stored as gzip arrive as they are stored:
// the only form whose length and checksum the service reports.
// Thread: any (immutable).
class GcsProtocol final : public Protocol {
 public:
  GcsProtocol(std::string bucket, const std::string& user_project, Root root = Root());

  void build_read(HttpRequest& request, std::string_view name, std::string_view generation,
                  std::optional<ByteRange> range) const override;
  ReadFacts read_facts(const ResponseHead& head) const override;
  // Answers of the XML API tell it.
  Checksum told_sum(const ResponseHead& head, ChecksumKind kind) const override;
  ChecksumKind sum_told_with_parts() const override { return ChecksumKind::kCrc32c; }
  ListBounds list_bounds() const override { return ListBounds::kExact; }
  void build_list(HttpRequest& request, const ListRequest& list) const override;
  Result<ColumnPage> parse_list(const Response& response, const ListRequest& list) const override;
  void build_stat(HttpRequest& request, std::string_view name) const override;
  Result<ObjectInfo> parse_stat(const Response& response, std::string_view name) const override;
  void build_write(HttpRequest& request, const WriteRequest& write,
                   std::span<const std::span<const std::byte>> bytes, const SentSums& sums,
                   std::string& scratch) const override;
  Result<ObjectInfo> parse_written(const Response& response, const WriteRequest& write,
                                   uint64_t size_bytes) const override;
  // https://cloud.google.com/storage/docs/objects#naming
  Result<void> check_new_name(std::string_view name) const override;
  void build_remove(HttpRequest& request, std::string_view name,
                    const Precondition& precondition) const override;
  const Composing* composing() const override { return &composing_; }
  const Copies* copies() const override { return &copies_; }
  const MultipartUploads* multipart() const override { return &multipart_; }
  const ResumableUploads* resumable() const override { return &resumable_; }
  UploadMethod default_upload_method() const override { return UploadMethod::kParts; }
  std::unique_ptr<Signer> make_signer() const override;
  Refusal refusal(const ErrorResponse& response) const override;
  std::optional<Refusal> late_refusal(const ErrorResponse& response) const override;
  bool may_send(BodyShape shape) const override {
    return shape == BodyShape::kJson || Protocol::may_send(shape);
  }
  std::string url_of(std::string_view name) const override;

 private:
  const GcsPaths paths_;
  const GcsComposing composing_;
  const GcsCopies copies_;
  const GcsMultipartUploads multipart_;
  const GcsResumableUploads resumable_;
};

// Errors: kInvalidArgument for an endpoint or options that cannot work.
Result<Provider> gcs_provider(const Url& url, const StoreOptions& options);

}  // namespace headrace
