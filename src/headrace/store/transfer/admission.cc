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
constexpr double kRequestBytes = 4096;  // what a request costs beside its bytes, in bytes
constexpr uint32_t kLetThrough = 5;     // served: then the number in flight is not what is refused

}  // namespace

LimitControl::LimitControl(uint32_t initial_limit, uint32_t max_limit)
    : max_limit_(std::max(max_limit, 1u)),
      limit_(std::clamp(initial_limit, 1u, max_limit_)),
      limit_before_probe_(limit_) {}

void LimitControl::set_limit(double limit) {
  const double lowest = std::min(kMinLimit, max_limit_);
  limit_ = static_cast<uint32_t>(std::clamp(limit, lowest, static_cast<double>(max_limit_)));
}

void LimitControl::report(const AdmissionReport& report, TimePoint now) {
  if (interval_began_ == TimePoint()) interval_began_ = now;
  interval_.completed += report.completed;
  interval_.unhindered += report.unhindered;
  interval_.throttled += report.throttled;
  interval_.bytes += report.bytes;
  interval_.latency_sum += report.latency_sum;
  interval_.limited = interval_.limited || report.limited;
  const double elapsed_s = duration<double>(now - interval_began_).count();
  const double latency_s =
      interval_.completed == 0
          ? 0
          : duration<double>(interval_.latency_sum).count() / interval_.completed;
  // At least two round trips, or a change of the limit has had no effect yet.
  if (elapsed_s < std::max(kMinIntervalS, 2 * latency_s)) return;
  end_interval(elapsed_s);
  interval_ = {};
  interval_began_ = now;
}

void LimitControl::end_interval(double seconds) {
  const bool many = refused_many(interval_.completed, interval_.throttled);
  if (many && interval_.unhindered < kLetThrough) return hold_back();
  // Idle stretches say nothing about the host.
  if (interval_.completed == 0) return;
  const double goodput =
      (static_cast<double>(interval_.bytes) + kRequestBytes * interval_.completed) / seconds;
  const double latency_s = duration<double>(interval_.latency_sum).count() / interval_.completed;
  base_latency_s_ = base_latency_s_ == 0 ? latency_s : std::min(base_latency_s_ * 1.005, latency_s);
  if (interval_.limited) adjust(goodput, latency_s);
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

void LimitControl::adjust(double goodput, double latency_s) {
  if (starting_) {
    if (goodput >= kStartGain * last_goodput_ && limit_ < max_limit_) {
      limit_before_probe_ = limit_;
      set_limit(limit_ * 2.0);
      last_goodput_ = goodput;
    } else {
      starting_ = false;
      // The last doubling gained nothing, unless it did and the ceiling ended the growth.
      if (goodput < kStartGain * last_goodput_) set_limit(limit_before_probe_);
    }
    return;
  }
  if (probe_ != Probe::kNone) {
    const bool paid = probe_ == Probe::kUp ? goodput >= kProbeGain * last_goodput_
                                           : goodput >= kHeldShare * last_goodput_;
    if (paid) {
      probe_patience_ = 1;
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
  limit_before_probe_ = limit_;
  last_goodput_ = goodput;
  const bool queueing = latency_s > kHighLatency * base_latency_s_;
  probe_ = queueing ? Probe::kDown : Probe::kUp;
  set_limit(queueing ? limit_ * 0.8 : std::ceil(limit_ * 1.25));
  if (limit_ == limit_before_probe_) probe_ = Probe::kNone;
}

Admission::Admission(uint32_t initial_limit, uint32_t max_limit)
    : limit_(std::clamp(initial_limit, 1u, std::max(max_limit, 1u))),
      control_(initial_limit, max_limit) {}

void Admission::report(const AdmissionReport& report, TimePoint now) {
  const Lock lock(mutex_);
  control_.report(report, now);
  limit_.store(control_.limit(), std::memory_order_relaxed);
}

}  // namespace headrace
