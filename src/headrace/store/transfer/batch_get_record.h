// What is known of the hosts that have requests for many objects.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "headrace/base/mutex.h"
#include "headrace/store/learned.h"
#include "headrace/store/transfer/fetch_choice.h"

namespace headrace {

// What this process has found out about one host's requests for many objects.
// Thread: any.
class BatchGetRecord {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Learned taken;  // the first request tells

  // Whether what is asked for by range comes as a range.
  bool takes_ranges() const { return takes_ranges_.load(std::memory_order_relaxed); }
  void ignores_ranges() { takes_ranges_.store(false, std::memory_order_relaxed); }

  bool is_paused(TimePoint now) const {
    return now < paused_until_.load(std::memory_order_relaxed);
  }
  // It takes more than twice as long each time in a row, up to 64 times.
  void failed(TimePoint now, std::chrono::milliseconds pause) {
    const uint32_t doublings = std::min(failures_.fetch_add(1, std::memory_order_relaxed), 6u);
    paused_until_.store(now + pause * (1 << doublings), std::memory_order_relaxed);
  }
  void worked() { failures_.store(0, std::memory_order_relaxed); }

  // See FetchChoice.
  bool holds_back(const FetchChoice::Load& load) const {
    const Lock lock(mutex_);
    return choice_.holds_back(load);
  }
  FetchChoice::Ticket begin(const FetchChoice::Load& load, TimePoint now) {
    const Lock lock(mutex_);
    return choice_.begin(load, now);
  }
  // Begins what goes alone, if nothing is to be tried.
  std::optional<FetchChoice::Ticket> begin_alone(const FetchChoice::Load& load, TimePoint now) {
    const Lock lock(mutex_);
    if (choice_.settled(load, now) != FetchWay::kAlone) return {};
    return choice_.begin(load, now);
  }
  void end(const FetchChoice::Ticket& ticket, bool failed, TimePoint now) {
    const Lock lock(mutex_);
    choice_.end(ticket, failed, now);
  }

 private:
  std::atomic<bool> takes_ranges_ = true;
  std::atomic<uint32_t> failures_ = 0;  // in a row
  std::atomic<TimePoint> paused_until_ = TimePoint::min();
  mutable Mutex mutex_;
  FetchChoice choice_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
