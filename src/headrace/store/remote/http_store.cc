#include "headrace/store/remote/http_store.h"

#include <algorithm>

#include "headrace/base/ascii.h"
#include "headrace/store/listing/list_attempt.h"
#include "headrace/store/object_writer.h"
#include "headrace/store/transfer/stat_attempt.h"
#include "headrace/store/writing/multipart_attempts.h"
#include "headrace/store/writing/plain_attempt.h"
#include "headrace/store/writing/server_copy.h"
#include "headrace/store/writing/server_rename.h"
#include "headrace/store/writing/uploads.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {

HttpStore::HttpStore(std::shared_ptr<RemoteRoot> remote, const StoreOptions& options,
                     std::shared_ptr<HttpStore> bucket)
    : remote_(std::move(remote)),
      reader_(std::make_shared<HttpReader>(remote_, options)),
      url_signer_(std::make_shared<UrlSigner>(remote_)),
      bucket_(std::move(bucket)),
      // What comes transformed has no ranges that could be joined.
      join_rules_{
          .max_gap_bytes = remote_->protocol().transforms() ? std::nullopt : options.max_gap_bytes,
          .max_joined_bytes = std::min(kMaxJoinedBytes, options.range_threshold_bytes),
          .verify = options.verify} {}

template <class AttemptType, class... Arguments>
auto HttpStore::run_named(std::string name, Arguments&&... arguments) {
  using T = typename decltype(AttemptType::result)::value_type;
  if (name.empty())
    return refused<T>(Error(Code::kInvalidArgument, kEmptyName).with_url(url_of("")));
  return remote_->run<AttemptType>(std::forward<Arguments>(arguments)...);
}

void HttpStore::read(std::shared_ptr<ReadBatch> batch) {
  const std::shared_ptr<HttpStore> self = shared_from_this();
  if (groups_ && groups_->read(batch, self)) return;
  if (join_ranges(batch, self, join_rules_)) return;
  reader_->read(std::move(batch));
}

uint64_t HttpStore::useful_in_flight() const {
  return groups_ ? groups_->useful_in_flight() : remote_->host().admission.limit();
}

uint64_t HttpStore::useful_ahead() const {
  const uint64_t ahead = remote_->host().admission.useful_ahead();
  return groups_ ? std::max(ahead, 2 * groups_->useful_in_flight()) : ahead;
}

void HttpStore::not_compared(std::string_view name, ChecksumKind kind) {
  remote_->host().log.unverified([&] { return url_of(name); }, kind);
}

// ── Listing ──────────────────────────────────────────────────────────────────────────────────

std::shared_ptr<Pending<ColumnPage>> HttpStore::list(ListRequest request) {
  return remote_->run<ListAttempt>(remote_->temporaries(), std::move(request),
                                   remote_->largest_page_bytes);
}

// As many pages as fit into a quarter of the budget if all are as large as the largest so far.
uint32_t HttpStore::useful_pages_in_flight() const {
  const uint64_t largest_bytes =
      std::max<uint64_t>(1, remote_->largest_page_bytes.load(std::memory_order_relaxed));
  const uint64_t fitting =
      std::max<uint64_t>(2, remote_->engine().pool->budget_bytes() / 4 / largest_bytes);
  return static_cast<uint32_t>(std::min<uint64_t>(
      {remote_->protocol().max_pages_in_flight(), remote_->host().admission.limit(), fitting}));
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::stat(std::string name) {
  return run_named<StatAttempt>(name, name);
}

std::shared_ptr<Pending<UploadsPage>> HttpStore::list_multipart(std::string prefix,
                                                                std::string after_name,
                                                                std::string after_upload_id) {
  return remote_->run<ListMultipartAttempt>(std::move(prefix), std::move(after_name),
                                            std::move(after_upload_id));
}

// ── Writing ──────────────────────────────────────────────────────────────────────────────────

std::shared_ptr<Pending<ObjectInfo>> HttpStore::write(WriteRequest request,
                                                      std::span<const std::byte> bytes) {
  std::string name = request.name;
  return run_named<WriteAttempt>(std::move(name), std::move(request), bytes,
                                 remote_->write_facts());
}

Result<std::shared_ptr<ObjectWriter>> HttpStore::open_writer(WriterOptions options) {
  const std::string url = url_of(options.object.name);
  if (Result<void> good = remote_->protocol().check_new_name(options.object.name); !good) {
    return std::unexpected(std::move(good.error()).with_url(url));
  }
  // Checked before any part is sent, not by the request that publishes them.
  if (!is_printable_ascii(options.object.content_type)) {
    return std::unexpected(HttpRequest::not_printable("content_type").with_url(url));
  }
  if (!is_printable_ascii(options.object.content_encoding)) {
    return std::unexpected(HttpRequest::not_printable("content_encoding").with_url(url));
  }
  Result<std::shared_ptr<Upload>> upload =
      new_upload(remote_, options.method, std::move(options.object));
  if (!upload) return std::unexpected(std::move(upload.error()).with_url(url));
  const EngineResources& engine = remote_->engine();
  return ObjectWriter::open(
      {.pool = engine.pool, .registry = engine.writers, .url = url, .log = engine.log},
      std::move(*upload), options);
}

std::shared_ptr<Pending<bool>> HttpStore::abort_multipart(std::string name, std::string upload_id) {
  return run_named<PlainAttempt>(name, name, abort_of_multipart(name, std::move(upload_id)),
                                 PlainAttempt::Ends::kUpload);
}

std::shared_ptr<Pending<bool>> HttpStore::remove(std::string name, Precondition precondition) {
  return run_named<RemoveAttempt>(name, name, std::move(precondition),
                                  remote_->learned().removal_conditions);
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::copy(CopyRequest request) {
  if (request.name.empty() || request.source_name.empty()) {
    return refused<ObjectInfo>(
        Error(Code::kInvalidArgument, kEmptyName).with_url(url_of(request.name)));
  }
  return copy_object(remote_, bucket(), std::move(request));
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::rename(CopyRequest request) {
  Result<void> good = remote_->protocol().check_new_name(request.name);
  if (request.name.empty() || request.source_name.empty()) good = invalid_argument(kEmptyName);
  if (good && request.name == request.source_name) {
    good = invalid_argument("it has this name already");
  }
  if (!good) {
    return refused<ObjectInfo>(std::move(good.error()).with_url(url_of(request.name)));
  }
  return ServerRename::start(remote_, bucket(), std::move(request));
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::compose(ComposeRequest request) {
  const size_t count = request.sources.size();
  if (count == 0 || count > max_compose_sources()) {
    return refused<ObjectInfo>(
        Error(Code::kInvalidArgument,
              max_compose_sources() == 0
                  ? std::string("objects cannot be composed on this service")
                  : cat("it cannot be composed of ", count, " objects: 1 to ",
                        max_compose_sources(), " are allowed"))
            .with_url(url_of(request.name)));
  }
  std::string name = request.name;
  return run_named<ComposeAttempt>(std::move(name), std::move(request));
}

}  // namespace headrace
