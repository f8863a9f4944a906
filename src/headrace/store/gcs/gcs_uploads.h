// How objects get to Google Cloud Storage other than by one request.
#pragma once

#include <optional>
#include <string>

#include "headrace/store/composing.h"
#include "headrace/store/copies.h"
#include "headrace/store/gcs/gcs_paths.h"
#include "headrace/store/multipart_uploads.h"
#include "headrace/store/protocol.h"
#include "headrace/store/resumable_uploads.h"

namespace headrace {

// https://cloud.google.com/storage/docs/json_api/v1/objects/compose
// Thread: any (immutable). Borrows the paths.
class GcsComposing final : public Composing {
 public:
  explicit GcsComposing(const GcsPaths& paths) : paths_(paths) {}
  uint32_t max_sources() const override { return 32; }
  void build_compose(HttpRequest& request, const ComposeRequest& compose,
                     std::string& scratch) const override;
  Result<ObjectInfo> parse_composed(const Response& response) const override;

 private:
  const GcsPaths& paths_;
};

// https://cloud.google.com/storage/docs/json_api/v1/objects/rewrite
// Thread: any (immutable). Borrows the paths.
class GcsCopies final : public Copies {
 public:
  explicit GcsCopies(const GcsPaths& paths) : paths_(paths) {}
  bool is_conditional() const override { return true; }
  void build_copy(HttpRequest& request, const CopyRequest& copy,
                  std::string_view token) const override;
  Result<CopyStep> parse_copy(const Response& response) const override;
  const PartCopies* in_parts() const override { return nullptr; }

 private:
  const GcsPaths& paths_;
};

// By the XML API, which takes no conditions for multipart uploads.
// https://cloud.google.com/storage/docs/multipart-uploads
// Thread: any (immutable). Borrows the paths.
class GcsMultipartUploads final : public MultipartUploads {
 public:
  explicit GcsMultipartUploads(const GcsPaths& paths) : paths_(paths) {}
  bool is_conditional() const override { return false; }
  void build_start(HttpRequest& request, const WriteRequest& write, SumLevel level) const override;
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
  const GcsPaths& paths_;
};

// https://cloud.google.com/storage/docs/performing-resumable-uploads
// Thread: any (immutable). Borrows the paths.
class GcsResumableUploads final : public ResumableUploads {
 public:
  explicit GcsResumableUploads(const GcsPaths& paths) : paths_(paths) {}
  void build_start(HttpRequest& request, const WriteRequest& write,
                   std::string& scratch) const override;
  std::string session(const ResponseHead& head) const override;
  void build_put(HttpRequest& request, const ResumablePut& put) const override;
  uint64_t received_bytes(const ResponseHead& head) const override;
  void build_cancel(HttpRequest& request, std::string_view session) const override;

 private:
  const GcsPaths& paths_;
};

}  // namespace headrace
