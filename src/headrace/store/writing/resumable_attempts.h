// The attempts behind resumable uploads: a session, and a stream that resumes where it broke off.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/store/transfer/operation.h"
#include "headrace/store/upload.h"
#include "headrace/store/writing/publish_attempt.h"

namespace headrace {

// A repeated request may start a second session, which nobody uses and which expires by itself.
class StartResumableAttempt final : public TextAttempt {
 public:
  StartResumableAttempt(const Protocol& protocol, WriteRequest request);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(request_.name); }
  Result<std::string> result;  // the session, as a request target

 private:
  Result<void> begin_body(const ResponseHead& head) override;
  Result<Verdict> finish() override;
  const WriteRequest request_;
  std::string scratch_, session_;
};

// Bytes [begin, end) of the object, all from one part. With `whole` they are the last ones, and
// complete the object.
struct StreamRange {
  std::string session = {};
  std::string name = {};
  std::shared_ptr<const UploadPart> part = {};  // null: no bytes, only the end
  uint64_t begin = 0, end = 0;
  std::optional<Upload::Whole> whole = {};
};

// After a failure it asks the server how many bytes it has.
class SendStreamAttempt final : public TextAttempt {
 public:
  SendStreamAttempt(const Protocol& protocol, StreamRange range);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(range_.name); }
  void will_retry() override { ask_ = true; }
  std::chrono::milliseconds linger_when_stopped() const override {
    return std::chrono::milliseconds(range_.whole ? 1000 : 0);
  }
  // The object, after the last range; empty after any other.
  Result<ObjectInfo> result;

 private:
  bool accepts(int status) const override { return status / 100 == 2 || status == 308; }
  Result<void> begin_body(const ResponseHead& head) override;
  Result<Verdict> finish() override;

  const StreamRange range_;
  uint64_t from_;             // what the server has
  bool ask_ = false;          // ask how many bytes it has
  bool complete_ = false;     // the answer is an object
  uint64_t kept_bytes_ = 0;   // what the answer says it has
  uint32_t standstills_ = 0;  // answers that brought nothing
};

}  // namespace headrace
