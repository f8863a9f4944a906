#include "headrace/store/transfer/admission.h"

#include <algorithm>
#include <cmath>

namespace headrace {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::nanoseconds;

constexpr double kMinIntervalS = 0.1;
constexpr double kMaxIntervalS = 1.0;
constexpr uint32_t kMinPacedAnswers = 10;
constexpr uint32_t kMinLimit = 4;
constexpr double kStartGain = 1.2;       // a doubling must pay this much to be followed by another
constexpr double kProbeGain = 1.03;      // a probe upwards must pay this much to be kept
constexpr double kHeldShare = 0.95;      // a probe downwards must keep this share
constexpr double kHighLatency = 2.0;     // times the base: half of the requests are but queueing
constexpr uint32_t kMaxPatience = 32;    // intervals between probes that do not pay
constexpr double kRequestBytes = 4096;   // what a request costs beside its bytes, in bytes
constexpr double kRefusedFactor = 0.95;  // of the pace, per refusal ...
constexpr double kLeastFactor = 0.9;     // ... and per interval at the most
constexpr uint32_t kManyRefusals = 5;    // with a fifth of all answers: the cap has moved
constexpr double kManyFraction = 0.2;
constexpr double kPaceHeld = 0.8;     // of the pace succeeded: it is what holds us
constexpr double kBend = 0.07;        // of the way back to the edge and on, per cubic second ...
constexpr double kBendPerS = 200;     // ... less below this pace, where one refusal is many
constexpr double kMaxGrowthPerS = 1;  // of the pace
constexpr double kFairStep = 0.1;
constexpr double kPaceBurstS = 0.01;
constexpr std::chrono::milliseconds kHorizon{20};  // how far ahead places are given out

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
  // At least two round trips, or a change of the limit has had no effect yet; and, at a slow pace,
  // several answers, or the count is mere chance.
  const uint32_t answers = interval_.completed + interval_.throttled;
  if (elapsed_s < std::max(kMinIntervalS, 2 * latency_s)) return;
  if (pace_per_s_ > 0 && answers < kMinPacedAnswers && elapsed_s < kMaxIntervalS) return;
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
    if (probe_ == Probe::kUp) set_limit(limit_before_probe_);
    probe_ = Probe::kNone;
    intervals_to_probe_ = probe_patience_ = 2;
    last_goodput_ = 0;
    // The pace limits the rate. Fewer requests in flight help only if their number was what the
    // server refused.
    if (refused_many()) set_limit(limit_ * 0.7);
    return;
  }
  const double goodput =
      (static_cast<double>(interval_.bytes) + kRequestBytes * interval_.completed) / seconds;
  const double latency_s = duration<double>(interval_.latency_sum).count() / interval_.completed;
  base_latency_s_ = base_latency_s_ == 0 ? latency_s : std::min(base_latency_s_ * 1.005, latency_s);
  // While the pace limits us, another limit would change nothing.
  const bool pace_holds =
      pace_per_s_ > 0 && interval_.completed / seconds >= kPaceHeld * pace_per_s_;
  if (interval_.limited && !pace_holds) adjust_limit(goodput, latency_s);
}

void AdmissionControl::adjust_limit(double goodput, double latency_s) {
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

bool AdmissionControl::refused_many() const {
  return interval_.throttled >= kManyRefusals &&
         interval_.throttled > kManyFraction * (interval_.completed + interval_.throttled);
}

void AdmissionControl::adjust_pace(double seconds) {
  const double succeeded_per_s = interval_.completed / seconds;
  if (interval_.throttled > 0) {
    // Refusals right after the first are the same edge, seen from above.
    if (clean_s_ > 0) edge_per_s_ = pace_per_s_;
    clean_s_ = 0;
    if (pace_per_s_ == 0 || refused_many()) {
      const double tried_per_s = (interval_.completed + interval_.throttled) / seconds;
      const double from_per_s = pace_per_s_ == 0 ? tried_per_s : pace_per_s_;
      // An interval with hardly any success must not reduce the pace to nothing: other clients may
      // just have been luckier for a moment.
      pace_per_s_ =
          std::max({1.0, from_per_s / 2, std::min(from_per_s, succeeded_per_s) * kRefusedFactor});
    } else {
      pace_per_s_ *= std::max(kLeastFactor, std::pow(kRefusedFactor, interval_.throttled));
      pace_per_s_ = std::max(1.0, pace_per_s_);
    }
    if (refused_many() || edge_per_s_ == 0) edge_per_s_ = pace_per_s_;  // it is elsewhere
    floor_per_s_ = pace_per_s_;
    return;
  }
  if (pace_per_s_ == 0) return;
  clean_s_ += seconds;
  if (succeeded_per_s < kPaceHeld * pace_per_s_) return;  // the pace is not what holds us
  seconds = std::min(seconds, kMaxIntervalS);
  const double bend = kBend * std::min(1.0, edge_per_s_ / kBendPerS);
  const double way_back_s = std::cbrt(std::max(0.0, 1 - floor_per_s_ / edge_per_s_) / bend);
  const double target_per_s = edge_per_s_ * (1 + bend * std::pow(clean_s_ - way_back_s, 3));
  const double most_per_s = pace_per_s_ * (1 + kMaxGrowthPerS * seconds);
  pace_per_s_ = std::max(pace_per_s_, std::min(target_per_s, most_per_s));
  // The square root lets a small share grow faster than a large one.
  pace_per_s_ += kFairStep * std::sqrt(pace_per_s_) * seconds;
}

Admission::Admission(uint32_t initial_limit, uint32_t max_limit)
    : limit_(std::clamp(initial_limit, 1u, std::max(max_limit, 1u))),
      control_(initial_limit, max_limit) {}

Admission::Turn Admission::reserve(TimePoint now) {
  if (!paced_.load(std::memory_order_relaxed)) return {.at = now};
  const Lock lock(mutex_);
  const auto burst = duration_cast<nanoseconds>(duration<double>(kPaceBurstS));
  next_send_ = std::max(next_send_, now - burst);
  if (next_send_ > now + kHorizon) return {.at = now + kHorizon, .granted = false};
  const Turn turn = {.at = std::max(next_send_, now)};
  next_send_ += duration_cast<nanoseconds>(duration<double>(1.0 / control_.pace_per_s()));
  return turn;
}

void Admission::report(const AdmissionReport& report, TimePoint now) {
  const Lock lock(mutex_);
  control_.report(report, now);
  limit_.store(control_.limit(), std::memory_order_relaxed);
  paced_.store(control_.pace_per_s() > 0, std::memory_order_relaxed);
}

double Admission::pace_per_s() {
  const Lock lock(mutex_);
  return control_.pace_per_s();
}

}  // namespace headrace
