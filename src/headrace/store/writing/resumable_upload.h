// A large object, sent as one resumable stream.
#pragma once

#include <deque>
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
// Thread: any. Owns the session.
class ResumableUpload final : public HttpUpload {
 public:
  // A session takes multiples of this, except at the end.
  static constexpr uint64_t kUnitBytes = 256 * kKiB;
  // A smaller object of one part is sent in one request, which is repeated whole after a break.
  static constexpr uint64_t kResumeFromBytes = 8 * kMiB;

  ResumableUpload(std::shared_ptr<RemoteRoot> remote, WriteRequest target);

  Limits limits() const override;
  void send(std::shared_ptr<const UploadPart> part, Done done) override;
  void publish(const Whole& whole, Published done) override;
  void publish_single(std::shared_ptr<const UploadPart> part, Published done) override;

 private:
  struct Waiting {
    std::shared_ptr<const UploadPart> part;
    Done done;
  };
  // If nothing is in progress, starts the session or sends the next part.
  void advance();
  void send_next(Waiting waiting);
  void finish_stream();
  void begin_cleaning() override;

  bool busy_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::string session_ HEADRACE_GUARDED_BY(mutex_);  // a request target
  uint64_t sent_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool ended_ HEADRACE_GUARDED_BY(mutex_) = false;  // the session has ended
  std::optional<Error> error_ HEADRACE_GUARDED_BY(mutex_);
  std::deque<Waiting> waiting_ HEADRACE_GUARDED_BY(mutex_);
  std::shared_ptr<const UploadPart> rest_ HEADRACE_GUARDED_BY(mutex_);  // still to be sent
};

}  // namespace headrace
