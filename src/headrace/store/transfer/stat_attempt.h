// The attempt that asks what an object is.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "headrace/store/transfer/attempt.h"

namespace headrace {

class StatAttempt final : public TextAttempt {
 public:
  StatAttempt(const Protocol& protocol, std::string name)
      : TextAttempt(protocol), name_(std::move(name)) {}
  void build(HttpRequest& request) override { protocol().build_stat(request, name_); }
  std::optional<ExpectedAnswer> hedgeable() const override {
    return ExpectedAnswer{.kind = AnswerKind::kStat};
  }
  std::string url() const override { return protocol().url_of(name_); }
  Result<ObjectInfo> result;

 private:
  Result<Verdict> finish() override {
    result = found_object(name_);
    if (!result) return std::unexpected(result.error());
    return Verdict::kDone;
  }
  const std::string name_;
};

}  // namespace headrace
