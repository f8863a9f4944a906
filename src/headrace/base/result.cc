#include "headrace/base/result.h"

namespace headrace {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kNotFound: return "not found";
    case Code::kPermissionDenied: return "permission denied";
    case Code::kPreconditionFailed: return "precondition failed";
    case Code::kThrottled: return "throttled";
    case Code::kUnavailable: return "unavailable";
    case Code::kTimedOut: return "timed out";
    case Code::kCorrupt: return "corrupt data";
    case Code::kCancelled: return "cancelled";
    case Code::kExhausted: return "resource exhausted";
    case Code::kInternal: return "internal error";
  }
  return "internal error";
}

Error::Error(Code code, std::string message)
    : details_(new Details{.code = code, .message = std::move(message)}) {}

Error::Error(const Error& other) : details_(new Details(*other.details_)) {}

Error& Error::operator=(const Error& other) {
  if (this != &other) details_.reset(new Details(*other.details_));
  return *this;
}

Error&& Error::with_code(Code code) && {
  details_->code = code;
  return std::move(*this);
}

Error&& Error::with_message(std::string message) && {
  details_->message = std::move(message);
  return std::move(*this);
}

Error&& Error::with_words(std::string_view before, std::string_view behind) && {
  details_->message = cat(before, details_->message, behind);
  return std::move(*this);
}

Error&& Error::with_url(std::string url) && {
  details_->url = std::move(url);
  return std::move(*this);
}

Error&& Error::with_http_status(int http_status) && {
  details_->http_status = http_status;
  return std::move(*this);
}

Error&& Error::with_request_id(std::string request_id) && {
  details_->request_id = std::move(request_id);
  return std::move(*this);
}

Error&& Error::with_attempts(int attempts) && {
  details_->attempts = attempts;
  return std::move(*this);
}

Error&& Error::with_retry_after(std::optional<std::chrono::milliseconds> retry_after) && {
  details_->retry_after = retry_after;
  return std::move(*this);
}

std::string Error::to_string() const {
  std::string out;
  if (!url().empty()) out = cat(url(), ": ");
  out += message();
  std::string facts;
  if (http_status() != 0) facts += cat("HTTP ", http_status());
  if (attempts() != 0) {
    if (!facts.empty()) facts += ", ";
    facts += cat(attempts(), attempts() == 1 ? " attempt" : " attempts");
  }
  if (!request_id().empty()) {
    if (!facts.empty()) facts += ", ";
    facts += cat("request ", request_id());
  }
  if (!facts.empty()) out += cat(" (", facts, ")");
  return out;
}

}  // namespace headrace
