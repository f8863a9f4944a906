// A store that is reached over HTTP: finds the attempt that does what is asked.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/store/batch_gets.h"
#include "headrace/store/composing.h"
#include "headrace/store/join_ranges.h"
#include "headrace/store/object_store.h"
#include "headrace/store/reading/grouped_reads.h"
#include "headrace/store/reading/http_reader.h"
#include "headrace/store/remote/url_signer.h"
#include "headrace/store/transfer/remote_root.h"

namespace headrace {

// Thread: any.
class HttpStore final : public ObjectStore, public std::enable_shared_from_this<HttpStore> {
 public:
  // `bucket`: the store at the root of the bucket, which reads what is stored; null: this one.
  HttpStore(std::shared_ptr<RemoteRoot> remote, const StoreOptions& options,
            std::shared_ptr<HttpStore> bucket);
  // From now on. Before anybody else has the store; `groups` do not own it.
  void read_in_groups(std::shared_ptr<GroupedReads> groups) { groups_ = std::move(groups); }

  void read(std::shared_ptr<ReadBatch> batch) override;
  std::shared_ptr<Pending<ColumnPage>> list(ListRequest request) override;
  std::shared_ptr<Pending<ObjectInfo>> stat(std::string name) override;
  std::shared_ptr<Pending<ObjectInfo>> write(WriteRequest request,
                                             std::span<const std::byte> bytes) override;
  Result<std::shared_ptr<ObjectWriter>> open_writer(WriterOptions options) override;
  std::shared_ptr<Pending<UploadsPage>> list_multipart(std::string prefix, std::string after_name,
                                                       std::string after_upload_id) override;
  std::shared_ptr<Pending<bool>> abort_multipart(std::string name, std::string upload_id) override;
  std::shared_ptr<Pending<bool>> remove(std::string name, Precondition precondition) override;
  std::shared_ptr<Pending<ObjectInfo>> copy(CopyRequest request) override;
  std::shared_ptr<Pending<ObjectInfo>> rename(CopyRequest request) override;
  std::shared_ptr<Pending<ObjectInfo>> compose(ComposeRequest request) override;
  std::shared_ptr<Pending<std::string>> presigned_url(UrlRequest request) override {
    return url_signer_->presigned_url(std::move(request));
  }
  const std::shared_ptr<RemoteRoot>& remote() const { return remote_; }
  uint32_t max_compose_sources() const override {
    const Composing* composing = remote_->protocol().composing();
    return composing != nullptr ? composing->max_sources() : 0;
  }
  std::optional<SumLevel> written_sums(bool in_parts) const override {
    return remote_->written_sums(in_parts);
  }
  bool tells_sums() const override { return remote_->tells_sums(); }
  std::string url_of(std::string_view name) const override { return remote_->url_of(name); }
  uint64_t expected_object_bytes() const override { return reader_->expected_object_bytes(); }
  uint64_t useful_in_flight() const override;
  uint64_t useful_ahead() const override;
  uint32_t useful_pages_in_flight() const override;
  std::shared_ptr<BlockPool> pool() const override { return remote_->engine().pool; }
  void expect_reads(uint32_t count) override { reader_->expect_reads(count); }
  void not_compared(std::string_view name, ChecksumKind kind) override;

 private:
  // The attempt's outcome; the refusal of an empty name, which no store allows.
  template <class AttemptType, class... Arguments>
  auto run_named(std::string name, Arguments&&... arguments);
  std::shared_ptr<HttpStore> bucket() { return bucket_ ? bucket_ : shared_from_this(); }

  const std::shared_ptr<RemoteRoot> remote_;
  const std::shared_ptr<HttpReader> reader_;
  const std::shared_ptr<UrlSigner> url_signer_;
  const std::shared_ptr<HttpStore> bucket_;
  const JoinRules join_rules_;
  std::shared_ptr<GroupedReads> groups_;  // null: none
};

}  // namespace headrace
