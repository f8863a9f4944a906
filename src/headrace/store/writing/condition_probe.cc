#include "headrace/store/writing/condition_probe.h"

#include "headrace/store/transfer/retry.h"

namespace headrace {
namespace {

using Kept = WriteConditions::Kept;

// No object has it: it is no MD5 of anything that is known, and no server invents it.
constexpr const char* kNoGeneration = "00000000000000000000000000000000";

}  // namespace

bool ConditionProbe::build(HttpRequest& request) const {
  switch (step_) {
    case Step::kCreate:
    case Step::kCreateAgain: proof_.build_write(request, name_, {.generation = ""}); return true;
    case Step::kReplace:
      proof_.build_write(request, name_, {.generation = kNoGeneration});
      return true;
    case Step::kRemove: proof_.build_remove(request, name_); return true;
    case Step::kDone: return false;
  }
  return false;
}

void ConditionProbe::accepted() {
  switch (step_) {
    case Step::kCreate:
      is_there_ = true;
      step_ = Step::kCreateAgain;
      break;
    case Step::kCreateAgain:
      found_.set_create(Kept::kIgnored);
      step_ = Step::kReplace;
      break;
    case Step::kReplace:
      is_there_ = true;
      found_.set_replace(Kept::kIgnored);
      step_ = Step::kRemove;
      break;
    case Step::kRemove:
    case Step::kDone: step_ = Step::kDone; break;
  }
}

Result<void> ConditionProbe::refused(Error error) {
  const Code code = error.code();
  if (is_retryable(error)) return std::unexpected(std::move(error));
  if (step_ == Step::kRemove) {
    step_ = Step::kDone;  // `headrace clean` finds it
    return {};
  }
  if (code == Code::kPermissionDenied) {
    // Whoever may not write there cannot find out, and takes the service at its word. Others ask
    // for themselves.
    step_ = is_there_ ? Step::kRemove : Step::kDone;
    return {};
  }
  const bool kept =
      code == Code::kPreconditionFailed || (code == Code::kNotFound && step_ == Step::kReplace);
  if (!kept && code != Code::kInvalidArgument) return std::unexpected(std::move(error));
  const Kept found = kept ? Kept::kYes : Kept::kRefused;
  if (step_ == Step::kReplace) {
    found_.set_replace(found);
    step_ = is_there_ ? Step::kRemove : Step::kDone;
  } else {
    // Refused already at first: an earlier attempt has created it, and its answer was lost.
    if (kept) is_there_ = true;
    found_.set_create(found);
    step_ = Step::kReplace;
  }
  return {};
}

}  // namespace headrace
