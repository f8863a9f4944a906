// How many requests a host gets at once, and how fast: measured, not configured.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "headrace/base/mutex.h"

namespace headrace {

// What one I/O thread saw of a host since it last reported.
struct AdmissionReport {
  uint32_t completed = 0;  // answers that were not throttled
  uint32_t throttled = 0;  // 429, 503 SlowDown
  uint64_t bytes = 0;
  std::chrono::nanoseconds latency_sum{0};  // to the first byte, over `completed`
  bool limited = false;                     // more requests were waiting than the limit allowed
};

// The in-flight limit and the pace of one host: pure arithmetic, without a clock or threads.
//
// The limit doubles while that pays off (goodput up by a fifth), then holds and probes. A quarter
// more is kept if goodput rises; a fifth less is kept if latency is high and goodput does not
// suffer. Probes that do not pay off become rarer.
//
// There is a pace only once the server has throttled us: a limit cannot hold a rate when even one
// request at a time is too many. The pace starts at the rate that succeeded, and each refusal takes
// off a twentieth. Without refusals it recovers along a cubic curve: quickly back to the rate that
// was refused, slowly past it, then faster and faster, because a cap that is not hit again has
// moved. Clients that send more are refused more often, and a small share grows a little faster
// than a large one. Clients under the same hidden cap therefore end up with similar shares, and
// refusals stay rare.
// Thread: confined.
class AdmissionControl {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  AdmissionControl(uint32_t initial_limit, uint32_t max_limit);

  void report(const AdmissionReport& report, TimePoint now);

  uint32_t limit() const { return limit_; }
  // Requests per second; 0: unpaced.
  double pace_per_s() const { return pace_per_s_; }

 private:
  enum class Probe : uint8_t { kNone, kUp, kDown };

  void end_interval(double seconds);
  void adjust_limit(double goodput, double latency_s);
  void adjust_pace(double seconds);
  bool refused_many() const;  // in this interval
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

  double pace_per_s_ = 0;
  double edge_per_s_ = 0;   // the pace that was last refused ...
  double floor_per_s_ = 0;  // ... and what was left of it
  double clean_s_ = 0;      // since then
};

// The control, shared by the I/O threads of a host.
// Thread: any.
class Admission {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Admission(uint32_t initial_limit, uint32_t max_limit);

  uint32_t limit() const { return limit_.load(std::memory_order_relaxed); }
  // When the next request may be sent: `now`, unless the host is paced. Since the pace may change,
  // places are granted only for the near future; without a place, ask again at that time.
  struct Turn {
    TimePoint at;
    bool granted = true;
  };
  Turn reserve(TimePoint now);
  void report(const AdmissionReport& report, TimePoint now);
  double pace_per_s();  // 0: unpaced

 private:
  std::atomic<uint32_t> limit_;
  std::atomic<bool> paced_ = false;
  Mutex mutex_;
  AdmissionControl control_ HEADRACE_GUARDED_BY(mutex_);
  TimePoint next_send_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
