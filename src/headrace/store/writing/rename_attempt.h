// A rename by one request, which the server carries out as a copy and the removal of its source.
#pragma once

#include <optional>
#include <string>

#include "headrace/store/writing/publish_attempt.h"

namespace headrace {

// The request says nothing of generations, so the source has been looked at before, and is looked
// at again before the request is repeated. Whatever the answer, the rename is done once the target
// has the bytes of the source, and the source is gone, or another object. A target that has kept
// the type or the encoding of what it was is then described like the source.
// Errors: kNotFound if there is no source; kPreconditionFailed if it is another generation;
// kUnavailable if the server says that it was renamed, and it was not.
class RenameAttempt final : public PublishAttempt {
 public:
  RenameAttempt(const Protocol& protocol, CopyRequest request, ObjectInfo source);
  std::string url() const override;

 private:
  bool build_first(HttpRequest& request) override;
  Result<Verdict> finish_first() override;
  Result<Verdict> refused_first(Error error) override;
  void build_change(HttpRequest& request, const Precondition& precondition) override;
  Result<Verdict> finish_change() override { return look_at_result(); }
  bool change_ignores_body() const override { return true; }
  std::optional<Description> description() const override;
  bool looks_at_target() const override { return protocol().looks_before_writes(); }
  void will_repeat() override { source_seen_ = false; }
  Match compare(const ObjectInfo& found) const override;
  bool is_good(Match match) const override { return match != Match::kOther; }
  // Versions count from 1 again, so that what was replaced by equal bytes has its generation.
  bool may_be_done(Match match, bool) const override { return match != Match::kOther; }
  bool is_proven_by(const ObjectInfo& found) override;
  std::optional<Error> wrong_result(const ObjectInfo& found) const override;

  CopyRequest request_;
  ObjectInfo source_;
  // The source is not there any more.
  Result<Verdict> source_gone(Error error);
  bool source_seen_ = true;  // since the last request that may have moved it
  bool is_sent_ = false;     // the request, at least once
  bool looked_again_ = false;
  std::optional<ObjectInfo> arrived_;  // at the target, unless it was there before
};

}  // namespace headrace
