// The attempts behind write, copy, compose and remove.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "headrace/store/copies.h"
#include "headrace/store/transfer/remote_root.h"
#include "headrace/store/transfer/retry.h"
#include "headrace/store/upload.h"
#include "headrace/store/writing/publish_attempt.h"
#include "headrace/store/writing/sums_of_part.h"

namespace headrace {

class WriteAttempt final : public PublishAttempt {
 public:
  // Borrows `bytes`.
  WriteAttempt(const Protocol& protocol, WriteRequest request, std::span<const std::byte> bytes,
               WriteFacts facts);
  WriteAttempt(const Protocol& protocol, WriteRequest request,
               std::shared_ptr<const UploadPart> part, WriteFacts facts);
  std::chrono::milliseconds linger_when_stopped() const override { return request_.linger; }
  // Not if it was accepted: then there is an object.
  bool arrived_spoilt() const override { return refusal() != nullptr && sums_.arrived_spoilt(); }

 private:
  void build_change(HttpRequest& request, const Precondition& precondition) override;
  Result<Verdict> finish_change() override;
  bool looks_at_target() const override { return protocol().looks_before_writes(); }
  Match compare(const ObjectInfo& found) const override;
  bool is_good(Match match) const override { return match != Match::kOther; }
  bool adapts_to(Error& error) override { return sums_.refused(error, refusal()->blames_taken); }
  // What describes the object is read, where there is any.
  bool change_ignores_body() const override { return true; }
  std::optional<Description> description() const override {
    return Description{.content_type = request_.content_type,
                       .content_encoding = request_.content_encoding};
  }

  WriteRequest request_;
  bool untold_ = false;  // what was written; the object was looked at
  const std::shared_ptr<const UploadPart> part_;
  SumsOfPart sums_;
  std::string scratch_;
};

// Errors: kPreconditionFailed if `source`, which is at `url`, is not what is to be copied.
Result<void> check_copy_source(const CopyRequest& request, const ObjectInfo& source,
                               const std::string& url);

class CopyAttempt final : public PublishAttempt {
 public:
  CopyAttempt(const Protocol& protocol, CopyRequest request);
  // The source was looked at already.
  CopyAttempt(const Protocol& protocol, CopyRequest request, ObjectInfo source);
  std::string url() const override;

 private:
  bool build_first(HttpRequest& request) override;
  Result<Verdict> finish_first() override;
  void build_change(HttpRequest& request, const Precondition& precondition) override;
  Result<Verdict> finish_change() override;
  bool looks_at_target() const override { return !protocol().copies()->is_conditional(); }
  Match compare(const ObjectInfo& found) const override;
  // Sums that cannot be compared are no difference: the server copied what it has.
  bool is_good(Match match) const override { return match != Match::kOther; }
  std::optional<Error> wrong_result(const ObjectInfo& found) const override;

  void take_source(ObjectInfo source);

  CopyRequest request_;
  ObjectInfo source_;
  // It was looked at, and is what it should be.
  bool source_seen_ = false;
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
    return "it is not in the expected generation, or one of the objects to be composed is not";
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
  RemoveAttempt(const Protocol& protocol, std::string name, Precondition precondition,
                Learned& conditions);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(name_); }
  void will_retry() override;
  Result<bool> result;

 private:
  Result<Verdict> finish() override;
  Result<Verdict> refused(Error error) override;
  bool removes() const override { return !looks_; }
  bool ignores_body() const override { return !looks_; }
  // Another object may have come there since it was looked at.
  void look_again();

  const std::string name_;
  const Precondition precondition_;
  bool has_to_look_;
  bool looks_;                // asks whether it is there, since the removal would not say
  Learned& conditions_;       // of removals
  bool is_left_out_ = false;  // its condition, which is ours
  bool was_refused_ = false;  // with it
  bool lost_before_ = false;  // an earlier attempt may have removed it
};

}  // namespace headrace
