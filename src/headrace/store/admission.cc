#include "headrace/store/admission.h"

#include <algorithm>
#include <cmath>

namespace headrace {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::nanoseconds;

constexpr double kMinIntervalS = 0.1;
constexpr uint32_t kMinLimit = 4;
constexpr double kStartGain = 1.2;      // a doubling must pay this much to be followed by another
constexpr double kProbeGain = 1.03;     // a probe upwards must pay this much to be kept
constexpr double kHeldShare = 0.95;     // a probe downwards must keep this share of the best
constexpr double kHighLatency = 2.0;    // times the base: requests are queueing somewhere
constexpr uint32_t kMaxPatience = 32;   // intervals between probes that do not pay
constexpr double kRequestBytes = 4096;  // what a request costs beside its bytes, in bytes
constexpr double kPaceBackOff = 0.95;
constexpr double kPaceStep = 0.005;
constexpr double kPaceBurstS = 0.01;

}  // namespace

AdmissionControl::AdmissionControl(uint32_t initial_limit, uint32_t max_limit)
    : max_limit_(std::max(max_limit, 1u)),
      limit_(std::clamp(initial_limit, 1u, max_limit_)),
      limit_before_probe_(limit_) {}

void AdmissionControl::set_limit(double limit) {
  const double lowest = std::min(kMinLimit, max_limit_);
  limit_ = static_cast<uint32_t>(std::clamp(limit, lowest, static_cast<double>(max_limit_)));
}

void AdmissionControl::report(const AdmissionReport& report, TimePoint now) {
  if (interval_began_ == TimePoint()) interval_began_ = now;
  interval_.completed += report.completed;
  interval_.throttled += report.throttled;
  interval_.bytes += report.bytes;
  interval_.latency_sum += report.latency_sum;
  interval_.limited = interval_.limited || report.limited;
  const double elapsed_s = duration<double>(now - interval_began_).count();
  const double latency_s =
      interval_.completed == 0
          ? 0
          : duration<double>(interval_.latency_sum).count() / interval_.completed;
  // Two round trips at least, else a change of the limit has not been felt yet.
  if (elapsed_s < std::max(kMinIntervalS, 2 * latency_s)) return;
  end_interval(elapsed_s);
  interval_ = {};
  interval_began_ = now;
}

void AdmissionControl::end_interval(double seconds) {
  // Idle stretches say nothing about the host.
  const uint32_t answers = interval_.completed + interval_.throttled;
  if (answers == 0) return;
  adjust_pace(seconds);
  if (interval_.throttled > 0) {
    starting_ = false;
    probe_ = Probe::kNone;
    intervals_to_probe_ = probe_patience_ = 2;
    set_limit(limit_ * 0.7);
    last_goodput_ = best_goodput_ = 0;
    return;
  }
  const double goodput =
      (static_cast<double>(interval_.bytes) + kRequestBytes * interval_.completed) / seconds;
  const double latency_s =
      duration<double>(interval_.latency_sum).count() / interval_.completed;
  base_latency_s_ = base_latency_s_ == 0 ? latency_s : std::min(base_latency_s_ * 1.005, latency_s);
  best_goodput_ = std::max(best_goodput_ * 0.995, goodput);
  if (interval_.limited) adjust_limit(goodput, latency_s);
}

void AdmissionControl::adjust_limit(double goodput, double latency_s) {
  if (starting_) {
    if (goodput >= kStartGain * last_goodput_ && limit_ < max_limit_) {
      limit_before_probe_ = limit_;
      set_limit(limit_ * 2.0);
      last_goodput_ = goodput;
    } else {
      starting_ = false;
      // The last doubling was for nothing, unless it did pay and the ceiling ended it.
      if (goodput < kStartGain * last_goodput_) set_limit(limit_before_probe_);
    }
    return;
  }
  if (probe_ != Probe::kNone) {
    const bool paid = probe_ == Probe::kUp ? goodput >= kProbeGain * last_goodput_
                                           : goodput >= kHeldShare * best_goodput_;
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

void AdmissionControl::adjust_pace(double seconds) {
  const double succeeded_per_s = interval_.completed / seconds;
  if (interval_.throttled > 0) {
    const double base =
        pace_per_s_ == 0 ? succeeded_per_s : std::min(pace_per_s_, succeeded_per_s);
    // A refusal in an interval with next to no success must not bring the pace to nothing.
    const double floor = pace_per_s_ == 0 ? 1.0 : pace_per_s_ / 2;
    pace_per_s_ = std::max(floor, base * kPaceBackOff);
    clean_intervals_ = 0;
    return;
  }
  if (pace_per_s_ == 0) return;
  clean_intervals_ += 1;
  if (succeeded_per_s < 0.8 * pace_per_s_) return;  // the pace is not what holds us
  const double hurry = 1 + clean_intervals_ * clean_intervals_ / 400;
  pace_per_s_ += pace_per_s_ * std::min(kPaceStep * hurry, 0.25) + 0.5;
}

Admission::Admission(uint32_t initial_limit, uint32_t max_limit)
    : limit_(std::clamp(initial_limit, 1u, std::max(max_limit, 1u))),
      control_(initial_limit, max_limit) {}

Admission::TimePoint Admission::reserve(TimePoint now) {
  if (!paced_.load(std::memory_order_relaxed)) return now;
  const Lock lock(mutex_);
  const auto gap = duration_cast<nanoseconds>(duration<double>(1.0 / control_.pace_per_s()));
  const auto burst = duration_cast<nanoseconds>(duration<double>(kPaceBurstS));
  next_send_ = std::max(next_send_ + gap, now - burst);
  return std::max(next_send_, now);
}

void Admission::report(const AdmissionReport& report, TimePoint now) {
  const Lock lock(mutex_);
  control_.report(report, now);
  limit_.store(control_.limit(), std::memory_order_relaxed);
  paced_.store(control_.pace_per_s() > 0, std::memory_order_relaxed);
}

}  // namespace headrace
