#include "headrace/store/retry.h"

#include <algorithm>
#include <cmath>

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
  // Full is the usual case; it must not write to a line that all I/O threads share.
  if (tenths_.load(std::memory_order_relaxed) >= max_tenths_) return;
  tenths_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace headrace
