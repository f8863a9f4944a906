// Any store that is reached over HTTP: knows what to do, while its Protocol knows how to say it.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/gate.h"
#include "headrace/base/thread_pool.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/store/object_store.h"
#include "headrace/store/protocol.h"
#include "headrace/store/reading/join_ranges.h"
#include "headrace/store/reading/read_attempt.h"
#include "headrace/store/temporary_names.h"
#include "headrace/store/transfer/host.h"
#include "headrace/store/transfer/operation.h"
#include "headrace/store/writing/append_attempts.h"
#include "headrace/store/writing/multipart_attempts.h"
#include "headrace/store/writing/resumable_attempts.h"
#include "headrace/store/writing/upload.h"

namespace headrace {

class WriterRegistry;

// What the engine lends to a store. Outlives it.
struct EngineResources {
  std::shared_ptr<Gate> gate;
  std::vector<std::shared_ptr<IoThread>> io_threads;
  std::shared_ptr<BlockPool> pool;
  std::shared_ptr<WriterRegistry> writers;
  std::shared_ptr<Log> log;
  // For computing (decompressing), away from the I/O threads.
  std::shared_ptr<ThreadPool> compute;
  // Decompressions that wait for memory. A batch that somebody waits for wakes them.
  mutable std::atomic<uint32_t> decompressions_waiting = 0;
  mutable std::atomic<bool> stopping = false;
};

// If the root is not the bucket itself, or what is read is not what is stored, `bucket` is the
// store at the root of the bucket, which reads what is stored. Thread: any, except that only lanes
// call read_piece() and piece_failed().
class HttpStore final : public ObjectStore,
                        public PieceReader,
                        public std::enable_shared_from_this<HttpStore> {
 public:
  // The host of another endpoint, with this store's options. Hosts live as long as the engine.
  using Reach = std::function<Result<std::shared_ptr<Host>>(const Endpoint&)>;

  HttpStore(std::shared_ptr<const EngineResources> engine, std::shared_ptr<Host> host,
            std::shared_ptr<Pace> pace, std::unique_ptr<const Protocol> protocol,
            const StoreOptions& options, const Reach& reach,
            std::shared_ptr<HttpStore> bucket = nullptr);
  ~HttpStore() override;

  void read(std::shared_ptr<ReadBatch> batch) override;
  std::shared_ptr<Pending<ObjectPage>> list(ListRequest request) override;
  std::shared_ptr<Pending<ColumnPage>> list_columns(ListRequest request) override;
  std::shared_ptr<Pending<ObjectInfo>> stat(std::string name) override;
  std::shared_ptr<Pending<ObjectInfo>> write(WriteRequest request,
                                             std::span<const std::byte> bytes) override;
  // The same for bytes in several places whose checksum is already known.
  std::shared_ptr<Pending<ObjectInfo>> write_part(WriteRequest request,
                                                  std::shared_ptr<const UploadPart> part);
  // Multipart uploads: the id of a new one; one part of it; all parts as one object.
  // With `copied`, parts are copied from an object that has this metadata.
  std::shared_ptr<Pending<std::string>> start_multipart(WriteRequest request,
                                                        std::shared_ptr<SumLadder> sums,
                                                        std::optional<ObjectMetadata> copied = {});
  std::shared_ptr<Pending<SentPart>> send_part(std::string name, std::string upload_id,
                                               std::shared_ptr<const UploadPart> part,
                                               std::shared_ptr<SumLadder> sums);
  // The sums of a new upload, or of a write by one request, from what is known of the bucket.
  std::shared_ptr<SumLadder> part_sums();
  std::shared_ptr<SumLadder> write_sums();
  std::shared_ptr<Pending<SentPart>> copy_part(CopyRequest request, std::string upload_id,
                                               std::shared_ptr<const UploadPart> part);
  std::shared_ptr<Pending<ObjectInfo>> complete_multipart(std::string name, std::string upload_id,
                                                          std::vector<SentPart> parts,
                                                          uint64_t size_bytes, WholeSums sums,
                                                          Precondition precondition);
  // Whether the server sums objects by XXH64.
  bool tells_xxh64() const {
    const Protocol& stored = bucket_ ? *bucket_->protocol_ : *protocol_;
    return stored.sum_told_with_parts() == ChecksumKind::kXxh64;
  }
  // Streams of pieces, by the names of temporary objects: adds one, ends it.
  std::shared_ptr<Pending<std::string>> append_part(std::string name, std::string handle,
                                                    std::shared_ptr<const UploadPart> part);
  std::shared_ptr<Pending<bool>> flush_append(std::string name, std::string handle);
  // A rename by one request, of a source that was looked at; whether there is such a request.
  std::shared_ptr<Pending<ObjectInfo>> rename_at_once(CopyRequest request, ObjectInfo source);
  bool renames_at_once(const ObjectInfo& source, std::string_view name) const;
  // Gives an object that is there the type and the encoding of this one; whether it has to be, as
  // it was found: where uploads do not tell them, it has none, or those of what it has replaced.
  std::shared_ptr<Pending<bool>> describe(std::string name, const WriteRequest& like);
  bool has_to_describe(const ObjectInfo& found, const WriteRequest& like) const {
    return protocol_->describing() != nullptr && (found.content_type != like.content_type ||
                                                  found.content_encoding != like.content_encoding);
  }
  bool copies() const { return protocol_->copies(); }
  // By the provider's usual method.
  std::shared_ptr<Upload> new_upload(WriteRequest target);
  // Completes once the map of the cluster is known, or cannot be fetched.
  std::shared_ptr<Pending<bool>> know_map();
  // A name that begins with `stem`, and that the host of `name` has, too; "" without a map.
  std::string name_beside(const std::string& stem, std::string_view name) const;
  bool are_together(std::string_view a, std::string_view b) const;
  bool moves_to(std::string_view name) const { return protocol_->appends()->moves_to(name); }
  // Whether the server has turned out to have multipart uploads.
  void note_multipart(bool there);
  bool lacks_multipart(const Error& refusal) const {
    return protocol_->appends()->lacks_multipart(refusal);
  }
  bool multipart_bounds_parts() const { return protocol_->multipart()->bounds_parts(); }
  // Whether all parts but the last must have one size, as far as it is known.
  bool has_equal_parts() const {
    return protocol_->multipart()->has_equal_parts().value_or(
        learned_->unequal_parts.at(std::chrono::steady_clock::now()) ==
        Learned::Treatment::kRefused);
  }
  // The same error, or one that says what the next upload will do about it.
  Error learn_from_refusal(Error error);
  // A copy by one request; and its source, for those who have to know its size before.
  std::shared_ptr<Pending<ObjectInfo>> copy_at_once(CopyRequest request,
                                                    std::optional<ObjectInfo> source);
  std::shared_ptr<Pending<CopySource>> look_at_source(std::string name);
  // A copy of a source that was looked at.
  std::shared_ptr<Pending<ObjectInfo>> copy_from(CopyRequest request, CopySource source);
  // Resumable uploads: a session; some of its stream; its end.
  std::shared_ptr<Pending<std::string>> start_resumable(WriteRequest request);
  std::shared_ptr<Pending<ObjectInfo>> send_stream(StreamPiece piece);
  std::shared_ptr<Pending<bool>> cancel_resumable(std::string name, std::string session);
  Result<std::shared_ptr<ObjectWriter>> open_writer(WriterOptions options) override;
  std::shared_ptr<Pending<UploadsPage>> list_multipart(std::string prefix, std::string after_name,
                                                       std::string after_upload_id) override;
  std::shared_ptr<Pending<bool>> abort_multipart(std::string name, std::string upload_id) override;
  std::shared_ptr<Pending<bool>> remove(std::string name, Precondition precondition) override;
  std::shared_ptr<Pending<ObjectInfo>> copy(CopyRequest request) override;
  std::shared_ptr<Pending<ObjectInfo>> rename(CopyRequest request) override;
  std::shared_ptr<Pending<ObjectInfo>> compose(ComposeRequest request) override;
  std::shared_ptr<Pending<std::string>> presigned_url(UrlRequest request) override;
  // Many targets by one request; null: there are no such requests, as far as the provider knows.
  const BatchGets* batch_gets() const { return protocol_->batch_gets(); }
  BatchGetRecord& batch_get_record() { return host_->batch_gets; }
  std::shared_ptr<Pending<bool>> get_batch(std::shared_ptr<BatchGet> get);
  uint32_t max_compose_sources() const override {
    const Composing* composing = protocol_->composing();
    return composing != nullptr ? composing->max_sources() : 0;
  }
  // The same bucket by full names, for temporary objects, which lie outside the root, and for what
  // is read to be written elsewhere: it reads what is stored, and transforms nothing.
  std::shared_ptr<HttpStore> bucket() { return bucket_ ? bucket_ : shared_from_this(); }
  const Root& root() const { return protocol_->root(); }
  const TemporaryNames& temporaries() const { return temporaries_; }
  const WriteLimits& write_limits() const { return write_limits_; }
  std::optional<SumLevel> written_sums(bool in_parts) const override;
  std::string url_of(std::string_view name) const override { return protocol_->url_of(name); }
  uint64_t expected_object_bytes() const override {
    const uint64_t mean = host_->reads.mean_object_bytes();
    return mean > 0 ? mean : kFirstGuessBytes;
  }
  uint64_t useful_in_flight() const override { return host_->admission.limit(); }
  uint64_t useful_ahead() const override { return host_->admission.useful_ahead(); }
  uint32_t useful_pages_in_flight() const override;
  std::shared_ptr<BlockPool> pool() const override { return engine_->pool; }
  void expect_reads(uint32_t count) override;
  void not_compared(std::string_view name, ChecksumKind kind) override;

  awaitable<void> read_piece(Slot& slot, ReadPiece& piece, HttpRequest& request) override;
  void piece_failed(HostLane& lane, ReadPiece& piece, Error error) override;
  const std::shared_ptr<Pace>& pace() const override { return pace_; }

 private:
  static constexpr uint64_t kFirstGuessBytes = 256 * kKiB;

  bool copies_at_once() const { return protocol_->part_copies() == nullptr && protocol_->copies(); }
  // Null if the provider has no such uploads.
  std::shared_ptr<Upload> make_upload(UploadMethod method, WriteRequest target);
  void on_wait_or_cancel(const std::shared_ptr<ReadBatch>& batch);
  void spread(HostLane& lane, ReadPiece* pieces);
  void fail_all(HostLane& lane, ReadPiece* first, const Error& error);
  // Back into the queue until there is room.
  void defer(HostLane& lane, ReadPiece& piece);
  Result<void> prepare(HostLane& lane, ReadSlot& slot, ReadPiece& lead);
  void piece_done(HostLane& lane, ReadPiece& piece);
  void slot_done(HostLane& lane, ReadBatch& batch, ReadSlot& slot);
  bool should_restart(const ReadSlot& slot) const;
  void give_up(HostLane& lane, ReadBatch& batch, ReadSlot& slot, bool stops);
  void conclude(HostLane& lane, ReadBatch& batch, ReadSlot& slot, const Checksum& sum);
  Result<void> verify(const ReadBatch& batch, ReadSlot& slot, const Checksum& sum,
                      Metrics& metrics);
  void decompress(std::shared_ptr<ReadBatch> batch, ReadSlot& slot);
  Result<Block> plain_memory(ReadBatch& batch, ReadSlot& slot);

  std::shared_ptr<SumLadder> sums_from(SumsRecord& record);
  // Runs the attempt that `make_attempt` makes on one of the I/O threads. `named` is false if the
  // name is empty, which no store allows.
  template <class T, class MakeAttempt>
  std::shared_ptr<Pending<T>> start(std::string url, bool named, MakeAttempt make_attempt);
  // Runs what `prepare` returns, a coroutine function, on one of the I/O threads.
  template <class T, class Prepare>
  std::shared_ptr<Pending<T>> spawn(std::string url, bool named, Prepare prepare);
  std::shared_ptr<Pending<std::string>> sign_url(UrlRequest request);
  // The map of the cluster, for all stores that use this host.
  void fetch_map();
  static awaitable<void> run_map_fetch(std::shared_ptr<HttpStore> self, HostLane& lane,
                                       std::shared_ptr<Gate::Pass> pass);
  static awaitable<void> run_signing(std::shared_ptr<HttpStore> self, HostLane& lane,
                                     UrlRequest request,
                                     std::shared_ptr<Pending<std::string>> pending,
                                     std::shared_ptr<Gate::Pass> pass);
  template <class T, class AttemptType>
  static awaitable<void> run(std::shared_ptr<HttpStore> self, HostLane& lane,
                             std::shared_ptr<AttemptType> attempt,
                             std::shared_ptr<Pending<T>> pending, std::shared_ptr<Gate::Pass> pass);

  const std::shared_ptr<const EngineResources> engine_;
  const std::shared_ptr<Host> host_;
  const std::shared_ptr<Pace> pace_;  // of the root
  const std::unique_ptr<const Protocol> protocol_;
  const std::shared_ptr<HttpStore> bucket_;  // null: this one
  const std::shared_ptr<LearnedOfBucket> learned_;
  const TemporaryNames temporaries_;
  const ReadRules rules_;
  const JoinRules join_rules_;
  const OnChange on_change_;
  const WriteLimits write_limits_;
  std::vector<std::unique_ptr<StoreContext>> contexts_;  // one per I/O thread
  std::atomic<uint32_t> next_lane_ = 0;
  std::atomic<bool> place_asked_ = false;         // for signed URLs
  std::atomic<uint64_t> largest_page_bytes_ = 0;  // responses to listings
};

}  // namespace headrace
