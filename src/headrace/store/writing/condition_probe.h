// Finds out whether a service keeps to the conditions of writes.
#pragma once

#include <cstdint>
#include <string>

#include "headrace/base/result.h"
#include "headrace/http/message.h"
#include "headrace/store/condition_proof.h"
#include "headrace/store/protocol.h"
#include "headrace/store/transfer/learned_of_bucket.h"

namespace headrace {

// A service that ignores a condition answers as one whose condition held, so it is asked to do what
// it must refuse, to an object of our own: to create what is there, and to replace a generation
// that is not. Four requests: write without a condition (whatever refuses that is not about
// conditions), create, replace, remove; more where it refuses the sum that goes along, or refuses
// by 400, which may be about anything and is asked twice. Pure: builds requests and is told how
// they ended. Thread: confined. Borrows its arguments.
class ConditionProbe {
 public:
  // `name` is one that nobody else uses.
  ConditionProbe(const ConditionProof& proof, WriteConditions& found, std::string name)
      : proof_(proof), found_(found), name_(std::move(name)) {}

  // False once there is nothing more to ask.
  bool build(HttpRequest& request) const;
  void accepted();
  // Errors: the same, if it says nothing about conditions. Then the request may be sent again.
  Result<void> refused(Error error);

 private:
  enum class Step : uint8_t { kWrite, kCreate, kReplace, kRemove, kDone };

  const ConditionProof& proof_;
  WriteConditions& found_;
  const std::string name_;
  Step step_ = Step::kWrite;
  bool with_sum_ = true;
  bool asked_again_ = false;  // in this step
};

}  // namespace headrace
