#include "headrace/store/writing/probed_upload.h"

#include <utility>

#include "headrace/store/appends.h"

namespace headrace {
namespace {

// Whether the server may refuse such requests, and not this one.
bool may_be_unknown(const Error& error) {
  const int status = error.http_status();
  return status == 400 || status == 405 || status == 501;
}

}  // namespace

ProbedUpload::ProbedUpload(const std::shared_ptr<RemoteRoot>& remote, const WriteRequest& target)
    : HttpUpload(remote, target, next_thread(*remote)),
      multipart_(std::make_shared<DirectMultipartUpload>(remote, target, thread_)),
      append_(std::make_shared<AppendUpload>(remote, target, thread_)) {}

void ProbedUpload::note_multipart(Learned::Treatment treatment) {
  remote_->learned().multipart.note(treatment, std::chrono::steady_clock::now());
}

void ProbedUpload::cancel() {
  HttpUpload::cancel();
  multipart_->cancel();
  append_->cancel();
}

HttpUpload::Outgoing ProbedUpload::prepare(std::shared_ptr<const UploadPart> part) {
  return multipart_->prepare(std::move(part));
}

awaitable<Result<void>> ProbedUpload::send_part(Outgoing outgoing) {
  if (!appends_) {
    Result<void> sent = co_await multipart_->send_part(outgoing);
    if (sent) note_multipart(Learned::Treatment::kTaken);
    if (sent || multipart_->has_started() || !may_be_unknown(sent.error())) co_return sent;
    // Every part that was waiting for the start comes here, in any order.
    if (remote_->protocol().appends()->lacks_multipart(sent.error())) {
      note_multipart(Learned::Treatment::kRefused);
    }
    appends_ = true;
  }
  co_return co_await append_->send_part(std::move(outgoing));
}

awaitable<Result<ObjectInfo>> ProbedUpload::publish_parts(Whole whole) {
  if (appends_) return append_->publish_parts(whole);
  return multipart_->publish_parts(whole);
}

// The multipart upload has nothing to remove once the stream is in use.
awaitable<Result<void>> ProbedUpload::remove_rest() {
  if (appends_) return append_->remove_rest();
  return multipart_->remove_rest();
}

}  // namespace headrace
