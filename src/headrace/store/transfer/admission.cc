#include "headrace/store/transfer/admission.h"

#include <algorithm>
#include <cmath>

#include "headrace/store/transfer/pace.h"

namespace headrace {
namespace {

using std::chrono::duration;

constexpr double kMinIntervalS = 0.1;
constexpr uint32_t kMinLimit = 4;
constexpr double kStartGain = 1.2;      // a doubling must pay this much to be followed by another
constexpr double kProbeGain = 1.03;     // a probe upwards must pay this much to be kept
constexpr double kHeldShare = 0.95;     // a probe downwards must keep this share
constexpr double kHighLatency = 2.0;    // times the base: half of the requests are but queueing
constexpr uint32_t kMaxPatience = 32;   // intervals between probes that do not pay
constexpr double kAsMuch = 0.9;         // of the limited share: as much was asked for as before
constexpr uint32_t kMaxUndecided = 3;   // intervals; that readers ask for less may be for good
constexpr double kMostlyLimited = 0.5;  // of the requests, so that an interval tells of the host
constexpr double kBusyLatency = 1.1;    // times the base: others may be why
constexpr double kRequestBytes = 4096;  // what a request costs beside its bytes, in bytes
constexpr uint32_t kLetThrough = 5;     // served: then the number in flight is not what is refused
constexpr uint32_t kRecentAnswers = 8192;
constexpr double kSlowShare = 0.999;  // of the answers; those beyond it are not read ahead for
constexpr double kSlowFromS = 0.05;   // what is faster costs a reader less than deep read-ahead
constexpr double kMostRoundTrips = 64;

}  // namespace

LimitControl::LimitControl(uint32_t initial_limit, uint32_t max_limit)
    : max_limit_(std::max(max_limit, 1u)),
      limit_(std::clamp(initial_limit, 1u, max_limit_)),
      limit_before_probe_(limit_) {}

void LimitControl::set_limit(double limit) {
  const double lowest = std::min(kMinLimit, max_limit_);
  limit_ = static_cast<uint32_t>(std::clamp(limit, lowest, static_cast<double>(max_limit_)));
}

bool LimitControl::report(const AdmissionReport& report, TimePoint now) {
  if (interval_began_ == TimePoint()) interval_began_ = now;
  interval_.completed += report.completed;
  interval_.unhindered += report.unhindered;
  interval_.throttled += report.throttled;
  interval_.bytes += report.bytes;
  for (uint8_t i = 0; i < report.latency_count; ++i) {
    latencies_.add(report.latencies[i]);
    recent_.add(report.latencies[i]);
  }
  interval_.limited = interval_.limited || report.limited;
  if (report.limited) limited_ += report.completed;
  const double elapsed_s = duration<double>(now - interval_began_).count();
  if (elapsed_s < kMinIntervalS) return false;
  // At least two round trips, or a change of the limit has had no effect yet.
  const double median_s = duration<double>(latencies_.quantile(0.5)).count();
  if (elapsed_s < 2 * median_s) return false;
  share_.reset();
  end_interval(elapsed_s, median_s);
  interval_ = {};
  limited_ = 0;
  latencies_.clear();
  if (recent_.total() > kRecentAnswers) recent_.halve();
  interval_began_ = now;
  return true;
}

void LimitControl::move_towards(double mean_limit) {
  if (starting_ || probe_ != Probe::kNone) return;
  set_limit(std::round((limit_ + mean_limit) / 2));
}

uint64_t LimitControl::useful_ahead() const {
  const double median_s = duration<double>(recent_.quantile(0.5)).count();
  const double slowest_s = duration<double>(recent_.quantile(kSlowShare)).count();
  double round_trips = 1;
  if (slowest_s >= kSlowFromS) round_trips = std::min(slowest_s / median_s, kMostRoundTrips);
  return limit_ + static_cast<uint64_t>(std::ceil(limit_ * round_trips));
}

void LimitControl::end_interval(double seconds, double median_s) {
  const bool many = refused_many(interval_.completed, interval_.throttled);
  if (many && interval_.unhindered < kLetThrough) return hold_back();
  // Idle stretches say nothing about the host.
  if (interval_.completed == 0) return;
  const double goodput =
      (static_cast<double>(interval_.bytes) + kRequestBytes * interval_.completed) / seconds;
  // Of requests that begin together, the fast answers come first, and the slow ones later; so where
  // latencies spread, a start looks fast, and a wait for one answer looks slow.
  const double recent_s = duration<double>(recent_.quantile(0.5)).count();
  const double settled_s = std::max(median_s, recent_s);
  const bool is_new = starting_ || base_latency_s_ == 0;
  base_latency_s_ = is_new ? settled_s : std::min(base_latency_s_ * 1.005, settled_s);
  const bool mostly_limited = limited_share() >= kMostlyLimited;
  const double likely_s = mostly_limited ? median_s : std::min(median_s, recent_s);
  queueing_ = likely_s > kHighLatency * base_latency_s_;
  if (interval_.limited) adjust(goodput);
  if (starting_ || !mostly_limited) return;
  // While another limit is tried out, the one before it counts.
  share_ = {.limit = probe_ == Probe::kNone ? limit_ : limit_before_probe_,
            .max_limit = max_limit_,
            .request_bytes = interval_.bytes / interval_.completed,
            .is_busy = median_s > kBusyLatency * base_latency_s_,
            .interval = duration_cast<std::chrono::nanoseconds>(duration<double>(seconds))};
}

// Many are refused, and nobody is let through: their number may be why. Few refusals are the
// business of the paces.
void LimitControl::hold_back() {
  starting_ = false;
  if (probe_ == Probe::kUp) set_limit(limit_before_probe_);
  probe_ = Probe::kNone;
  intervals_to_probe_ = probe_patience_ = 2;
  last_goodput_ = 0;
  set_limit(limit_ * 0.7);
}

// What an interval did not gain may then be for want of requests.
bool LimitControl::less_was_asked_for() {
  const bool as_much = limited_share() >= kAsMuch * last_limited_share_;
  if (as_much || undecided_ == kMaxUndecided) return false;
  ++undecided_;
  return true;
}

void LimitControl::adjust(double goodput) {
  const auto keep_in_mind = [&] {
    limit_before_probe_ = limit_;
    last_goodput_ = goodput;
    last_limited_share_ = limited_share();
    undecided_ = 0;
  };
  if (starting_) {
    const bool paid = goodput >= kStartGain * last_goodput_;
    if (paid && limit_ < max_limit_) {
      keep_in_mind();
      set_limit(limit_ * 2.0);
    } else if (paid || !less_was_asked_for()) {
      starting_ = false;
      if (!paid) set_limit(limit_before_probe_);
    }
    return;
  }
  if (probe_ != Probe::kNone) {
    const bool paid = probe_ == Probe::kUp ? goodput >= kProbeGain * last_goodput_
                                           : goodput >= kHeldShare * last_goodput_;
    if (paid) {
      probe_patience_ = 1;
    } else if (less_was_asked_for()) {
      return;
    } else {
      set_limit(limit_before_probe_);
      probe_patience_ = std::min(probe_patience_ * 2, kMaxPatience);
    }
    probe_ = Probe::kNone;
    intervals_to_probe_ = probe_patience_;
    return;
  }
  if (--intervals_to_probe_ > 0) return;
  intervals_to_probe_ = 1;
  keep_in_mind();
  probe_ = queueing_ ? Probe::kDown : Probe::kUp;
  set_limit(queueing_ ? limit_ * 0.8 : std::ceil(limit_ * 1.25));
  if (limit_ == limit_before_probe_) probe_ = Probe::kNone;
}

Admission::Admission(uint32_t initial_limit, uint32_t max_limit,
                     std::unique_ptr<Neighbours> neighbours)
    : limit_(std::clamp(initial_limit, 1u, std::max(max_limit, 1u))),
      useful_ahead_(uint64_t{2} * limit()),
      control_(initial_limit, max_limit),
      neighbours_(std::move(neighbours)) {}

void Admission::report(const AdmissionReport& report, TimePoint now) {
  const Lock lock(mutex_);
  if (!control_.report(report, now)) return;
  if (const auto share = control_.share(); neighbours_ && share) {
    if (const auto mean = neighbours_->mean_limit(*share, now)) control_.move_towards(*mean);
  }
  limit_.store(control_.limit(), std::memory_order_relaxed);
  queueing_.store(control_.queueing(), std::memory_order_relaxed);
  useful_ahead_.store(control_.useful_ahead(), std::memory_order_relaxed);
}

}  // namespace headrace
