#include "headrace/store/writing/probed_upload.h"

#include <utility>

#include "headrace/store/http_store.h"

namespace headrace {
namespace {

// Whether the server may refuse such requests, and not this one.
bool may_be_unknown(const Error& error) {
  const int status = error.http_status();
  return status == 400 || status == 405 || status == 501;
}

}  // namespace

ProbedUpload::ProbedUpload(std::shared_ptr<HttpStore> store, const WriteRequest& target)
    : store_(std::move(store)),
      multipart_(std::make_shared<DirectMultipartUpload>(store_, target)),
      append_(std::make_shared<AppendUpload>(store_, target)) {}

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
          if (result) self->store_->note_multipart(true);
          done(std::move(result));
          return;
        }
        // Every part that was waiting for the start comes here, in any order.
        if (self->store_->lacks_multipart(result.error())) self->store_->note_multipart(false);
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
