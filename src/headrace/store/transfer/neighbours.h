// The processes of this machine that read from the same host, each with a limit of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace {

// Where a server or a machine is busy, what a process gets is proportional to what it has in
// flight, and each finds that more brings it more and less brings it less, whatever the others
// have. So they tell each other their limits, in memory that the processes of one user share, and
// each moves towards the mean: what they have in flight together stays as they found it.
//
// Nothing depends on it. Without such memory (no /dev/shm, a full one, more processes than
// places), mean_limit() says that there is nobody, as it does where the others ask for less than
// they may, read objects of quite another size, or have a lower ceiling.
// Thread: confined.
class Neighbours {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr size_t kMostProcesses = 512;          // times hosts that each of them uses
  static constexpr std::chrono::seconds kFresh{2};       // what was said before counts no more
  static constexpr std::chrono::seconds kForgotten{60};  // and its place may be taken

  // What a process does with the host, while it asks for as much as it gets.
  struct Share {
    uint32_t limit = 0;
    uint32_t max_limit = 0;      // which `limit` cannot exceed
    uint64_t request_bytes = 0;  // of the average answer
  };

  // `host` is the same in all of them. `folder` is one in memory.
  explicit Neighbours(std::string_view host, const std::string& folder = "/dev/shm");
  ~Neighbours();
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  // Tells the others, and returns the mean of the limits, this process's included. None: there is
  // nobody.
  std::optional<double> mean_limit(const Share& own, TimePoint now);

 private:
  struct Place;
  bool has_place(int64_t now_ns);

  const uint64_t host_;
  const uint64_t token_;  // of this object among all of all processes
  Place* places_ = nullptr;
  Place* own_ = nullptr;
};

}  // namespace headrace
