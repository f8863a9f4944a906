#include "headrace/store/writing/write_attempts.h"

#include <utility>

#include "headrace/format/amz_checksum.h"
#include "headrace/store/composing.h"

namespace headrace {

using std::chrono::steady_clock;

WriteAttempt::WriteAttempt(const Protocol& protocol, WriteRequest request,
                           std::span<const std::byte> bytes, WriteFacts facts)
    : WriteAttempt(
          protocol, std::move(request),
          std::make_shared<UploadPart>(UploadPart{
              .size_bytes = bytes.size(), .crc32c = Crc32c().extended(bytes), .spans = {bytes}}),
          std::move(facts)) {}

WriteAttempt::WriteAttempt(const Protocol& protocol, WriteRequest request,
                           std::shared_ptr<const UploadPart> part, WriteFacts facts)
    : PublishAttempt(protocol, request.name, request.precondition, &facts.conditions),
      request_(std::move(request)),
      part_(std::move(part)),
      sums_(part_, std::move(facts.sums)) {}

void WriteAttempt::build_change(HttpRequest& request, const Precondition& precondition) {
  request_.precondition = precondition;
  protocol().build_write(request, request_, part_->spans, sums_.next(), scratch_);
  sums_.supervise(request, /*readers=*/nullptr, pool());  // such a part has no source
}

Result<Attempt::Verdict> WriteAttempt::finish_change() {
  if (!protocol().tells_written(response().head)) {
    if (!std::exchange(untold_, true)) return look_at_result();
    return fail(Code::kUnavailable,
                "the server says that it has written the object, but has another one, or none");
  }
  Result<ObjectInfo> written =
      below_root(protocol().parse_written(response(), request_, part_->size_bytes));
  if (!written) return std::unexpected(std::move(written.error()));
  // An unknown sum is fine: the server refuses bytes that do not match the one sent with them.
  const SumsOfPart::Told told = sums_.told(protocol(), response().head);
  if (const Checksum wrong = sums_.contradiction(told); !wrong.empty()) {
    return corrupt("the server stored bytes with ", label(wrong.kind()), " ", to_base64(wrong),
                   " of the ", part_->size_bytes, " bytes with ", label(wrong.kind()), " ",
                   to_base64(sums_.of(wrong.kind())), " that were sent");
  }
  if (compare(*written) == Match::kOther) {
    return corrupt("the server stored ", written->size_bytes, " bytes", crc32c_text(*written),
                   " of the ", part_->size_bytes, " bytes with CRC32C ", part_->crc32c.to_base64(),
                   " that were sent");
  }
  // To write it once more would make another version of it: the next one has what proves it.
  if (Result<void> good = sums_.accepted_for_good(told); !good) {
    return std::unexpected(std::move(good.error()));
  }
  result = std::move(written);
  return Verdict::kDone;
}

Match WriteAttempt::compare(const ObjectInfo& found) const {
  const ChecksumKind kind = found.checksum.kind();
  const bool is_sized = found.size_bytes == part_->size_bytes;
  const Match match =
      compare_bytes(found, part_->size_bytes, is_sized ? sums_.of(kind) : Checksum());
  if (match != Match::kUnknown || !sums_.has_md5_etags()) return match;
  const std::optional<Checksum> md5 = md5_of_etag(found.generation);
  return md5 == sums_.of(ChecksumKind::kMd5) ? Match::kSame : match;
}

Result<void> check_copy_source(const CopyRequest& request, const ObjectInfo& source,
                               const std::string& url) {
  if (request.source_generation.empty() || request.source_generation == source.generation) {
    return {};
  }
  return fail(Code::kPreconditionFailed, url, " has changed: generation ",
              request.source_generation, " is no longer the live one");
}

CopyAttempt::CopyAttempt(const Protocol& protocol, CopyRequest request)
    : PublishAttempt(protocol, request.name, request.precondition), request_(std::move(request)) {}

CopyAttempt::CopyAttempt(const Protocol& protocol, CopyRequest request, ObjectInfo source)
    : CopyAttempt(protocol, std::move(request)) {
  take_source(std::move(source));
}

void CopyAttempt::take_source(ObjectInfo source) {
  source_ = std::move(source);
  source_seen_ = true;
  request_.source_generation = source_.generation;
}

std::string CopyAttempt::url() const {
  return before_change() && !source_seen_ ? protocol().url_of(request_.source_name)
                                          : PublishAttempt::url();
}

bool CopyAttempt::build_first(HttpRequest& request) {
  if (source_seen_) return false;
  protocol().build_stat(request, request_.source_name);
  return true;
}

Result<Attempt::Verdict> CopyAttempt::finish_first() {
  Result<ObjectInfo> source = found_object(request_.source_name);
  if (!source) return std::unexpected(std::move(source.error()));
  if (Result<void> good =
          check_copy_source(request_, *source, protocol().url_of(request_.source_name));
      !good) {
    return std::unexpected(std::move(good.error()));
  }
  take_source(std::move(*source));
  return Verdict::kAgain;
}

void CopyAttempt::build_change(HttpRequest& request, const Precondition& precondition) {
  request_.precondition = precondition;
  protocol().copies()->build_copy(request, request_, token_);
}

Result<Attempt::Verdict> CopyAttempt::finish_change() {
  Result<CopyStep> step = protocol().copies()->parse_copy(response());
  if (!step) return take_refusal(std::move(step.error()));
  if (!step->done) {
    token_ = std::move(step->token);
    return Verdict::kAgain;
  }
  if (!step->object) return look_at_result();
  Result<ObjectInfo> copy = below_root(std::move(*step->object));
  if (!copy) return std::unexpected(std::move(copy.error()));
  if (!is_good(compare(*copy))) return std::unexpected(*wrong_result(*copy));
  result = std::move(copy);
  return Verdict::kDone;
}

std::optional<Error> CopyAttempt::wrong_result(const ObjectInfo& found) const {
  return Error(Code::kCorrupt, cat("the copy is not equal to its source: it has ", found.size_bytes,
                                   " bytes", crc32c_text(found)));
}

Match CopyAttempt::compare(const ObjectInfo& found) const { return compare_copy(found, source_); }

ComposeAttempt::ComposeAttempt(const Protocol& protocol, ComposeRequest request)
    : PublishAttempt(protocol, request.name, request.precondition), request_(std::move(request)) {
  for (const ComposeSource& source : request_.sources) {
    size_bytes_ += source.size_bytes;
    crc32c_ = crc32c_.joined(source.crc32c, source.size_bytes);
  }
}

void ComposeAttempt::build_change(HttpRequest& request, const Precondition& precondition) {
  request_.precondition = precondition;
  protocol().composing()->build_compose(request, request_, scratch_);
}

Result<Attempt::Verdict> ComposeAttempt::finish_change() {
  Result<ObjectInfo> composed = below_root(protocol().composing()->parse_composed(response()));
  if (!composed) return std::unexpected(std::move(composed.error()));
  if (compare(*composed) != Match::kSame) {
    return corrupt("the server composed ", composed->size_bytes, " bytes", crc32c_text(*composed),
                   " out of ", request_.sources.size(), " objects with ", size_bytes_,
                   " bytes and CRC32C ", crc32c_.to_base64());
  }
  result = std::move(composed);
  return Verdict::kDone;
}

Match ComposeAttempt::compare(const ObjectInfo& found) const {
  return compare_bytes(found, size_bytes_, crc32c_);
}

RemoveAttempt::RemoveAttempt(const Protocol& protocol, std::string name, Precondition precondition,
                             Learned& conditions)
    : TextAttempt(protocol),
      name_(std::move(name)),
      precondition_(std::move(precondition)),
      has_to_look_(!protocol.tells_missing_on_removal() ||
                   (protocol.looks_before_writes() && precondition_.generation)),
      looks_(has_to_look_),
      conditions_(conditions) {
  const bool is_known_refused = precondition_.generation &&
                                precondition_.if_refused == Precondition::IfRefused::kLookFirst &&
                                conditions_.at(steady_clock::now()) == Learned::Treatment::kRefused;
  if (is_known_refused) is_left_out_ = has_to_look_ = looks_ = true;
}

void RemoveAttempt::build(HttpRequest& request) {
  if (looks_) {
    protocol().build_stat(request, name_);
  } else {
    protocol().build_remove(request, name_, is_left_out_ ? Precondition() : precondition_);
  }
}

Result<Attempt::Verdict> RemoveAttempt::finish() {
  if (looks_) {
    // Some services ignore the condition of a removal.
    const Result<ObjectInfo> found = found_object(name_);
    if (!found) return std::unexpected(found.error());
    const std::string& wanted = precondition_.generation.value_or("");
    if (!wanted.empty() && wanted != found->generation) {
      return fail(Code::kPreconditionFailed, unmet_condition(wanted));
    }
    looks_ = false;
    return Verdict::kAgain;
  }
  if (was_refused_) conditions_.note(Learned::Treatment::kRefused, steady_clock::now());
  result = true;
  return Verdict::kDone;
}

void RemoveAttempt::will_retry() {
  if (looks_) return;
  lost_before_ = true;
  look_again();
}

void RemoveAttempt::look_again() { looks_ = has_to_look_ && precondition_.generation.has_value(); }

Result<Attempt::Verdict> RemoveAttempt::refused(Error error) {
  const bool is_unknown = error.http_status() == 501 || error.http_status() == 400;
  if (!looks_ && precondition_.if_refused == Precondition::IfRefused::kLookFirst &&
      precondition_.generation && !is_left_out_ && is_unknown &&
      error.code() == Code::kInvalidArgument) {
    was_refused_ = is_left_out_ = has_to_look_ = looks_ = true;
    return Verdict::kAgain;
  }
  if (lost_before_ && error.code() == Code::kNotFound) {
    result = true;
    return Verdict::kDone;
  }
  if (!looks_ && error.code() == Code::kThrottled) look_again();  // it is sent again much later
  return std::unexpected(std::move(error));
}

}  // namespace headrace
