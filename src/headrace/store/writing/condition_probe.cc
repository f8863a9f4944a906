#include "headrace/store/writing/condition_probe.h"

#include <chrono>
#include <utility>

#include "headrace/store/transfer/retry.h"

namespace headrace {
namespace {

using Treatment = Learned::Treatment;
using std::chrono::steady_clock;

// No object has it: it is no MD5 of anything that is known, and no server invents it.
constexpr const char* kNoGeneration = "00000000000000000000000000000000";

}  // namespace

bool ConditionProbe::build(HttpRequest& request) const {
  switch (step_) {
    case Step::kWrite: proof_.build_write(request, name_, {}, with_sum_); return true;
    case Step::kCreate:
      proof_.build_write(request, name_, {.generation = ""}, with_sum_);
      return true;
    case Step::kReplace:
      proof_.build_write(request, name_, {.generation = kNoGeneration}, with_sum_);
      return true;
    case Step::kRemove: proof_.build_remove(request, name_); return true;
    case Step::kDone: return false;
  }
  return false;
}

void ConditionProbe::accepted() {
  switch (step_) {
    case Step::kWrite: step_ = Step::kCreate; break;
    case Step::kCreate:
      found_.create.note(Treatment::kIgnored, steady_clock::now());
      step_ = Step::kReplace;
      break;
    case Step::kReplace:
      found_.replace.note(Treatment::kIgnored, steady_clock::now());
      step_ = Step::kRemove;
      break;
    case Step::kRemove:
    case Step::kDone: step_ = Step::kDone; break;
  }
}

Result<void> ConditionProbe::refused(Error error) {
  if (is_retryable(error)) return std::unexpected(std::move(error));
  const Code code = error.code();
  switch (step_) {
    case Step::kWrite:
      if (code == Code::kInvalidArgument && std::exchange(with_sum_, false)) return {};
      // Without permission to write there it cannot be found out: the service is trusted.
      if (code != Code::kPermissionDenied) return std::unexpected(std::move(error));
      step_ = Step::kDone;
      return {};
    case Step::kRemove:  // `headrace clean` finds it
    case Step::kDone: step_ = Step::kDone; return {};
    case Step::kCreate:
    case Step::kReplace: break;
  }
  const bool creates = step_ == Step::kCreate;
  const bool kept = code == Code::kPreconditionFailed || (code == Code::kNotFound && !creates);
  const bool denied = code == Code::kPermissionDenied;  // such writes may need more rights
  if (!kept && !denied && code != Code::kInvalidArgument) return std::unexpected(std::move(error));
  if (code == Code::kInvalidArgument && error.http_status() == 400 &&
      !std::exchange(asked_again_, true)) {
    return {};
  }
  asked_again_ = false;
  const Treatment found = kept     ? Treatment::kTaken
                          : denied ? Treatment::kUnknown
                                   : Treatment::kRefused;
  (creates ? found_.create : found_.replace).note(found, steady_clock::now());
  step_ = creates ? Step::kReplace : Step::kRemove;
  return {};
}

}  // namespace headrace
