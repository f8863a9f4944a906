#include "headrace/store/writing/append_attempts.h"

#include <utility>

#include "headrace/store/appends.h"

namespace headrace {

AppendAttempt::AppendAttempt(const Protocol& protocol, std::string name, std::string handle,
                             std::shared_ptr<const UploadPart> part)
    : TextAttempt(protocol),
      name_(std::move(name)),
      handle_(std::move(handle)),
      part_(std::move(part)),
      body_begun_(part_->size_bytes == 0) {}

void AppendAttempt::build(HttpRequest& request) {
  protocol().appends()->build_append(request, name_, handle_, part_->spans);
  request.body_begun = &body_begun_;
}

Result<Attempt::Verdict> AppendAttempt::finish() {
  result = protocol().appends()->handle(response().head);
  if (result->empty()) return corrupt("the answer to a piece of the stream has no handle");
  return Verdict::kDone;
}

}  // namespace headrace
