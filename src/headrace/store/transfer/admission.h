// How many requests a host gets at once: measured, not configured.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "headrace/base/mutex.h"

namespace headrace {

// What one I/O thread saw of a host since it last reported.
struct AdmissionReport {
  uint32_t completed = 0;   // answers that were not throttled ...
  uint32_t unhindered = 0;  // ... and of these, those to roots that never were
  uint32_t throttled = 0;   // 429, 503 SlowDown
  uint64_t bytes = 0;
  std::chrono::nanoseconds latency_sum{0};  // to the first byte, over `completed`
  bool limited = false;                     // more requests were waiting than the limit allowed
};

// The in-flight limit of one host: pure arithmetic, without a clock or threads.
//
// It doubles while that pays off (goodput up by a fifth), then holds and probes. A quarter more is
// kept if goodput rises; a fifth less is kept if latency is high and goodput does not suffer.
// Probes that do not pay off become rarer.
//
// A rate that is refused is the business of the roots' paces (pace.h). Only if many requests are
// refused, and no root is let through, their number in flight may be the reason, and is reduced.
// Thread: confined.
class LimitControl {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  LimitControl(uint32_t initial_limit, uint32_t max_limit);

  void report(const AdmissionReport& report, TimePoint now);
  uint32_t limit() const { return limit_; }

 private:
  enum class Probe : uint8_t { kNone, kUp, kDown };

  void end_interval(double seconds);
  void hold_back();
  void adjust(double goodput, double latency_s);
  void set_limit(double limit);

  const uint32_t max_limit_;
  uint32_t limit_;
  bool starting_ = true;
  AdmissionReport interval_;  // of the current interval
  TimePoint interval_began_{};
  double last_goodput_ = 0;    // of the interval before the present limit was set
  double base_latency_s_ = 0;  // decaying minimum
  uint32_t limit_before_probe_;
  Probe probe_ = Probe::kNone;
  uint32_t intervals_to_probe_ = 1, probe_patience_ = 1;
};

// The control, shared by the I/O threads of a host.
// Thread: any.
class Admission {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Admission(uint32_t initial_limit, uint32_t max_limit);

  uint32_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void report(const AdmissionReport& report, TimePoint now);

 private:
  std::atomic<uint32_t> limit_;
  Mutex mutex_;
  LimitControl control_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
