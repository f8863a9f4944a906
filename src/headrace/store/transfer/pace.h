// How many requests a second a root gets that its service has throttled; and the paces of a host.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/mutex.h"
#include "headrace/store/transfer/outage.h"

namespace headrace {

// Whether the share of refusals in an interval is so large that the cap must have been misjudged.
bool refused_many(uint32_t completed, uint32_t refused);

// The pace of one root: pure arithmetic, without a clock or threads.
//
// There is one only once the server has throttled: a limit cannot hold a rate when even one request
// at a time is too many. It starts at the rate that succeeded while others were refused, and each
// refusal takes off a twentieth. Without refusals it recovers along a cubic curve: quickly back to
// the rate that was refused, slowly past it, then faster and faster, because a cap that is not hit
// again has moved. Where nothing is let through any more, the service is away, which says nothing
// of its rate: the pace falls, and once an answer comes, it returns with the answers, to where it
// was or until one is refused. Clients that send more are refused more often, and a small share
// grows a little faster than a large one. Clients under the same hidden cap therefore end up with
// similar shares, and refusals stay rare. Thread: confined.
class PaceControl {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Nothing was let through for so long: then it is no limit that is met, but a service that is
  // away.
  static constexpr std::chrono::milliseconds kLeastAway{400};

  // An answer, and the time to its first byte. Before the first refusal answers say nothing.
  void report(bool refused, std::chrono::nanoseconds latency, TimePoint now);
  double per_s() const { return per_s_; }  // 0: not known yet

 private:
  void adjust(double seconds, TimePoint now);
  void begin_interval(TimePoint now);
  void begin_return(TimePoint now);
  void end_return();

  TimePoint interval_began_{};
  uint32_t completed_ = 0, refused_ = 0;  // in this interval
  std::chrono::nanoseconds latency_sum_{0};

  double per_s_ = 0;
  double edge_per_s_ = 0;   // the pace that was last refused ...
  double floor_per_s_ = 0;  // ... and what was left of it
  double clean_s_ = 0;      // since then

  enum class Service : uint8_t { kThere, kAway, kReturning };
  Service service_ = Service::kThere;
  TimePoint refusing_since_{};                   // every request
  TimePoint returned_at_{};                      // its first answer came
  std::optional<double> before_refusals_per_s_;  // since nothing was let through
  double return_to_per_s_ = 0;                   // the pace before it was away; 0: there was none
};

// The control, shared by the I/O threads of a host.
// Thread: any.
class Pace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit Pace(std::string root) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }  // as a URL
  // Whether it has ever been refused a request. If so, requests wait for a turn, and every answer
  // is reported; if not, there is nothing to do.
  bool refused() const { return refused_.load(std::memory_order_relaxed); }
  // When the next request may be sent. Since the pace may change, turns are given out only for the
  // near future, this far ahead; null: ask again soon.
  static constexpr std::chrono::milliseconds kHorizon{20};
  std::optional<TimePoint> reserve(TimePoint now);
  // A turn was not used: the next one comes so much earlier.
  void give_back();
  // True for the first refusal ever.
  bool report(bool refused, std::chrono::nanoseconds latency, TimePoint now);
  double per_s();  // 0: not known
  TimePoint last_answer();
  OutageWatch& outages() { return outages_; }  // in which every request is refused

 private:
  const std::string root_;
  OutageWatch outages_{PaceControl::kLeastAway};
  std::atomic<bool> refused_ = false;
  Mutex mutex_;
  PaceControl control_ HEADRACE_GUARDED_BY(mutex_);
  TimePoint next_send_ HEADRACE_GUARDED_BY(mutex_);
  TimePoint last_answer_ HEADRACE_GUARDED_BY(mutex_);
};

// The paces of one host, by root. Of those that no store uses, kKept are kept for the next store;
// those that were never throttled are dropped first, then those that have been idle longest.
// Thread: any.
class Paces {
 public:
  static constexpr size_t kKept = 64;

  std::shared_ptr<Pace> of(const std::string& root);
  size_t size();

 private:
  void trim() HEADRACE_REQUIRES(mutex_);

  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Pace>> by_root_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
