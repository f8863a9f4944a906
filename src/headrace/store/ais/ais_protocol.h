// AIStore, in its own dialect.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "headrace/store/ais/ais_batch_gets.h"
#include "headrace/store/ais/ais_paths.h"
#include "headrace/store/ais/ais_placement.h"
#include "headrace/store/ais/ais_uploads.h"
#include "headrace/store/appends.h"
#include "headrace/store/batch_gets.h"
#include "headrace/store/copies.h"
#include "headrace/store/multipart_uploads.h"
#include "headrace/store/placement.h"
#include "headrace/store/protocol.h"

namespace headrace {

// Of its own buckets AIStore makes pages of any size, and the fewer there are, the less it walks.
inline constexpr uint32_t kAisNamesOnAPage = ColumnPage::kMaxEntries;
// No cloud has larger ones.
inline constexpr uint32_t kNamesOnACloudsPage = 1000;

// The generation of an object is its version and its checksum: versions count from 1 again when an
// object is deleted and written anew. No request of AIStore is conditional, so every answer is
// compared instead, and writes look at their target before.
// Thread: any (immutable).
class AisProtocol final : public Protocol {
 public:
  AisProtocol(const Url& url, bool tls, const AisOptions& options, Root root = Root());

  void build_read(HttpRequest& request, std::string_view name, std::string_view generation,
                  std::optional<ByteRange> range) const override;
  void build_member_read(HttpRequest& request, std::string_view name,
                         std::string_view member) const override;
  ReadFacts read_facts(const ResponseHead& head) const override;
  ChecksumKind sum_told_with_parts() const override {
    return transforms() ? ChecksumKind::kNone : ChecksumKind::kXxh64;
  }
  bool transforms() const override { return !paths_.etl_parameters().empty(); }
  // Pages begin after a name, and have no end.
  ListBounds list_bounds() const override { return ListBounds::kLoose; }
  void build_list(HttpRequest& request, const ListRequest& list) const override {
    const uint32_t most = list.delimiter.empty() ? list.max_results : 0;
    build_list(request, list, is_remote_ ? std::min(most, kNamesOnACloudsPage) : kAisNamesOnAPage);
  }
  // `page_names`: on a page, at most; 0: as many as the server likes.
  void build_list(HttpRequest& request, const ListRequest& list, uint32_t page_names) const;
  Result<ColumnPage> parse_list(const Response& response, const ListRequest& list) const override;
  // Entries as they are.
  Result<ColumnPage> parse_entries(const Response& response) const;
  // Makes what the request asks for of a whole page of them.
  ColumnPage shape(ColumnPage page, const ListRequest& list) const;
  std::unique_ptr<LongPage> long_page(const ListRequest& list) const override;
  // A page from the middle costs the targets as much as all pages before it.
  uint32_t max_pages_in_flight() const override { return 1; }
  void build_stat(HttpRequest& request, std::string_view name) const override;
  Result<ObjectInfo> parse_stat(const Response& response, std::string_view name) const override;
  void build_write(HttpRequest& request, const WriteRequest& write,
                   std::span<const std::span<const std::byte>> bytes, const SentSums& sums,
                   std::string& scratch) const override;
  Result<ObjectInfo> parse_written(const Response& response, const WriteRequest& write,
                                   uint64_t size_bytes) const override;
  // A server that has the same bytes already, by their sum, says nothing but that all is well.
  bool tells_written(const ResponseHead& head) const override;
  Result<void> check_new_name(std::string_view name) const override;
  void build_remove(HttpRequest& request, std::string_view name,
                    const Precondition& precondition) const override;
  bool looks_before_writes() const override { return true; }
  // It copies one object by its own dialect only from 5.0 on, and servers before would take such a
  // request for a write of nothing.
  const Copies* copies() const override { return nullptr; }
  const MultipartUploads* multipart() const override { return &multipart_; }
  const Appends* appends() const override { return &appends_; }
  const Describing* describing() const override { return &describing_; }
  UploadMethod default_upload_method() const override { return UploadMethod::kMultipart; }
  const Placement* placement() const override { return &placement_; }
  // They get objects as they are stored.
  const BatchGets* batch_gets() const override { return transforms() ? nullptr : &batch_gets_; }
  std::unique_ptr<Signer> make_signer() const override;
  Refusal refusal(const ErrorResponse& response) const override;
  std::string url_of(std::string_view name) const override;

 private:
  // The token of what comes after a name, on the page that has this token or later.
  std::string token_after(std::string_view name, std::string_view page_token) const;
  std::string_view after(std::string_view page_token) const;

  const AisPaths paths_;
  const AisPlacement placement_;
  const AisMultipartUploads multipart_;
  const AisDescribing describing_;
  const AisAppends appends_;
  const AisBatchGets batch_gets_;
  const bool tls_;        // of the endpoint
  const bool is_remote_;  // the bucket is another service's. Such are not listed from a name on
};

// Errors: kInvalidArgument for an endpoint, a root or options that cannot work.
Result<Provider> ais_provider(const Url& url, const StoreOptions& options);

}  // namespace headrace
