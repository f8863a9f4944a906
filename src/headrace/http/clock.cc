#include "headrace/http/clock.h"

namespace headrace {
namespace {

class SystemClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
  std::chrono::system_clock::time_point wall_now() const override {
    return std::chrono::system_clock::now();
  }
  void set(const std::shared_ptr<Timer>& timer, TimePoint at) override { timer->expires_at(at); }
};

}  // namespace

Clock& Clock::system() {
  static SystemClock clock;
  return clock;
}

}  // namespace headrace
