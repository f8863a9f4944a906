#include "headrace/store/writing/rename_attempt.h"

#include <utility>

#include "headrace/store/appends.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {

RenameAttempt::RenameAttempt(const Protocol& protocol, CopyRequest request, ObjectInfo source)
    : PublishAttempt(protocol, request.name, request.precondition),
      request_(std::move(request)),
      source_(std::move(source)) {
  request_.source_generation = source_.generation;
}

std::string RenameAttempt::url() const {
  const bool about_source = is_changing() || (before_change() && !source_seen_);
  return about_source ? protocol().url_of(request_.source_name) : PublishAttempt::url();
}

bool RenameAttempt::build_first(HttpRequest& request) {
  if (source_seen_) return false;
  protocol().build_stat(request, request_.source_name);
  return true;
}

Result<Attempt::Verdict> RenameAttempt::finish_first() {
  Result<ObjectInfo> source = found_object(request_.source_name);
  if (!source) return std::unexpected(std::move(source.error()));
  if (Result<void> good =
          check_copy_source(request_, *source, protocol().url_of(request_.source_name));
      !good) {
    return source_gone(std::move(good.error()));
  }
  if (arrived_ && is_made()) {
    return end_with(Error(Code::kUnavailable,
                          cat("the server says that it was renamed to ", PublishAttempt::url(),
                              ", but it is still there: it was copied, or nothing was done")));
  }
  arrived_.reset();
  source_ = std::move(*source);
  source_seen_ = true;
  return Verdict::kAgain;
}

Result<Attempt::Verdict> RenameAttempt::refused_first(Error error) {
  if (error.code() != Code::kNotFound) return std::unexpected(std::move(error));
  return source_gone(std::move(error));
}

Result<Attempt::Verdict> RenameAttempt::source_gone(Error error) {
  if (arrived_) return end_with_object(*std::exchange(arrived_, std::nullopt));
  // A request has moved it, or another program has. That nothing was at the target may have been
  // true for a moment only.
  if (is_sent_ && !std::exchange(looked_again_, true)) return look_at_target_again();
  return std::unexpected(std::move(error));
}

std::optional<Description> RenameAttempt::description() const {
  return Description{.content_type = source_.content_type,
                     .content_encoding = source_.content_encoding};
}

void RenameAttempt::build_change(HttpRequest& request, const Precondition&) {
  is_sent_ = true;
  looked_again_ = false;
  protocol().appends()->build_rename(request, request_.source_name, request_.name);
}

Match RenameAttempt::compare(const ObjectInfo& found) const {
  return compare_bytes(found, source_.size_bytes, source_.checksum);
}

bool RenameAttempt::is_proven_by(const ObjectInfo& found) {
  arrived_ = found;
  source_seen_ = false;
  return false;
}

std::optional<Error> RenameAttempt::wrong_result(const ObjectInfo& found) const {
  return Error(Code::kCorrupt, cat("it has ", found.size_bytes, " bytes and other ones than the ",
                                   source_.size_bytes, " of ", request_.source_name));
}

}  // namespace headrace
