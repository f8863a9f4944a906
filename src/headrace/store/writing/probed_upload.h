// A large object, sent in the way that turns out to be there.
#pragma once

#include <memory>

#include "headrace/base/mutex.h"
#include "headrace/store/writing/append_upload.h"
#include "headrace/store/writing/multipart_upload.h"

namespace headrace {

// Starts a multipart upload, and falls back to a stream if the server refuses the start. If that
// is since it knows no such uploads, all later uploads to the bucket know
// (LearnedOfBucket::multipart). Thread: any.
class ProbedUpload final : public Upload, public std::enable_shared_from_this<ProbedUpload> {
 public:
  ProbedUpload(std::shared_ptr<RemoteRoot> remote, const WriteRequest& target);

  Limits limits() const override {
    Limits limits = multipart_->limits();
    limits.rereads = false;  // a stream holds its parts
    return limits;
  }
  void send(std::shared_ptr<const UploadPart> part, Done done) override;
  void publish(const Whole& whole, Published done) override;
  void publish_single(std::shared_ptr<const UploadPart> part, Published done) override;
  void cancel() override;
  void clean(Done done) override;

 private:
  Upload& in_use();
  // Whether the server has turned out to have multipart uploads.
  void note_multipart(Learned::Treatment treatment);
  const std::shared_ptr<RemoteRoot> remote_;
  const std::shared_ptr<DirectMultipartUpload> multipart_;
  const std::shared_ptr<AppendUpload> append_;
  Mutex mutex_;
  bool appends_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace
