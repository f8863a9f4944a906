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
  // How long the first kMostTimes of the completed requests took, from when they were sent.
  struct Times {
    LatencyHistogram::Bucket first_byte, all;
  };
  static constexpr size_t kMostTimes = 16;
  std::array<Times, kMostTimes> times{};
  uint8_t time_count = 0;

  void add(Times of_one) {
    if (time_count < kMostTimes) times[time_count++] = of_one;
  }
  void add(std::chrono::nanoseconds first_byte, std::chrono::nanoseconds all) {
    add({LatencyHistogram::bucket_of(first_byte), LatencyHistogram::bucket_of(all)});
  }
};

// The in-flight limit of one host: pure arithmetic, without a clock or threads.
//
// It doubles while that pays off (goodput up by a fifth), then holds and probes. A quarter more is
// kept if goodput rises; a fifth less is kept if goodput does not suffer, and tried where latency
// is high or where much memory is in flight, which could hold what is ready. Goodput varies by
// itself, by a little or by half; so a probe lasts until it differs by more than chance explains,
// or until it is clear that it will not. Probes that do not pay off become rarer.
//
// Latency is the median: a few slow answers are no queue. Nor does it count against more in flight
// if less was asked for: readers in order wait for a slow answer, and leave places empty.
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
  bool queueing() const { return unqueued_share_ < 1; }
  // How many requests to have under way or waiting, so that none of the places in flight is idle
  // while the slowest answers are waited for in order. At least twice the limit.
  uint64_t useful_ahead() const;

 private:
  enum class Probe : uint8_t { kNone, kUp, kDown };
  static Probe opposite(Probe probe) { return probe == Probe::kUp ? Probe::kDown : Probe::kUp; }
  enum class Verdict : uint8_t { kUndecided, kKeep, kDrop };

  // Goodput at one limit.
  struct Goodput {
    double mean = 0;           // of the last intervals
    uint32_t intervals = 0;    // at most kMostIntervals
    double limited_share = 0;  // of the last one: see limited_share()
    void add(double goodput, double limited_share);
  };

  bool lasts_long_enough(double elapsed_s, double median_s) const;
  double mean_taken_s() const;
  void end_interval(double elapsed_s, double median_s);
  void hold_back();
  void start(double goodput);
  void adjust(double goodput);
  void begin_probe();
  Verdict judge_probe() const;
  void end_probe(Verdict verdict);
  bool is_other_times(double goodput) const;
  // Of the interval's requests: those that were completed while more were waiting.
  double limited_share() const { return static_cast<double>(limited_) / interval_.completed; }
  bool less_was_asked_for();
  void set_limit(double limit);

  const uint32_t max_limit_;
  uint32_t limit_;
  bool starting_ = true;
  AdmissionReport interval_;                  // the current one
  uint32_t limited_ = 0;                      // of its completed requests, while more were waiting
  LatencyHistogram latencies_, taken_;        // of its requests: to the first byte, and whole
  LatencyHistogram recent_, recently_taken_;  // of several intervals
  TimePoint interval_began_{};
  uint32_t held_back_from_ = 0;  // the limit before refusals lowered it; 0: it was tried again
  double unqueued_share_ = 1;    // of the limit, with which nothing would wait in a queue
  bool holds_much_ = false;      // memory, for what is in flight
  Goodput held_;                 // at the present limit or, amid a probe, the one before it
  Goodput probed_;               // amid a probe
  // By how much an interval differs from those before it at the same limit, in parts of their mean:
  // the mean of `differences_`, at most kMostDifferences.
  double difference_ = 0;
  uint32_t differences_ = 0;
  uint32_t undecided_ = 0;     // intervals of a probe in which less was asked for
  double base_latency_s_ = 0;  // decaying minimum of medians
  uint32_t limit_before_probe_;
  Probe probe_ = Probe::kNone;
  Probe next_probe_ = Probe::kUp;  // where there is no queue
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
