#include "headrace/store/transfer/attempt.h"

#include <algorithm>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/format/body_shape.h"

namespace headrace {
namespace {

// With these a host says that it does not have the object, or that it takes no requests but those
// that the store's endpoint has sent to it.
bool refuses_direct(int status) {
  return status == 400 || status == 401 || status == 403 || status == 404 || status == 503;
}

}  // namespace

Result<void> Attempt::on_head(const ResponseHead& head) {
  if (gate_ != nullptr) {
    if (Result<void> admitted = gate_->admit(head); !admitted) return admitted;
  }
  status_ = static_cast<uint16_t>(head.status);
  accepted_ = accepts(head.status);
  enough_.reset();
  body_bytes_ = 0;
  refusal_.reset();
  refused_as_direct_ = false;
  if (accepted_) return begin_body(head);
  refusal_text_.resize(kMaxRefusalBytes);
  refusal_filled_ = 0;
  head_.assign(head);
  refusal_head(head);
  return {};
}

Result<std::span<std::byte>> Attempt::space(uint64_t outstanding_bytes) {
  if (accepted_) return body_space(outstanding_bytes);
  // The beginning is kept; the rest is read into the second half over and over, and dropped.
  if (refusal_filled_ == refusal_text_.size()) refusal_filled_ /= 2;
  return std::as_writable_bytes(std::span(refusal_text_).subspan(refusal_filled_));
}

Result<void> Attempt::on_bytes(size_t count) {
  if (accepted_) {
    body_bytes_ += count;
    return took_body(count);
  }
  refusal_filled_ = static_cast<uint16_t>(refusal_filled_ + count);
  return {};
}

Result<Attempt::Verdict> Attempt::end() {
  if (accepted_) {
    refusal_ = late_refusal();
    if (!refusal_) return finish();
  } else {
    refusal_ = protocol_.refusal(
        error_response(std::string_view(refusal_text_).substr(0, refusal_filled_)));
  }
  refused_as_direct_ = direct_ && refuses_direct(head_.head().status);
  // What is no answer to the request itself is not for the subclass.
  const bool asks_for_credentials = renews_ && refusal_->stale_credentials;
  if (refusal_->moved || refusal_->elsewhere != nullptr || refused_as_direct_ ||
      asks_for_credentials || may_do_without()) {
    return std::unexpected(refusal_->error);
  }
  return refused(refusal_->error);
}

uint64_t TextAttempt::most_bytes() const {
  const uint64_t share = pool() != nullptr ? pool()->budget_bytes() / 4 : kMaxTextBytes;
  return std::clamp(share, kAlwaysBytes, kMaxTextBytes);
}

void TextAttempt::resize(uint64_t size_bytes) {
  charge_.reset();
  text_.resize(size_bytes);
  if (pool() != nullptr) charge_.emplace(pool()->shared_from_this(), size_bytes);
}

Result<void> TextAttempt::begin_body(const ResponseHead& head) {
  // What the head says of the length is not looked at: the answer to HEAD has the object's, and no
  // body.
  filled_ = 0;
  resize(0);
  head_.assign(head);
  return {};
}

Result<std::span<std::byte>> TextAttempt::body_space(uint64_t outstanding_bytes) {
  if (filled_ == text_.size()) {
    const uint64_t announced = filled_ + outstanding_bytes;
    if (announced > most_bytes()) {
      return fail(announced > kMaxTextBytes ? Code::kCorrupt : Code::kExhausted, "an answer of ",
                  announced, " bytes where metadata was expected; ", most_bytes(),
                  " are taken, a quarter of memory_budget_bytes");
    }
    if (filled_ >= most_bytes()) {
      return corrupt("an answer of more than ", most_bytes(), " bytes where metadata was expected");
    }
    if (filled_ == 0) {
      resize(std::clamp<uint64_t>(announced, 16 * kKiB, kAlwaysBytes));
    } else {
      const uint64_t wanted = outstanding_bytes == 0 ? filled_ * 2 : announced;
      resize(std::min({uint64_t{filled_} * 2, wanted, most_bytes()}));
    }
  }
  return std::as_writable_bytes(std::span(text_).subspan(filled_));
}

Result<void> TextAttempt::took_body(size_t count) {
  filled_ += count;
  return {};
}

std::optional<Refusal> TextAttempt::late_refusal() const {
  if (text().empty()) return std::nullopt;
  if (auto refusal = protocol().late_refusal(error_response(text()))) return refusal;
  if (!ignores_body()) return std::nullopt;
  const BodyShape shape = shape_of(text());
  if (shape == BodyShape::kEmpty || protocol().may_send(shape)) return std::nullopt;
  return Refusal{
      .error = Error(Code::kUnavailable,
                     cat("the answer has a good status and, where nothing belongs, ", label(shape),
                         ": it does not come from the service, but from a proxy or a page to log "
                         "in, say. It begins with: ",
                         printable_line(text(), 80)))
                   .with_http_status(head_.head().status)};
}

Result<ObjectInfo> TextAttempt::below_root(Result<ObjectInfo> info) const {
  if (!info) return info;
  if (Result<void> below = protocol().root().strip(*info); !below) {
    return std::unexpected(std::move(below.error()));
  }
  return info;
}

}  // namespace headrace
