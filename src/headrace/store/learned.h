// What was found out about a service by asking it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace headrace {

// How a service treats one thing that services differ in. Less than the best is forgotten after a
// while, so that it is tried again: services learn, too.
// Time is an argument. Thread: any.
class Learned {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::minutes kForgottenAfter{10};
  enum class Treatment : uint8_t {
    kUnknown,
    kTaken,    // it does what it is asked
    kIgnored,  // it accepts it, and does not do it
    kRefused,
  };

  Treatment at(TimePoint now) const {
    const int64_t told = told_.load(std::memory_order_relaxed);
    const auto answer = static_cast<Treatment>(told & kMask);
    if (answer == Treatment::kUnknown || answer == Treatment::kTaken) return answer;
    return now.time_since_epoch().count() < told >> kBits ? answer : Treatment::kUnknown;
  }
  // True if that is news.
  bool note(Treatment answer, TimePoint now) {
    const bool is_news = at(now) != answer;
    const bool lasts = answer == Treatment::kUnknown || answer == Treatment::kTaken;
    const int64_t until = lasts ? 0 : (now + kForgottenAfter).time_since_epoch().count();
    const int64_t told = until << kBits | static_cast<int64_t>(answer);
    if (told_.load(std::memory_order_relaxed) != told) {
      told_.store(told, std::memory_order_relaxed);
    }
    return is_news;
  }

 private:
  static constexpr int kBits = 2;
  static constexpr int64_t kMask = (1 << kBits) - 1;
  // Above the answer: until when it is believed, in the clock's nanoseconds (73 years are enough).
  std::atomic<int64_t> told_ = 0;
};

}  // namespace headrace
