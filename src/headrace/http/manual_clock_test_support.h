// A clock that stands still until a test moves it.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "headrace/http/clock.h"

namespace headrace {

// Timers set on it expire when it is moved past them; their handlers run when the io_context does.
// Begins at the machine's time, which credentials compare with.
// Thread: confined.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  std::chrono::system_clock::time_point wall_now() const override {
    return std::chrono::system_clock::time_point(
        std::chrono::duration_cast<std::chrono::system_clock::duration>(now_.time_since_epoch()));
  }

  void set(const std::shared_ptr<Timer>& timer, TimePoint at) override {
    std::erase_if(alarms_, [&](const Alarm& alarm) {
      const std::shared_ptr<Timer> other = alarm.timer.lock();
      return !other || other == timer;
    });
    timer->expires_at(at <= now_ ? TimePoint::min() : TimePoint::max());
    if (at > now_) alarms_.push_back({.timer = timer, .at = at});
  }

  void advance(std::chrono::nanoseconds by) {
    now_ += by;
    std::erase_if(alarms_, [this](const Alarm& alarm) {
      if (alarm.at > now_) return false;
      if (const std::shared_ptr<Timer> timer = alarm.timer.lock()) timer->cancel();
      return true;
    });
  }

  // To the next timer. False if none is set.
  bool advance_to_next() {
    std::erase_if(alarms_, [](const Alarm& alarm) { return alarm.timer.expired(); });
    if (alarms_.empty()) return false;
    advance(std::ranges::min(alarms_, {}, &Alarm::at).at - now_);
    return true;
  }

 private:
  struct Alarm {
    std::weak_ptr<Timer> timer;
    TimePoint at;
  };
  TimePoint now_ = std::chrono::steady_clock::now();
  std::vector<Alarm> alarms_;
};

}  // namespace headrace
