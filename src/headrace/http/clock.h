// Time, as I/O threads see it.
#pragma once

#include <chrono>
#include <memory>

#include "headrace/http/asio.h"

namespace headrace {

// What time it is, and when a timer expires. An argument, so that tests can move it by hand.
// Thread: any for now(), I/O for set().
class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  // The time of day, for signatures.
  virtual std::chrono::system_clock::time_point wall_now() const = 0;
  // Makes the timer's waits end when now() reaches `at`. As in Asio, waits already in progress end
  // at once.
  virtual void set(const std::shared_ptr<Timer>& timer, TimePoint at) = 0;

  // The machine's steady clock.
  static Clock& system();
};

}  // namespace headrace
