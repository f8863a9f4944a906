#include "headrace/store/writing/append_attempts.h"
#include "headrace/store/appends.h"

#include <utility>

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

FlushAttempt::FlushAttempt(const Protocol& protocol, std::string name, std::string handle)
    : TextAttempt(protocol), name_(std::move(name)), handle_(std::move(handle)) {}

void FlushAttempt::build(HttpRequest& request) {
  protocol().appends()->build_flush(request, name_, handle_);
}

Result<Attempt::Verdict> FlushAttempt::finish() {
  result = true;
  return Verdict::kDone;
}

DescribeAttempt::DescribeAttempt(const Protocol& protocol, std::string name, WriteRequest like)
    : TextAttempt(protocol), name_(std::move(name)), like_(std::move(like)) {}

void DescribeAttempt::build(HttpRequest& request) {
  protocol().describing()->build_describe(request, name_, like_);
}

Result<Attempt::Verdict> DescribeAttempt::finish() {
  result = true;
  return Verdict::kDone;
}

}  // namespace headrace
