#include "headrace/store/transfer/retry.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headrace {

bool is_retryable(const Error& error) {
  switch (error.code()) {
    case Code::kThrottled:
    case Code::kUnavailable:
    case Code::kTimedOut: return true;
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kPermissionDenied:
    case Code::kPreconditionFailed:
    case Code::kCorrupt:
    case Code::kCancelled:
    case Code::kExhausted:
    case Code::kInternal: return false;
  }
  return false;
}

std::chrono::milliseconds backoff(const RetryOptions& options, int attempt, const Error& error,
                                  Rng& rng) {
  const double bound_ms = std::min(static_cast<double>(options.max_backoff.count()),
                                   static_cast<double>(options.initial_backoff.count()) *
                                       std::pow(options.backoff_multiplier, attempt - 1));
  const double jittered_ms = std::uniform_real_distribution<double>(0.0, bound_ms)(rng);
  double wait_ms = jittered_ms;
  if (error.retry_after()) {
    const auto asked_ms = static_cast<double>(error.retry_after()->count());
    wait_ms = std::max(wait_ms, asked_ms + std::min(jittered_ms, asked_ms / 4));
  }
  return std::chrono::milliseconds(static_cast<int64_t>(wait_ms));
}

bool RetryBudget::try_spend() {
  int64_t have = tenths_.load(std::memory_order_relaxed);
  do {
    if (have < 10) return false;
  } while (!tenths_.compare_exchange_weak(have, have - 10, std::memory_order_relaxed));
  return true;
}

void RetryBudget::earn() {
  // Usually it is full; then it must not write to a cache line that all I/O threads share.
  if (tenths_.load(std::memory_order_relaxed) >= max_tenths_) return;
  tenths_.fetch_add(1, std::memory_order_relaxed);
}

// Whether it is tried, which costs no attempt but where credentials are new.
bool RetryState::helps(Remedy remedy) {
  switch (remedy) {
    case Remedy::kNone: return false;
    case Remedy::kNewCredential: return !std::exchange(credential_rejected_, true);
    // A second failure on a reused connection has another cause than idleness.
    case Remedy::kFreshConnection:
      if (std::exchange(was_stale_, true)) return false;
      break;
    case Remedy::kElsewhere:
      was_stale_ = false;  // its connections may have been closed, too
      break;
    case Remedy::kAnotherConnection:
    case Remedy::kOtherWay: break;
  }
  --attempts_;
  return true;
}

RetryState::Step RetryState::after(Outcome outcome, TimePoint now, TimePoint deadline) {
  redirects_ = outcome.moved() ? redirects_ + 1 : 0;
  if (!outcome.error) {
    budget_.earn();
    if (!outcome.follow_up) return {.next = Next::kDone};
    Step step{.next = Next::kAgain};
    if (++follow_ups_ > kFreeFollowUps) {
      step.wait = backoff(options_, 1, Error(Code::kUnavailable, ""), rng_);
    }
    return step;
  }
  Error& error = *outcome.error;
  const auto fail_with = [&error](Code code, std::string message) {
    return Step{.next = Next::kFail,
                .error = std::move(error).with_code(code).with_message(std::move(message))};
  };
  if (redirects_ > kMaxRedirects) {
    return fail_with(error.code(),
                     cat(error.message(), " (sent elsewhere ", redirects_, " times in a row)"));
  }
  if (helps(outcome.remedy)) return {.next = Next::kAgain, .error = std::move(error)};
  if (outcome.unsettled) {
    // It costs no attempt: how long this may go on is decided elsewhere.
    const auto wait = std::min(backoff(options_, ++unsettled_, error, rng_), kMaxUnsettledWait);
    if (now + wait < deadline)
      return {.next = Next::kRetry, .wait = wait, .error = std::move(error)};
    return {.next = Next::kFail, .error = std::move(error)};
  }
  const bool throttled = error.code() == Code::kThrottled;
  const auto retry_after = [&](std::chrono::milliseconds wait) {
    if (now + wait < deadline) {
      return Step{.next = Next::kRetry, .wait = wait, .error = std::move(error)};
    }
    return fail_with(throttled ? Code::kThrottled : Code::kTimedOut,
                     cat("its deadline is too near for another attempt; the last one failed with: ",
                         error.message()));
  };
  if (outcome.left_of_wait.count() > 0 && is_retryable(error)) {
    --attempts_;  // its time is still to come
    return retry_after(
        std::max(outcome.left_of_wait, error.retry_after().value_or(std::chrono::milliseconds(0))));
  }
  // Throttling is not a failure of the request, which continues until its deadline.
  ++(throttled ? throttled_ : failures_);
  if (!throttled) {
    // The way there may spoil bytes once; bytes that are spoilt again will always be.
    const bool again = is_retryable(error) || (outcome.spoilt && !std::exchange(was_spoilt_, true));
    if (!again || std::cmp_greater_equal(failures_, options_.max_attempts)) {
      return {.next = Next::kFail, .error = std::move(error)};
    }
    if (!budget_.try_spend()) {
      return fail_with(error.code(), cat(error.message(), " (the host's retry budget is used up)"));
    }
  }
  return retry_after(backoff(options_, failures_ + throttled_, error, rng_));
}

}  // namespace headrace
