// A large object, sent as one resumable stream.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "headrace/store/writing/http_upload.h"

namespace headrace {

// Sends the parts one after another through one session, which carries the condition and makes the
// object with its last byte. There are no temporary objects, which suits buckets whose objects
// cannot be removed (a retention policy), but it is slower than parallel parts. After a break it
// asks the server how many bytes it has, and resumes from there.
//
// Thread: as HttpUpload. Owns the session.
class ResumableUpload final : public HttpUpload {
 public:
  // A session takes multiples of this, except at the end.
  static constexpr uint64_t kUnitBytes = 256 * kKiB;
  // A smaller object of one part is sent in one request, which is repeated whole after a break.
  static constexpr uint64_t kResumeFromBytes = 8 * kMiB;

  ResumableUpload(const std::shared_ptr<RemoteRoot>& remote, WriteRequest target);

  Limits limits() const override;
  void publish_single(std::shared_ptr<const UploadPart> part, Published done) override;
  awaitable<Result<void>> send_part(Outgoing outgoing) override;
  // Sends the remaining bytes, and the end.
  awaitable<Result<ObjectInfo>> publish_parts(Whole whole) override;
  awaitable<Result<void>> remove_rest() override;

 private:
  awaitable<Result<ObjectInfo>> publish_stream(std::shared_ptr<const UploadPart> part);
  awaitable<Result<void>> begin_session();

  std::string session_;  // a request target
  uint64_t sent_bytes_ = 0;
  bool ended_ = false;  // the session has ended
  std::optional<Error> error_;
  std::shared_ptr<const UploadPart> rest_;  // still to be sent
};

}  // namespace headrace
