// What is retried, and when. Pure, except for the budget's counter.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>

#include "headrace/base/result.h"
#include "headrace/store/options.h"

namespace headrace {

// The engine's source of randomness, seeded by the system or by tests.
using Rng = std::minstd_rand;

// The last column of the error table. A pure function of the error. Retries with new
// credentials (once) and after a checksum mismatch (once) are decided elsewhere.
bool is_retryable(const Error& error);

// How long to wait before attempt `attempt + 1`: uniform in [0, initial * multiplier^(attempt-1)],
// bounded by max_backoff ("full jitter": https://aws.amazon.com/builders-library/
// timeouts-retries-and-backoff-with-jitter/). A Retry-After is a lower bound, and is
// stretched by up to a quarter so that clients told the same time do not return together.
std::chrono::milliseconds backoff(const RetryOptions& options, int attempt, const Error& error,
                                  Rng& rng);

// Bounds the share of retries per host, so that a struggling service does not see a multiple of its
// load.
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

// The state of one request, which decides what follows each attempt. No I/O; time is an argument.
// Thread: confined. Borrows its arguments.
class RetryState {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // What may help an attempt that failed, so that the same request is sent again at once.
  enum class Remedy : uint8_t {
    kNone,
    kFreshConnection,    // the server had closed the idle one
    kAnotherConnection,  // it was ended, so that the rest comes over another one
    kNewCredential,
    kElsewhere,  // refused: it belongs at another host or path
    kOtherWay,   // it was not sent, and there is another way
  };
  // How an attempt ended.
  struct Outcome {
    std::optional<Error> error = {};  // none: it succeeded
    bool follow_up = false;           // it succeeded, and another request follows
    Remedy remedy = Remedy::kNone;
    bool spoilt = false;     // what it sent has arrived as other bytes
    bool unsettled = false;  // it was refused by a cluster that is changing
    // It was sent before its time, in case the service answers again: what is left of its wait.
    std::chrono::milliseconds left_of_wait{0};

    bool moved() const { return remedy == Remedy::kElsewhere; }
    // The same host is asked again, over another connection.
    bool lost_connection() const {
      return remedy == Remedy::kFreshConnection || remedy == Remedy::kAnotherConnection;
    }
  };
  enum class Next : uint8_t {
    kDone,
    kAgain,  // the request that follows, or the same one with its remedy
    kRetry,
    kFail,
  };
  struct Step {
    Next next = Next::kDone;
    std::chrono::milliseconds wait{0};  // before it
    std::optional<Error> error = {};    // kFail: the request's error. Otherwise why, if it failed
  };

  RetryState(const RetryOptions& options, RetryBudget& budget, Rng& rng)
      : options_(options), budget_(budget), rng_(rng) {}

  void begin_attempt() { ++attempts_; }
  int attempts() const { return attempts_; }
  Step after(Outcome outcome, TimePoint now, TimePoint deadline);

 private:
  bool helps(Remedy remedy);
  // How many follow-up requests of one operation are sent without a pause. A large copy needs a
  // few.
  static constexpr int kFreeFollowUps = 16;
  // How often in a row one request is sent elsewhere: to a region, and to an endpoint there.
  static constexpr int kMaxRedirects = 3;
  // Between requests to a cluster that is changing.
  static constexpr std::chrono::milliseconds kMaxUnsettledWait{1000};

  const RetryOptions& options_;
  RetryBudget& budget_;
  Rng& rng_;
  int attempts_ = 0;
  int failures_ = 0, throttled_ = 0, follow_ups_ = 0, redirects_ = 0, unsettled_ = 0;
  bool was_stale_ = false, was_spoilt_ = false, credential_rejected_ = false;
};

}  // namespace headrace
