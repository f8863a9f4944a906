// The processes of this machine that read from the same host, each with a limit of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace {

// On a busy server or machine, a process's share of the throughput is proportional to its requests
// in flight, so that each would gain by sending more. The processes of one user therefore tell each
// other their limits in shared memory, and each moves towards the mean. The sum of the limits stays
// the same.
//
// Only like counts like: processes that ask for as much as they get, have the same ceiling, and
// read objects of a like size. Nothing depends on it: without such memory (no /dev/shm, a full
// one, more processes than seats) there is nobody.
// Thread: confined.
class Neighbours {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr size_t kMostProcesses = 512;          // times hosts that each of them uses
  static constexpr std::chrono::seconds kForgotten{60};  // after which a seat may be taken
  static constexpr int kFreshIntervals = 3;              // as long as what was told counts

  // What a process does with the host, while it asks for as much as it gets.
  struct Share {
    uint32_t limit = 0;
    uint32_t max_limit = 0;                // which `limit` cannot exceed
    uint64_t request_bytes = 0;            // of the average answer
    bool is_busy = false;                  // answers take longer than when there was less to do
    std::chrono::nanoseconds interval{0};  // until more is told
  };

  // `host` is the same in all of them. `folder` is one in memory.
  explicit Neighbours(std::string_view host, const std::string& folder = "/dev/shm");
  ~Neighbours();
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  // Tells the others, and returns the mean of the limits, this process's included. None: there is
  // nobody, or nobody who finds the host busy.
  std::optional<double> mean_limit(const Share& own, TimePoint now);

 private:
  struct Seat;
  bool has_seat(int64_t now_ns);

  const uint64_t host_;
  const uint64_t token_;  // of this object among all of all processes
  Seat* seats_ = nullptr;
  Seat* own_ = nullptr;
};

}  // namespace headrace
