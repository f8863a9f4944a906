// When a request is late, and whether it may be sent once more: pure arithmetic.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "headrace/base/units.h"
#include "headrace/format/object_info.h"
#include "headrace/store/transfer/latency_histogram.h"

namespace headrace {

// Requests that take about as long to be answered.
enum class AnswerKind : uint8_t {
  kUpTo64KiB,  // bytes of an object
  kUpTo1MiB,
  kUpTo16MiB,
  kLarger,
  kUnknownSize,
  kPage,  // of a listing
  kStat,
};

// What a request that may be sent twice will bring.
struct ExpectedAnswer {
  AnswerKind kind = AnswerKind::kUnknownSize;
  uint64_t bytes = 0;

  // Of an object.
  static ExpectedAnswer of_bytes(uint64_t bytes);
};

// After Dean and Barroso, "The Tail at Scale" (CACM 56:2, 2013): a request that takes longer than
// almost all of its kind is sent a second time, and if that takes as long, a third time. A token
// bucket bounds what this adds to 3 % of the requests and of the bytes, which is why those count as
// late that 97.5 % are not: were there more of them, the bucket would pay for whichever came first.
//
// Belongs to one I/O thread's share of a host, so that counting an answer writes to no memory that
// threads share.
// Thread: confined.
class HedgeRules {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // An answer of at most this size that is not needed any more is read to its end, for the sake of
  // its connection. The connection of a larger one is closed, which by then has received about as
  // much in vain, and a new one would begin slowly.
  static constexpr uint64_t kMostDrainedBytes = 1 * kMiB;
  static constexpr uint32_t kMostHedges = 2;  // of one request
  static constexpr double kShare = 0.03;      // that hedges may add, of requests and of bytes

  // How long an answer took to its first byte.
  void took(AnswerKind kind, std::chrono::nanoseconds latency, TimePoint now);
  // A request has been answered with `bytes` bytes, from which hedges are paid.
  void earn(uint64_t bytes);
  // After how long a request is late. None: too few answers are known.
  std::optional<std::chrono::nanoseconds> late_after(AnswerKind kind) const;
  // Pays for a hedge, which runs until `end`. False if it must not be sent: what was earned does
  // not pay for it, or a twentieth of `limit` are running and no permit is free.
  bool begin(const ExpectedAnswer& expected, uint32_t limit, bool has_free_permit);
  void end() { --running_; }
  // Pays for asking for the rest of a body that is slow. False if it must not be.
  bool pay_for_rest();
  // Whether an answer that is not needed any more is read to its end, even beyond the limit: a host
  // that answers others in time has no less room for them. False while a third of `limit` are.
  bool begin_draining(uint32_t limit);
  void end_draining() { --draining_; }
  uint32_t running() const { return running_ + draining_; }
  // How many of the `limit` permits hedges take: those beyond a twentieth of it.
  uint32_t permits_taken(uint32_t limit) const;

 private:
  static constexpr size_t kKindCount = static_cast<size_t>(AnswerKind::kStat) + 1;
  struct OfKind {
    LatencyHistogram latencies;
    std::chrono::nanoseconds late_after{0};  // 0: not known
    TimePoint halved_at{};
    uint32_t to_refresh = 1;  // answers until `late_after` is computed again
  };
  void refresh(OfKind& kind, TimePoint now);

  std::array<OfKind, kKindCount> kinds_;
  // Earned, or lent at the beginning: one of the first requests may be late, too.
  double requests_ = 1, bytes_ = 1 * kMiB;
  uint32_t running_ = 0, draining_ = 0;
};

}  // namespace headrace
