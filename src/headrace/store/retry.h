// What is tried again, and when. Pure, but for the budget's counter.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>

#include "headrace/base/result.h"
#include "headrace/store/options.h"

namespace headrace {

// The engine's source of randomness: seeded by tests, by the system otherwise.
using Rng = std::minstd_rand;

// The last column of the error table. A pure function of the error; 401 (once, with a new token)
// and a failed checksum (once) are the business of those who can do something about them.
bool is_retryable(const Error& error);

// How long to wait before attempt `attempt + 1`: uniform in [0, initial * multiplier^(attempt-1)],
// bounded by max_backoff ("full jitter": https://aws.amazon.com/builders-library/
// timeouts-retries-and-backoff-with-jitter/). A Retry-After is a lower bound, and is
// stretched by up to a quarter so that clients told the same time do not return together.
std::chrono::milliseconds backoff(const RetryOptions& options, int attempt, const Error& error,
                                  Rng& rng);

// Bounds the share of retries per host: a broken service must not see a multiple of its load.
// Thread: any.
class RetryBudget {
 public:
  explicit RetryBudget(uint32_t tokens)
      : max_tenths_(int64_t{tokens} * 10), tenths_(int64_t{tokens} * 10) {}

  bool try_spend();  // one retry
  void earn();       // one success

 private:
  const int64_t max_tenths_;
  std::atomic<int64_t> tenths_;
};

}  // namespace headrace
