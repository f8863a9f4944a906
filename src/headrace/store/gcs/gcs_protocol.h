// Google Cloud Storage by its JSON API.
// https://cloud.google.com/storage/docs/json_api/v1
#pragma once

#include <string>

#include "headrace/store/protocol.h"

namespace headrace {

// Reads are conditional on the listed generation (ifGenerationMatch), not addressed to it
// (generation=): 412 then tells "changed" from 404 "gone", in buckets without versions too.
// Accept-Encoding: gzip is always sent, so that objects stored as gzip arrive as they are stored:
// the only form whose length and checksum the service reports.
// Thread: any (immutable).
class GcsProtocol final : public Protocol {
 public:
  GcsProtocol(std::string bucket, std::string user_project, Root root = Root());

  void build_read(HttpRequest& request, std::string_view name, std::string_view generation,
                  std::optional<ByteRange> range) const override;
  ReadFacts read_facts(const ResponseHead& head) const override;
  void build_list(HttpRequest& request, const ListRequest& list) const override;
  Result<ObjectPage> parse_objects(std::string_view body) const override;
  Result<ColumnPage> parse_columns(std::string_view body) const override;
  void build_stat(HttpRequest& request, std::string_view name) const override;
  Result<ObjectInfo> parse_object(std::string_view body) const override;
  void build_write(HttpRequest& request, const WriteRequest& write,
                   std::span<const std::span<const std::byte>> bytes, Crc32c crc32c,
                   std::string& scratch) const override;
  // https://cloud.google.com/storage/docs/objects#naming
  Result<void> check_new_name(std::string_view name) const override;
  void build_remove(HttpRequest& request, std::string_view name,
                    const Precondition& precondition) const override;
  void build_copy(HttpRequest& request, const CopyRequest& copy,
                  std::string_view token) const override;
  Result<CopyStep> parse_copy(std::string_view body) const override;
  // https://cloud.google.com/storage/docs/json_api/v1/objects/compose
  uint32_t max_compose_sources() const override { return 32; }
  void build_compose(HttpRequest& request, const ComposeRequest& compose,
                     std::string& scratch) const override;
  // https://cloud.google.com/storage/docs/xml-api/post-object-multipart
  void build_multipart_start(HttpRequest& request, const WriteRequest& write) const override;
  void build_multipart_part(HttpRequest& request, std::string_view name, std::string_view upload_id,
                            uint32_t part_number, std::span<const std::span<const std::byte>> bytes,
                            Crc32c crc32c) const override;
  void build_multipart_complete(HttpRequest& request, std::string_view name,
                                std::string_view upload_id,
                                std::string_view completion) const override;
  void build_multipart_abort(HttpRequest& request, std::string_view name,
                             std::string_view upload_id) const override;
  void build_multipart_list(HttpRequest& request, std::string_view prefix,
                            std::string_view after_name,
                            std::string_view after_upload_id) const override;
  // https://cloud.google.com/storage/docs/performing-resumable-uploads
  void build_resumable_start(HttpRequest& request, const WriteRequest& write,
                             std::string& scratch) const override;
  std::string resumable_session(const ResponseHead& head) const override;
  void build_resumable_put(HttpRequest& request, const ResumablePut& put) const override;
  uint64_t resumable_bytes(const ResponseHead& head) const override;
  void build_resumable_cancel(HttpRequest& request, std::string_view session) const override;
  Error to_error(const ErrorResponse& refusal) const override;
  std::string url_of(std::string_view name) const override;

 private:
  // Append a name below the root: to a path, as a parameter (omitted if both are empty), or as a
  // JSON string.
  void append_path(std::string& target, std::string_view name) const;
  void append_below(std::string& target, std::string_view parameter, std::string_view name) const;
  std::string quoted(std::string_view name) const;
  // The XML API: "/<bucket>/<name>?<what>", with the project that is billed.
  void begin_xml(HttpRequest& request, std::string_view method, std::string_view name,
                 std::string_view what) const;

  const std::string bucket_;
  const std::string objects_path_;  // "/storage/v1/b/<bucket>/o"
  const std::string root_path_;     // the root, encoded for paths: once for all requests
  const std::string user_project_;  // "&userProject=...", or ""
  const std::string xml_project_;   // the project's name alone
};

}  // namespace headrace
