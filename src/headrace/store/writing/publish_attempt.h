// A change that makes an object visible, and what is done if its answer is lost.
//
// A repeated request must never make a change twice. If an attempt fails after it may have reached
// the server, the next request is a stat, which asks what is there now. If that is what we meant to
// put there, the change is done. If not, it is sent again on the condition that the object seen by
// the stat is still there; so it overwrites neither another writer's object nor the first request,
// should that arrive late. (Where the service refuses such conditions, it is sent without, unless
// the caller set it.) An object that cannot be compared, because the service reports no
// checksum of ours, is never taken for ours. The change is then repeated if the caller set no
// condition; otherwise the request fails with an error that says that its outcome is unknown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "headrace/store/transfer/attempt.h"
#include "headrace/store/transfer/learned_of_bucket.h"
#include "headrace/store/writing/condition_probe.h"

namespace headrace {

// How the bytes of an object compare with those of a change.
enum class Match : uint8_t {
  kSame,
  kOther,
  kUnknown,  // the same size, but there are no sums of one kind
};
Match compare_bytes(const ObjectInfo& found, uint64_t size_bytes, const Checksum& sum);
// The same of a copy and its source. Where there are no sums of one kind, equal ETags that look
// like MD5s are the same bytes; different ones tell nothing, since services encrypt.
Match compare_copy(const ObjectInfo& copy, const ObjectInfo& source);

// What an object is besides its bytes.
struct Description {
  std::string content_type = {}, content_encoding = {};
};

// " with CRC32C ...", for messages.
std::string crc32c_text(const ObjectInfo& info);

// What a failed condition means: `wanted` is the generation that it asked for, "" for none.
std::string unmet_condition(const std::string& wanted);

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
  bool is_changing() const { return step_ == Step::kChange; }
  // With `conditions`, the change is a write, and is sent once it is known how the service treats
  // its condition.
  PublishAttempt(const Protocol& protocol, std::string name, Precondition precondition,
                 WriteConditions* conditions = nullptr);
  // Builds the request that makes the change, on condition `precondition`.
  virtual void build_change(HttpRequest& request, const Precondition& precondition) = 0;
  virtual Result<Verdict> finish_change() = 0;
  // Whether nothing of the body of the answer to the change is read.
  virtual bool change_ignores_body() const { return false; }
  // Compares what is there with what the change would put there.
  virtual Match compare(const ObjectInfo& found) const = 0;
  // Whether what is there may come from a change whose answer was lost; `replaced`: it is not what
  // the caller's condition names.
  virtual bool may_be_done(Match match, bool replaced) const {
    return replaced && match == Match::kSame;
  }
  // Whether what is there is enough to know that the change was made. If not, what build_first()
  // asks for decides.
  virtual bool is_proven_by(const ObjectInfo&) { return true; }
  // The server has made the change, but its answer does not describe the object: asks for it.
  Verdict look_at_result();
  // Looks at the target (again), as if the answer to the change had been lost.
  Verdict look_at_target_again();
  // The server said that it has made the last change.
  bool is_made() const { return made_; }
  // Ends with the object that is there. If its type and encoding are not those that it should have,
  // and the service leaves them to what it replaces, they are set before.
  Verdict end_with_object(ObjectInfo found);
  // The type and the encoding that the object should have, if the change brings them along.
  virtual std::optional<Description> description() const { return std::nullopt; }
  // Ends the operation with this error, even if its code is one that is retried.
  Verdict end_with(Error error);
  // Whether the result of a change that the server has made is right.
  virtual bool is_good(Match match) const { return match == Match::kSame; }
  // What the last change has made, as its answer describes it, if what was found later is something
  // else.
  virtual std::optional<ObjectInfo> made_object(const ObjectInfo& /*found*/) const { return {}; }
  // The error if it is not.
  virtual std::optional<Error> wrong_result(const ObjectInfo&) const { return std::nullopt; }
  // What a failed condition may mean other than that the target has changed. "": nothing.
  virtual std::string other_refusal() const { return ""; }
  // Whether the change is to be sent in another way, now that it was refused like this. If not, the
  // error may have become an earlier one.
  virtual bool adapts_to(Error&) { return false; }
  // Whether the operation ends with this error instead of sending the change again.
  virtual bool gives_up_on(const Error&) const { return false; }
  // The change will be sent again, after what build_first() asks for.
  virtual void will_repeat() {}
  // The next change has another condition than the one before.
  virtual void condition_changed() {}
  // Builds a request that must precede the change, if there is one (more).
  virtual bool build_first(HttpRequest&) { return false; }
  // Whether the target is looked at before the change is sent, since the service may not look.
  virtual bool looks_at_target() const { return false; }

 private:
  enum class Step : uint8_t { kFirst, kChange, kResolve, kDescribe };
  // What a request before the change is about.
  enum class Asking : uint8_t { kConditions, kTarget, kOther };
  bool build_before_change(HttpRequest& request);
  // Errors: kPreconditionFailed if an object of this generation ("": none) must not be replaced.
  Result<void> check_target(const std::string& generation);
  Error outcome_unknown() const;
  Error unkept_condition(Learned::Treatment answer) const;
  Result<Verdict> finish() final;
  bool ignores_body() const final;
  Result<Verdict> finish_resolve();
  Result<Verdict> refused(Error error) final;
  // Sends the change again, if the caller set no condition on condition that what is there now
  // ("": nothing) is still there.
  // Errors: kPreconditionFailed if that must not be replaced, and the service would not look.
  Result<Verdict> repeat_on(const std::string& generation);

  const std::string name_;
  const Precondition wanted_;  // what the caller asked for
  Precondition condition_;     // the condition of the next change
  bool replaces() const final {
    return step_ == Step::kChange && !condition_.generation.value_or("").empty();
  }
  Step step_ = Step::kFirst;
  WriteConditions* const conditions_;
  std::optional<ConditionProbe> probe_;
  Asking asking_ = Asking::kOther;
  bool target_seen_ = false;
  bool resolved_before_ = false;  // the answer to a change was lost at least once
  bool made_ = false;             // the server said that it has made the change
  int times_made_ = 0;            // that it said so, and nothing was there
  bool maybe_made_ = false;       // what is there may be what a lost change has made
  ObjectInfo described_;          // what is there, as it will be described

 protected:
  virtual Result<Verdict> finish_first() { return Verdict::kAgain; }
  virtual Result<Verdict> refused_first(Error error) { return std::unexpected(std::move(error)); }
};

}  // namespace headrace
