// How it is found out whether a service keeps to conditions.
#pragma once

#include <string_view>

#include "headrace/http/message.h"
#include "headrace/store/options.h"

namespace headrace {

// Requests that tell whether a service keeps to the conditions of writes; what they are about are
// objects of our own, with full names. They have no bytes.
// Thread: any (immutable).
class ConditionProof {
 public:
  virtual ~ConditionProof() = default;
  // `with_sum`: with a sum of no bytes, which some buckets demand, and some services refuse.
  virtual void build_write(HttpRequest& request, std::string_view full_name,
                           const Precondition& precondition, bool with_sum) const = 0;
  virtual void build_remove(HttpRequest& request, std::string_view full_name) const = 0;
};

}  // namespace headrace
