// Whether a body comes far slower than others of its host: pure arithmetic.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "headrace/base/units.h"
#include "headrace/store/transfer/latency_histogram.h"

namespace headrace {

// How fast bodies have come lately. One is slow if it has come for a second and more, has taken
// eight times as long for its bytes as most others do, and would have been there long ago over
// another connection; and if meanwhile others have come to their end, for otherwise it is the
// server, the link or this machine that is slow.
// Thread: confined.
class BodyRates {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // What is smaller comes with the head, or soon after it.
  static constexpr uint64_t kLeastBytes = 256 * kKiB;

  // A body has ended, `time` after its first byte.
  void took(uint64_t bytes, std::chrono::nanoseconds time, TimePoint now);
  // Whether a body is slow that began at `began`, has brought `received` bytes and lacks `missing`.
  bool is_slow(uint64_t received, uint64_t missing, TimePoint began, TimePoint now) const;

 private:
  static constexpr size_t kNeighbours = 8;

  LatencyHistogram of_mebibyte_;
  std::array<TimePoint, kNeighbours> ended_{};  // a ring
  size_t next_ = 0;
  TimePoint halved_at_{};
};

}  // namespace headrace
