#include "headrace/store/writing/resumable_upload.h"

#include <algorithm>
#include <utility>

#include "headrace/store/resumable_uploads.h"
#include "headrace/store/writing/plain_attempt.h"
#include "headrace/store/writing/resumable_attempts.h"

namespace headrace {

ResumableUpload::ResumableUpload(const std::shared_ptr<RemoteRoot>& remote, WriteRequest target)
    : HttpUpload(remote, std::move(target), next_thread(*remote)) {}

ResumableUpload::Limits ResumableUpload::limits() const {
  Limits limits = HttpUpload::limits();
  limits.part_unit_bytes = kUnitBytes;
  return limits;
}

void ResumableUpload::publish_single(std::shared_ptr<const UploadPart> part, Published done) {
  if (part->size_bytes < kResumeFromBytes) {
    HttpUpload::publish_single(std::move(part), std::move(done));
    return;
  }
  start<ObjectInfo>([&] { return publish_stream(std::move(part)); }, std::move(done));
}

awaitable<Result<void>> ResumableUpload::begin_session() {
  Result<std::string> session = co_await request(remote_->run<StartResumableAttempt>(target_));
  if (!session) co_return std::unexpected(with_url(std::move(session.error())));
  session_ = std::move(*session);
  co_return Result<void>();
}

awaitable<Result<ObjectInfo>> ResumableUpload::publish_stream(
    std::shared_ptr<const UploadPart> part) {
  if (Result<void> begun = co_await begin_session(); !begun) {
    co_return std::unexpected(std::move(begun.error()));
  }
  const Whole whole = whole_of(*part);
  rest_ = std::move(part);
  co_return co_await publish_parts(whole);
}

awaitable<Result<void>> ResumableUpload::send_part(Outgoing outgoing) {
  const std::shared_ptr<const UploadPart> part = std::move(outgoing.part);
  if (Result<void> waited = co_await wait_for_turn(part->part_number); !waited) co_return waited;
  const Turn turn(*this);
  if (!error_ && session_.empty()) {
    if (Result<void> begun = co_await begin_session(); !begun) error_ = std::move(begun.error());
  }
  if (error_) co_return std::unexpected(*error_);
  const uint64_t end = part->offset_bytes + part->size_bytes;
  const uint64_t unit_end = std::max(part->offset_bytes, end / kUnitBytes * kUnitBytes);
  sent_bytes_ = unit_end;
  if (unit_end < end) rest_ = part;
  if (unit_end == part->offset_bytes) co_return Result<void>();
  StreamRange range{.session = session_,
                    .name = target_.name,
                    .part = part,
                    .begin = part->offset_bytes,
                    .end = unit_end};
  Result<ObjectInfo> sent = co_await request(remote_->run<SendStreamAttempt>(std::move(range)));
  if (sent) co_return Result<void>();
  error_ = in_part(part->part_number, std::move(sent.error()));
  co_return std::unexpected(*error_);
}

awaitable<Result<ObjectInfo>> ResumableUpload::publish_parts(Whole whole) {
  StreamRange range{.session = session_,
                    .name = target_.name,
                    .part = std::exchange(rest_, nullptr),
                    .begin = sent_bytes_,
                    .end = whole.size_bytes,
                    .whole = whole};
  Result<ObjectInfo> info = co_await request(remote_->run<SendStreamAttempt>(std::move(range)));
  if (info) ended_ = true;
  co_return co_await published(std::move(info), whole);
}

awaitable<Result<void>> ResumableUpload::remove_rest() {
  rest_.reset();
  if (ended_ || session_.empty()) co_return Result<void>();
  Result<bool> cancelled = co_await result_of(remote_->run<PlainAttempt>(
      target_.name,
      [session = session_](const Protocol& protocol, HttpRequest& request) {
        protocol.resumable()->build_cancel(request, session);
      },
      PlainAttempt::Ends::kSession));
  if (cancelled) co_return Result<void>();
  co_return std::unexpected(with_url(std::move(cancelled.error())));
}

}  // namespace headrace
