// How many requests a host gets at once: measured, not configured.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "headrace/base/mutex.h"
#include "headrace/store/transfer/latency_histogram.h"
#include "headrace/store/transfer/neighbours.h"

namespace headrace {

// What one I/O thread saw of a host since it last reported.
struct AdmissionReport {
  uint32_t completed = 0;   // answers that were not throttled ...
  uint32_t unhindered = 0;  // ... and of these, those to roots that never were
  uint32_t throttled = 0;   // 429, 503 SlowDown
  uint64_t bytes = 0;
  bool limited = false;  // more requests were waiting than the limit allowed
  // How long the completed requests waited for their first byte, or the first so many of them.
  static constexpr size_t kMaxLatencies = 16;
  std::array<LatencyHistogram::Bucket, kMaxLatencies> latencies{};
  uint8_t latency_count = 0;

  void add_latency(LatencyHistogram::Bucket latency) {
    if (latency_count < kMaxLatencies) latencies[latency_count++] = latency;
  }
};

// The in-flight limit of one host: pure arithmetic, without a clock or threads.
//
// It doubles while that pays off (goodput up by a fifth), then holds and probes. A quarter more is
// kept if goodput rises; a fifth less is kept if latency is high and goodput does not suffer.
// Probes that do not pay off become rarer. Latency is the median: a few slow answers are no queue.
// Nor does it count against more in flight if less was asked for: readers in order wait for a slow
// answer, and leave places empty.
//
// A rate that is refused is the business of the roots' paces (pace.h). Only if many requests are
// refused, and no root is let through, their number in flight may be the reason, and is reduced.
// Thread: confined.
class LimitControl {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  LimitControl(uint32_t initial_limit, uint32_t max_limit);

  // True if an interval has ended, so that all of the following may have changed.
  bool report(const AdmissionReport& report, TimePoint now);
  // What other processes may want to know of the last interval. None: the limit is not what held
  // requests back, or it is being looked for.
  std::optional<Neighbours::Share> share() const { return share_; }
  // Half of the way to the mean of the processes that share the host, unless something is being
  // tried out.
  void move_towards(double mean_limit);
  uint32_t limit() const { return limit_; }
  // Half of the requests or more take much longer than they did: the server, the link or this
  // machine has more to do than it can.
  bool queueing() const { return queueing_; }
  // How many requests to have under way or waiting, so that none of the places in flight is idle
  // while the slowest answers are waited for in order. At least twice the limit.
  uint64_t useful_ahead() const;

 private:
  enum class Probe : uint8_t { kNone, kUp, kDown };

  void end_interval(double seconds, double median_s);
  void hold_back();
  void adjust(double goodput);
  // Of the interval's requests: those that were completed while more were waiting.
  double limited_share() const { return static_cast<double>(limited_) / interval_.completed; }
  bool less_was_asked_for();
  void set_limit(double limit);

  const uint32_t max_limit_;
  uint32_t limit_;
  bool starting_ = true;
  AdmissionReport interval_;    // the current one
  uint32_t limited_ = 0;        // of its completed requests, while more were waiting
  LatencyHistogram latencies_;  // of its answers
  LatencyHistogram recent_;     // of several intervals
  TimePoint interval_began_{};
  bool queueing_ = false;
  // Of the interval before the present limit was set: goodput, and the share of its requests that
  // were completed while more were waiting.
  double last_goodput_ = 0, last_limited_share_ = 0;
  uint32_t undecided_ = 0;     // intervals since in which less was asked for
  double base_latency_s_ = 0;  // decaying minimum of medians
  uint32_t limit_before_probe_;
  Probe probe_ = Probe::kNone;
  uint32_t intervals_to_probe_ = 1, probe_patience_ = 1;
  std::optional<Neighbours::Share> share_;
};

// The control, shared by the I/O threads of a host.
// Thread: any.
class Admission {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `neighbours`: who else reads from the host. Null: nobody.
  Admission(uint32_t initial_limit, uint32_t max_limit,
            std::unique_ptr<Neighbours> neighbours = nullptr);

  uint32_t limit() const { return limit_.load(std::memory_order_relaxed); }
  bool queueing() const { return queueing_.load(std::memory_order_relaxed); }
  uint64_t useful_ahead() const { return useful_ahead_.load(std::memory_order_relaxed); }
  void report(const AdmissionReport& report, TimePoint now);

 private:
  std::atomic<uint32_t> limit_;
  std::atomic<bool> queueing_ = false;
  std::atomic<uint64_t> useful_ahead_;
  Mutex mutex_;
  LimitControl control_ HEADRACE_GUARDED_BY(mutex_);
  const std::unique_ptr<Neighbours> neighbours_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
