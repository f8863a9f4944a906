#include "headrace/store/writing/append_upload.h"

#include <utility>

#include "headrace/store/appends.h"
#include "headrace/store/transfer/retry.h"
#include "headrace/store/transfer/stat_attempt.h"
#include "headrace/store/writing/append_attempts.h"
#include "headrace/store/writing/plain_attempt.h"
#include "headrace/store/writing/rename_attempt.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {

AppendUpload::AppendUpload(const std::shared_ptr<RemoteRoot>& remote, WriteRequest target,
                           IoThread& thread)
    : HttpUpload(remote, std::move(target), thread) {}

std::string AppendUpload::full_target() const { return remote_->root().full_name(target_.name); }

awaitable<Result<void>> AppendUpload::choose_name() {
  Result<bool> known = co_await request(bucket_->know_map());
  if (known) {
    temporary_ =
        bucket_->name_beside(cat(new_temporary_prefix(*remote_), "stream-"), full_target());
    if (temporary_.empty()) known = fail(Code::kUnavailable, "the cluster has no target for it");
  }
  if (!known) co_return std::unexpected(with_url(std::move(known.error())));
  co_return Result<void>();
}

awaitable<Result<void>> AppendUpload::send_part(Outgoing outgoing) {
  const uint32_t number = outgoing.part->part_number;
  if (Result<void> waited = co_await wait_for_turn(number); !waited) co_return waited;
  const Turn turn(*this);
  if (!error_ && temporary_.empty()) {
    if (Result<void> named = co_await choose_name(); !named) error_ = std::move(named.error());
  }
  if (error_) co_return std::unexpected(*error_);
  for (const std::span<const std::byte> span : outgoing.part->spans) sum_.extend(span);
  Result<std::string> handle =
      co_await request(bucket_->run<AppendAttempt>(temporary_, handle_, std::move(outgoing.part)));
  if (handle) {
    handle_ = std::move(*handle);
    co_return Result<void>();
  }
  const bool is_final = !is_retryable(handle.error());
  error_ = in_part(number,
                   std::move(handle.error())
                       .with_words("", is_final ? ""
                                                : "; a piece of a stream cannot be sent twice, so "
                                                  "the object has to be written again"));
  co_return std::unexpected(*error_);
}

// It may be repeated: that the stream has ended, and once, is found out from the object.
std::shared_ptr<Pending<bool>> AppendUpload::flush() {
  return bucket_->run<PlainAttempt>(
      temporary_,
      [name = temporary_, handle = handle_](const Protocol& protocol, HttpRequest& request) {
        protocol.appends()->build_flush(request, name, handle);
      });
}

// ── Publishing ───────────────────────────────────────────────────────────────────────────────

awaitable<Result<ObjectInfo>> AppendUpload::publish_parts(Whole whole) {
  const Result<bool> flushed = co_await request(flush());
  flushed_ = flushed.has_value();
  // What the flush has made, or, if its answer was lost, may have made.
  Result<ObjectInfo> temporary = co_await request(bucket_->run<StatAttempt>(temporary_));
  if (!temporary) {
    co_return std::unexpected(with_url(flushed ? temporary.error() : flushed.error()));
  }
  if (Result<void> good = check(*temporary, whole); !good) {
    co_return std::unexpected(with_url(std::move(good.error())));
  }
  if (has_to_describe(bucket_->protocol(), *temporary, target_)) {
    Result<bool> described = co_await request(
        bucket_->run<PlainAttempt>(temporary->name, description_of(temporary->name, target_)));
    if (!described) co_return std::unexpected(with_url(std::move(described.error())));
  }
  co_return co_await rename(std::move(*temporary), whole);
}

Result<void> AppendUpload::check(const ObjectInfo& temporary, const Whole& whole) const {
  Checksum sum(whole.crc32c);
  if (temporary.checksum.kind() == ChecksumKind::kXxh64) {
    sum = Checksum(ChecksumKind::kXxh64, sum_.value());
  }
  const bool comparable = temporary.checksum.kind() == sum.kind();
  if (temporary.size_bytes != whole.size_bytes || (comparable && temporary.checksum != sum)) {
    return corrupt("the server has ", temporary.size_bytes,
                   " bytes of the stream, which are not the ", whole.size_bytes, " that were sent");
  }
  if (!bucket_->are_together(temporary.name, full_target()) &&
      !bucket_->protocol().appends()->moves_to(full_target())) {
    return fail(Code::kUnavailable,
                "the cluster has changed while it was written, and cannot move an object of such a "
                "name: it has to be written again");
  }
  return {};
}

awaitable<Result<ObjectInfo>> AppendUpload::rename(ObjectInfo temporary, Whole whole) {
  // Nobody else writes under this name, and a server may count a description as a version.
  temporary.generation.clear();
  temporary.content_type = target_.content_type;
  temporary.content_encoding = target_.content_encoding;
  CopyRequest move{
      .source_name = temporary.name, .name = full_target(), .precondition = target_.precondition};
  Result<ObjectInfo> info =
      co_await request(bucket_->run<RenameAttempt>(std::move(move), std::move(temporary)));
  if (info) {
    renamed_ = true;
    if (Result<void> below = remote_->root().strip(*info); !below) {
      info = std::unexpected(std::move(below.error()));
    }
  }
  if (!info) info = std::unexpected(with_url(std::move(info.error())));
  co_return co_await published(std::move(info), whole);
}

// ── Ending ───────────────────────────────────────────────────────────────────────────────────

awaitable<Result<void>> AppendUpload::remove_rest() {
  if (handle_.empty() || renamed_) co_return Result<void>();
  // Only an object can be removed.
  if (!flushed_) {
    static_cast<void>(co_await result_of(flush()));
  }
  const Result<bool> removed = co_await result_of(bucket_->run<RemoveAttempt>(
      temporary_, Precondition{}, bucket_->learned().removal_conditions));
  if (removed || removed.error().code() == Code::kNotFound) co_return Result<void>();
  co_return std::unexpected(
      Error(removed.error().code(), cat("the temporary object ", temporary_,
                                        " could not be removed: ", removed.error().message())));
}

}  // namespace headrace
