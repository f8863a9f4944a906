// A time in which a service gives nothing but failures, and when to ask it again.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "headrace/base/mutex.h"
#include "headrace/store/transfer/retry.h"

namespace headrace {

// Failures one after the other, without a success between them. Requests that failed meanwhile wait
// each for itself, up to many times as long as the service is away, and would come back long after
// it. So one of them is sent before its time now and then, to see whether the service answers; and
// once it does, each answer calls two more of them, until they are all back.
//
// A few failures are no outage, and each of those requests backs off by itself. Nor are refusals
// for a moment: a service with a quota per second refuses everything once it is used up. Thread:
// any.
class Outage {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // This many failures in a row are a failure of the service.
  static constexpr uint32_t kCertain = 4;
  // After this long without a sign of life, or a quarter of the outage so far if that is longer, a
  // request is sent before its time.
  static constexpr std::chrono::milliseconds kLeastProbe{250};

  // `least`: if it ends sooner, it was none.
  Outage(TimePoint now, std::chrono::milliseconds least) : since_(now), least_(least) {}

  // It was certain, and a request has succeeded since.
  bool is_over() const { return is_over_.load(std::memory_order_relaxed) && is_certain(); }
  // When the next request is to be sent before its time; none: each waits as long as it has to.
  std::optional<TimePoint> next_probe() const;
  // Whether it is the caller who sends it.
  bool take_probe(TimePoint now, Rng& rng);

 private:
  friend class OutageWatch;
  bool is_certain() const { return is_certain_.load(std::memory_order_relaxed); }
  void failed(TimePoint now, Rng& rng);
  void plan_probe(TimePoint now, Rng& rng) HEADRACE_REQUIRES(mutex_);

  const TimePoint since_;
  const std::chrono::milliseconds least_;
  std::atomic<bool> is_certain_ = false;
  std::atomic<bool> is_over_ = false;
  mutable Mutex mutex_;
  uint32_t failures_ HEADRACE_GUARDED_BY(mutex_) = 0;
  TimePoint next_probe_ HEADRACE_GUARDED_BY(mutex_);
};

// Tells the outages of one service: a host, as far as it fails; a root, as far as it is throttled.
// Thread: any. An answer amid successes takes no lock and writes nothing.
class OutageWatch {
 public:
  using TimePoint = Outage::TimePoint;

  explicit OutageWatch(std::chrono::milliseconds least = {}) : least_(least) {}
  // A request failed in a way that may pass. Never null.
  std::shared_ptr<Outage> failed(TimePoint now, Rng& rng);
  // One succeeded. True if that ends an outage.
  bool succeeded() { return failing_.load(std::memory_order_relaxed) && end(); }

 private:
  bool end();

  const std::chrono::milliseconds least_;
  std::atomic<bool> failing_ = false;
  Mutex mutex_;
  std::shared_ptr<Outage> outage_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
