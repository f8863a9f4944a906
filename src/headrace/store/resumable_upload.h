// A large object, sent as one resumable stream.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "headrace/store/http_upload.h"

namespace headrace {

// The parts go one after the other through one session, which carries the condition and makes the
// object with its last byte: nothing is put anywhere else, so nothing is to be removed. That suits
// buckets whose objects cannot be removed (a retention policy); it is slower than parts in
// parallel. After a break the server is asked how far it has come, and the stream goes on from
// there.
//
// Thread: any. Owns the session.
class ResumableUpload final : public HttpUpload {
 public:
  // What a session takes before its end comes in multiples of this.
  static constexpr uint64_t kUnitBytes = 256 * kKiB;
  // An object of one part that is smaller is sent by one request, and again after a break.
  static constexpr uint64_t kResumeFromBytes = 8 * kMiB;

  ResumableUpload(std::shared_ptr<HttpStore> store, WriteRequest target);

  Limits limits() const override;
  void send(std::shared_ptr<const UploadPart> part, Done done) override;
  void publish(const Whole& whole, Published done) override;
  void publish_single(std::shared_ptr<const UploadPart> part, Published done) override;

 private:
  struct Waiting {
    std::shared_ptr<const UploadPart> part;
    Done done;
  };
  // Starts the session, or sends the next part, if nothing is under way.
  void advance();
  void send_next(Waiting waiting);
  void finish_stream();
  void begin_cleaning() override;

  bool busy_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::string session_ HEADRACE_GUARDED_BY(mutex_);  // a request target
  uint64_t sent_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool ended_ HEADRACE_GUARDED_BY(mutex_) = false;  // the session is no more
  std::optional<Error> error_ HEADRACE_GUARDED_BY(mutex_);
  std::deque<Waiting> waiting_ HEADRACE_GUARDED_BY(mutex_);
  std::shared_ptr<const UploadPart> rest_ HEADRACE_GUARDED_BY(mutex_);  // what is left to be sent
};

}  // namespace headrace
