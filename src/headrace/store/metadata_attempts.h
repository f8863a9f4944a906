// The attempts behind list, stat, write, remove, copy and compose.
//
// A repeated request must never make a change twice. If an attempt fails after it may have reached
// the server, the next request is a stat, which asks what is there now. If that is what we meant to
// put there, the change is done. If not, it is sent again on the condition that the object seen by
// the stat is still there; so it overwrites neither another writer's object nor the first request,
// should that arrive late. An object that cannot be compared, because the service reports no
// CRC32C, is never taken for ours. The change is then repeated if the caller set no condition;
// otherwise the request fails with an error that says that its outcome is unknown.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "headrace/store/operation.h"
#include "headrace/store/retry.h"
#include "headrace/store/temporary_names.h"
#include "headrace/store/upload.h"

namespace headrace {

// Page: an ObjectPage or a ColumnPage.
template <class Page>
class ListAttempt final : public TextAttempt {
 public:
  // Borrows `temporaries`. Raises `largest_page_bytes` to the size of the answer.
  ListAttempt(const Protocol& protocol, const TemporaryNames& temporaries, ListRequest request,
              std::atomic<uint64_t>& largest_page_bytes);
  void build(HttpRequest& request) override;
  // The bucket's, if it is what is missing.
  std::string url() const override;
  Result<Page> result;

 private:
  Result<Verdict> finish() override;
  Result<Verdict> refused(Error error) override;
  const TemporaryNames& temporaries_;
  bool no_bucket_ = false;
  const ListRequest request_;
  std::atomic<uint64_t>& largest_page_bytes_;
};

class StatAttempt final : public TextAttempt {
 public:
  StatAttempt(const Protocol& protocol, std::string name);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(name_); }
  Result<ObjectInfo> result;

 private:
  Result<Verdict> finish() override;
  const std::string name_;
};

// How the bytes of an object compare with those of a change.
enum class Match : uint8_t {
  kSame,
  kOther,
  kUnknown,  // the same size, but a CRC32C is missing
};
Match compare_bytes(const ObjectInfo& found, uint64_t size_bytes, std::optional<Crc32c> crc32c);

// " with CRC32C ...", for messages.
std::string crc32c_text(const ObjectInfo& info);

// What write, copy and compose share: resolving a request whose answer was lost.
// Errors: kUnavailable if an answer was lost and the object that is there now may be another
// writer's.
class PublishAttempt : public TextAttempt {
 public:
  void build(HttpRequest& request) final;
  std::string url() const override { return protocol().url_of(name_); }
  void will_retry() final;
  Result<ObjectInfo> result;

 protected:
  bool before_change() const { return step_ == Step::kFirst; }
  PublishAttempt(const Protocol& protocol, std::string name, Precondition precondition);
  // Builds the request that makes the change, on condition `precondition`.
  virtual void build_change(HttpRequest& request, const Precondition& precondition) = 0;
  virtual Result<Verdict> finish_change() = 0;
  // Compares what is there with what the change would put there.
  virtual Match compare(const ObjectInfo& found) const = 0;
  // Next, asks what is there now, because the answer to the change does not say.
  void look() { step_ = Step::kResolve; }
  // The error if what is there is not ours although the change was made.
  virtual std::optional<Error> wrong_result(const ObjectInfo&) const { return std::nullopt; }
  // What a failed condition may mean other than that the target has changed. "": nothing.
  virtual std::string other_refusal() const { return ""; }
  // Whether the operation ends with this error instead of sending the change again.
  virtual bool gives_up_on(const Error&) const { return false; }
  // The next change has another condition than the one before.
  virtual void condition_changed() {}
  // Builds a request that must precede the change, if there is one.
  virtual bool build_first(HttpRequest&) { return false; }

 private:
  enum class Step : uint8_t { kFirst, kChange, kResolve };
  Result<Verdict> finish() final;
  Result<Verdict> refused(Error error) final;
  // Sends the change again, if the caller set no condition on condition that what is there now
  // ("": nothing) is still there.
  Verdict repeat_on(const std::string& generation);
  // Ends the operation with this error, even if its code is one that is retried.
  Verdict end_with(Error error);

  const std::string name_;
  const Precondition wanted_;  // what the caller asked for
  Precondition condition_;     // the condition of the next change
  Step step_ = Step::kFirst;
  bool resolved_before_ = false;  // the answer to a change was lost at least once

 protected:
  virtual Result<Verdict> finish_first() { return Verdict::kAgain; }
};

class WriteAttempt final : public PublishAttempt {
 public:
  // Borrows `bytes`.
  WriteAttempt(const Protocol& protocol, WriteRequest request, std::span<const std::byte> bytes);
  WriteAttempt(const Protocol& protocol, WriteRequest request,
               std::shared_ptr<const UploadPart> part);
  std::chrono::milliseconds linger_when_stopped() const override { return request_.linger; }

 private:
  void build_change(HttpRequest& request, const Precondition& precondition) override;
  Result<Verdict> finish_change() override;
  Match compare(const ObjectInfo& found) const override;

  WriteRequest request_;
  const std::shared_ptr<const UploadPart> part_;
  std::string scratch_;
};

class CopyAttempt final : public PublishAttempt {
 public:
  CopyAttempt(const Protocol& protocol, CopyRequest request);
  std::string url() const override;

 private:
  bool build_first(HttpRequest& request) override;
  Result<Verdict> finish_first() override;
  void build_change(HttpRequest& request, const Precondition& precondition) override;
  Result<Verdict> finish_change() override;
  Match compare(const ObjectInfo& found) const override;

  CopyRequest request_;
  ObjectInfo source_;
  // A token belongs to requests with the same conditions: others begin anew.
  void condition_changed() override { token_.clear(); }
  std::string token_;
};

class ComposeAttempt final : public PublishAttempt {
 public:
  ComposeAttempt(const Protocol& protocol, ComposeRequest request);
  std::chrono::milliseconds linger_when_stopped() const override { return request_.linger; }

 private:
  void build_change(HttpRequest& request, const Precondition& precondition) override;
  Result<Verdict> finish_change() override;
  Match compare(const ObjectInfo& found) const override;

  std::string other_refusal() const override {
    return "it is not in the expected generation, or one of the objects to be joined is not";
  }

  bool gives_up_on(const Error& error) const override {
    return request_.give_up_when_busy && is_retryable(error);
  }

  ComposeRequest request_;
  uint64_t size_bytes_ = 0;  // of the sources together
  Crc32c crc32c_;
  std::string scratch_;
};

class RemoveAttempt final : public TextAttempt {
 public:
  RemoveAttempt(const Protocol& protocol, std::string name, Precondition precondition);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(name_); }
  void will_retry() override { lost_before_ = true; }
  Result<bool> result;

 private:
  Result<Verdict> finish() override;
  Result<Verdict> refused(Error error) override;
  bool removes() const override { return true; }

  const std::string name_;
  const Precondition precondition_;
  bool lost_before_ = false;  // an earlier attempt may have removed it
};

}  // namespace headrace
