// Errors as values. The engine throws nothing of its own; bindings turn an Error into an exception.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace headrace {

// One table, three readers: is_retryable(), the Python classes (bindings/errors.cc), and
// docs/reference/errors.md.
enum class Code : uint8_t {
  kInvalidArgument,     // bad option, HTTP 400
  kNotFound,            // 404
  kPermissionDenied,    // 401, 403
  kPreconditionFailed,  // 412, or 304 on a condition
  kThrottled,           // 429, 503 SlowDown
  kUnavailable,         // other 5xx, reset, refused, DNS
  kTimedOut,            // 408, a deadline of ours
  kCorrupt,             // checksum, short body, bad archive
  kCancelled,           // destroyed, stopped, interrupted
  kExhausted,           // memory budget, file descriptors
  kInternal,            // a bug of ours
};

std::string_view to_string(Code code);

// What went wrong, with what is needed to act on it. One pointer wide, so that a Result<T> costs no
// more than T and a word. Thread: confined.
class Error {
 public:
  Error(Code code, std::string message);
  Error(const Error& other);
  Error(Error&&) noexcept = default;
  Error& operator=(const Error& other);
  Error& operator=(Error&&) noexcept = default;
  ~Error() = default;

  Code code() const { return details_->code; }
  const std::string& message() const { return details_->message; }  // without URL or attempts
  const std::string& url() const { return details_->url; }          // "" if it concerns no object
  int http_status() const { return details_->http_status; }         // 0 if no answer came
  const std::string& request_id() const { return details_->request_id; }
  int attempts() const { return details_->attempts; }  // 0 if nothing was sent
  // How long the server asked us to wait (Retry-After).
  std::optional<std::chrono::milliseconds> retry_after() const { return details_->retry_after; }

  // The same error of another kind, or in other words.
  Error&& with_code(Code code) &&;
  Error&& with_message(std::string message) &&;
  // Its words, with these in front and behind.
  Error&& with_words(std::string_view before, std::string_view behind = "") &&;
  Error&& with_url(std::string url) &&;
  Error&& with_http_status(int http_status) &&;
  Error&& with_request_id(std::string request_id) &&;
  Error&& with_attempts(int attempts) &&;
  Error&& with_retry_after(std::optional<std::chrono::milliseconds> retry_after) &&;

  // "gs://b/o: no such object (HTTP 404, 1 attempt)"
  std::string to_string() const;

 private:
  struct Details {
    Code code;
    std::string message;
    std::string url = {};
    int http_status = 0;
    std::string request_id = {};
    int attempts = 0;
    std::optional<std::chrono::milliseconds> retry_after = {};
  };
  std::unique_ptr<Details> details_;  // null only after a move
};

// A value or an Error. Ignoring one does not compile.
template <class T>
class [[nodiscard]] Result : public std::expected<T, Error> {
 public:
  using std::expected<T, Error>::expected;
  Result() = default;
};

// Joins its arguments into one string: numbers in decimal, text as it is.
template <class... Args>
std::string cat(const Args&... args) {
  std::string out;
  const auto append = [&out](const auto& arg) {
    if constexpr (std::convertible_to<decltype(arg), std::string_view>) {
      out += std::string_view(arg);
    } else {
      out += std::to_string(arg);
    }
  };
  (append(args), ...);
  return out;
}

template <class... Args>
std::unexpected<Error> fail(Code code, const Args&... args) {
  return std::unexpected(Error(code, cat(args...)));
}
template <class... Args>
std::unexpected<Error> invalid_argument(const Args&... args) {
  return fail(Code::kInvalidArgument, args...);
}
template <class... Args>
std::unexpected<Error> corrupt(const Args&... args) {
  return fail(Code::kCorrupt, args...);
}

}  // namespace headrace
