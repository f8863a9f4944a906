// Multipart uploads to S3.
#pragma once

#include <optional>
#include <string>

#include "headrace/store/copies.h"
#include "headrace/store/multipart_uploads.h"
#include "headrace/store/protocol.h"
#include "headrace/store/s3/s3_paths.h"

namespace headrace {

// Completing takes conditions, so an upload makes the object itself. Every part's sum is sent with
// the part, and that of the whole object with the completion where the service has said that it
// keeps one (FULL_OBJECT). A service that knows only composite sums takes no type.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html
// Thread: any (immutable). Borrows the paths.
class S3MultipartUploads final : public MultipartUploads {
 public:
  S3MultipartUploads(const S3Paths& paths, std::optional<bool> equal_parts)
      : paths_(paths), equal_parts_(equal_parts) {}
  bool is_conditional() const override { return true; }
  std::optional<bool> has_equal_parts() const override { return equal_parts_; }
  bool wants_equal_parts(const Error& refusal) const override;
  void build_start(HttpRequest& request, const WriteRequest& write, SumLevel level) const override;
  AnnouncedSum announced_sum(const ResponseHead& head, SumLevel level) const override;
  void build_part(HttpRequest& request, std::string_view name, std::string_view upload_id,
                  uint32_t part_number, std::span<const std::span<const std::byte>> bytes,
                  const SentSums& sums) const override;
  void build_complete(HttpRequest& request, const MultipartCompletion& completion,
                      std::string& scratch) const override;
  void build_abort(HttpRequest& request, std::string_view name,
                   std::string_view upload_id) const override;
  void build_list(HttpRequest& request, std::string_view prefix, std::string_view after_name,
                  std::string_view after_upload_id) const override;

 private:
  const S3Paths& paths_;
  const std::optional<bool> equal_parts_;
};

// CopyObject takes sources up to 5 GiB; UploadPartCopy takes a range of any. The upload names no
// algorithm of checksums: some servers then refuse parts that are copied (MinIO), and AWS adds one
// of its own.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/CopyingObjectsMPUapi.html
// Thread: any (immutable). Borrows the paths.
class S3PartCopies final : public PartCopies {
 public:
  explicit S3PartCopies(const S3Paths& paths) : paths_(paths) {}
  // All that CopyObject would keep.
  ObjectMetadata metadata(const ResponseHead& head) const override;
  void build_start(HttpRequest& request, std::string_view name,
                   const ObjectMetadata& metadata) const override;
  void build_part(HttpRequest& request, const CopiedPart& part) const override;
  Result<SentPart> parse_part(const Response& response, uint32_t part_number) const override;

 private:
  const S3Paths& paths_;
};

// Thread: any (immutable). Borrows the paths.
class S3Copies final : public Copies {
 public:
  explicit S3Copies(const S3Paths& paths) : paths_(paths), in_parts_(paths) {}
  bool is_conditional() const override { return false; }
  void build_copy(HttpRequest& request, const CopyRequest& copy,
                  std::string_view token) const override;
  Result<CopyStep> parse_copy(const Response& response) const override;
  const PartCopies* in_parts() const override { return &in_parts_; }

 private:
  const S3Paths& paths_;
  const S3PartCopies in_parts_;
};

}  // namespace headrace
