#include "headrace/store/writing/probed_upload.h"
#include "headrace/store/appends.h"

#include <utility>

namespace headrace {
namespace {

// Whether the server may refuse such requests, and not this one.
bool may_be_unknown(const Error& error) {
  const int status = error.http_status();
  return status == 400 || status == 405 || status == 501;
}

}  // namespace

void ProbedUpload::note_multipart(Learned::Treatment treatment) {
  remote_->learned().multipart.note(treatment, std::chrono::steady_clock::now());
}

ProbedUpload::ProbedUpload(std::shared_ptr<RemoteRoot> remote, const WriteRequest& target)
    : remote_(std::move(remote)),
      multipart_(std::make_shared<DirectMultipartUpload>(remote_, target)),
      append_(std::make_shared<AppendUpload>(remote_, target)) {}

Upload& ProbedUpload::in_use() {
  const Lock lock(mutex_);
  if (appends_) return *append_;
  return *multipart_;
}

void ProbedUpload::send(std::shared_ptr<const UploadPart> part, Done done) {
  if (&in_use() == append_.get()) {
    append_->send(std::move(part), std::move(done));
    return;
  }
  multipart_->send(
      part, [self = shared_from_this(), part, done = std::move(done)](Result<void> result) mutable {
        if (result || self->multipart_->has_started() || !may_be_unknown(result.error())) {
          if (result) self->note_multipart(Learned::Treatment::kTaken);
          done(std::move(result));
          return;
        }
        // Every part that was waiting for the start comes here, in any order.
        if (self->remote_->protocol().appends()->lacks_multipart(result.error())) {
          self->note_multipart(Learned::Treatment::kRefused);
        }
        {
          const Lock lock(self->mutex_);
          self->appends_ = true;
        }
        self->append_->send(std::move(part), std::move(done));
      });
}

void ProbedUpload::publish(const Whole& whole, Published done) {
  in_use().publish(whole, std::move(done));
}

void ProbedUpload::publish_single(std::shared_ptr<const UploadPart> part, Published done) {
  multipart_->publish_single(std::move(part), std::move(done));
}

void ProbedUpload::cancel() {
  multipart_->cancel();
  append_->cancel();
}

// The multipart upload has nothing to clean once the stream is in use.
void ProbedUpload::clean(Done done) {
  append_->clean([self = shared_from_this(), done = std::move(done)](Result<void> cleaned) mutable {
    self->multipart_->clean(
        [cleaned = std::move(cleaned), done = std::move(done)](Result<void> also) mutable {
          done(cleaned ? std::move(also) : std::move(cleaned));
        });
  });
}

}  // namespace headrace
