// A large object, sent in the way that turns out to be there.
#pragma once

#include <memory>

#include "headrace/store/writing/append_upload.h"
#include "headrace/store/writing/multipart_upload.h"

namespace headrace {

// Starts a multipart upload, and falls back to a stream if the server refuses the start. If that
// is since it knows no such uploads, all later uploads to the bucket know
// (LearnedOfBucket::multipart). Thread: as HttpUpload: both ways have their steps on its thread.
class ProbedUpload final : public HttpUpload {
 public:
  ProbedUpload(const std::shared_ptr<RemoteRoot>& remote, const WriteRequest& target);

  Limits limits() const override {
    Limits limits = multipart_->limits();
    limits.rereads = false;  // a stream holds its parts
    return limits;
  }
  void cancel() override;
  Outgoing prepare(std::shared_ptr<const UploadPart> part) override;
  awaitable<Result<void>> send_part(Outgoing outgoing) override;
  awaitable<Result<ObjectInfo>> publish_parts(Whole whole) override;
  awaitable<Result<void>> remove_rest() override;

 private:
  // Whether the server has turned out to have multipart uploads.
  void note_multipart(Learned::Treatment treatment);

  const std::shared_ptr<DirectMultipartUpload> multipart_;
  const std::shared_ptr<AppendUpload> append_;
  bool appends_ = false;
};

}  // namespace headrace
