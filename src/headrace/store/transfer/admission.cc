#include "headrace/store/transfer/admission.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "headrace/base/units.h"
#include "headrace/store/transfer/pace.h"

namespace headrace {
namespace {

using std::chrono::duration;
using std::chrono::nanoseconds;

constexpr double kMinIntervalS = 0.1, kMaxIntervalS = 3;
constexpr uint32_t kMinLimit = 4;
constexpr double kStartGain = 1.2;   // a doubling must pay this much to be followed by another
constexpr double kProbeGain = 1.03;  // a probe upwards must pay this much to be kept
constexpr double kUp = 1.25, kDown = 0.8, kMostDown = 0.5;  // probes: times the limit
constexpr double kHeldShare = 0.95;     // a probe downwards must keep this share
constexpr uint32_t kMostIntervals = 8;  // of a probe, and of those it is compared with
constexpr uint32_t kMostDifferences = 16;
constexpr double kOtherTimes = 0.5;         // of the mean: such a difference is no chance
constexpr uint32_t kFewestDifferences = 2;  // before the first probe
constexpr double kHighLatency = 2.0;        // times the base: half of the requests are but queueing
constexpr double kMuchInFlight = 128.0 * kMiB;
constexpr uint32_t kMaxPatience = 32;   // intervals between probes that do not pay
constexpr double kAsMuch = 0.9;         // of the limited share: as much was asked for as before
constexpr uint32_t kMaxUndecided = 3;   // intervals; that readers ask for less may be for good
constexpr double kMostlyLimited = 0.5;  // of the requests, so that an interval tells of the host
constexpr double kMostlyTaken = 0.8;    // of the limit
constexpr double kBusyLatency = 1.1;    // times the base: others may be why
constexpr double kRequestBytes = 4096;  // what a request costs beside its bytes, in bytes
constexpr uint32_t kLetThrough = 5;     // served: then the number in flight is not what is refused
constexpr uint32_t kRecentAnswers = 8192;
constexpr double kSlowShare = 0.999;  // of the answers; those beyond it are not read ahead for
constexpr double kSlowFromS = 0.05;   // what is faster costs a reader less than deep read-ahead
constexpr double kMostRoundTrips = 64;
constexpr double kUsualShare = 0.975, kUsualNowShare = 0.9;
constexpr int kMostUsual = 2;
// The standard deviation, in parts of the mean difference, of what is normally distributed.
constexpr double kDeviation = 1.25;

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
  for (const AdmissionReport::Times& times : std::span(report.times).first(report.time_count)) {
    latencies_.add(times.first_byte);
    recent_.add(times.first_byte);
    taken_.add(times.all);
    recently_taken_.add(times.all);
  }
  interval_.limited = interval_.limited || report.limited;
  if (report.limited) limited_ += report.completed;
  const double elapsed_s = duration<double>(now - interval_began_).count();
  if (elapsed_s < kMinIntervalS) return false;
  const double median_s = duration<double>(latencies_.quantile(0.5)).count();
  if (!lasts_long_enough(elapsed_s, median_s)) return false;
  share_.reset();
  end_interval(elapsed_s, median_s);
  interval_ = {};
  limited_ = 0;
  latencies_.clear();
  taken_.clear();
  if (recent_.total() > kRecentAnswers) recent_.halve();
  if (recently_taken_.total() > kRecentAnswers) recently_taken_.halve();
  interval_began_ = now;
  return true;
}

// A change of the limit has its effect once what was in flight before has ended. That takes more
// than the first byte where a link is full.
bool LimitControl::lasts_long_enough(double elapsed_s, double median_s) const {
  if (elapsed_s < 2 * median_s) return false;
  return elapsed_s >= kMaxIntervalS || elapsed_s >= 2 * mean_taken_s();
}

// How long a request holds its permit. A few very slow ones would make it vary by chance.
double LimitControl::mean_taken_s() const {
  const nanoseconds usual =
      std::max(recently_taken_.quantile(kUsualShare), taken_.quantile(kUsualNowShare));
  return duration<double>(taken_.mean(kMostUsual * usual)).count();
}

void LimitControl::move_towards(double mean_limit) {
  if (starting_ || probe_ != Probe::kNone) return;
  const uint32_t before = limit_;
  set_limit(std::round((limit_ + mean_limit) / 2));
  if (limit_ != before) held_ = {};
}

uint64_t LimitControl::useful_ahead() const {
  const double median_s = duration<double>(recent_.quantile(0.5)).count();
  const double slowest_s = duration<double>(recent_.quantile(kSlowShare)).count();
  double round_trips = 1;
  if (slowest_s >= kSlowFromS) round_trips = std::min(slowest_s / median_s, kMostRoundTrips);
  return limit_ + static_cast<uint64_t>(std::ceil(limit_ * round_trips));
}

void LimitControl::end_interval(double elapsed_s, double median_s) {
  const bool many = refused_many(interval_.completed, interval_.throttled);
  if (many && interval_.unhindered < kLetThrough) return hold_back();
  // Idle stretches say nothing about the host.
  if (interval_.completed == 0) return;
  // Of requests that begin together, the fast answers come first, and the slow ones later; so where
  // latencies spread, a start looks fast, and a wait for one answer looks slow.
  const double recent_s = duration<double>(recent_.quantile(0.5)).count();
  const double settled_s = std::max(median_s, recent_s);
  const bool is_new = starting_ || base_latency_s_ == 0;
  base_latency_s_ = is_new ? settled_s : std::min(base_latency_s_ * 1.005, settled_s);
  const bool mostly_limited = limited_share() >= kMostlyLimited;
  const double likely_s = mostly_limited ? median_s : std::min(median_s, recent_s);
  const double high_s = kHighLatency * base_latency_s_;
  unqueued_share_ = likely_s > high_s ? high_s / likely_s : 1;
  const double each_bytes = static_cast<double>(interval_.bytes) / interval_.completed;
  // By Little's law.
  const double taken_s = duration<double>(taken_.mean(nanoseconds::max())).count();
  const double in_flight = interval_.completed * taken_s / elapsed_s;
  holds_much_ = mostly_limited && in_flight * each_bytes > kMuchInFlight;
  // At a start nothing is in flight, and filling that up is no gain of a limit: what all would
  // bring tells of it. Some are empty after every rise.
  double goodput = (each_bytes + kRequestBytes) * interval_.completed / elapsed_s;
  if (starting_ && mostly_limited && in_flight > 0) {
    goodput *= std::max(1.0, kMostlyTaken * limit_ / in_flight);
  }
  if (interval_.limited) starting_ ? start(goodput) : adjust(goodput);
  if (starting_ || !mostly_limited) return;
  // While another limit is tried out, the one before it counts.
  share_ = {.limit = probe_ == Probe::kNone ? limit_ : limit_before_probe_,
            .max_limit = max_limit_,
            .request_bytes = interval_.bytes / interval_.completed,
            .is_busy = median_s > kBusyLatency * base_latency_s_,
            .interval = duration_cast<nanoseconds>(duration<double>(elapsed_s))};
}

// Many are refused, and nobody is let through: their number may be why. Few refusals are the
// business of the paces.
void LimitControl::hold_back() {
  starting_ = false;
  if (probe_ == Probe::kUp) set_limit(limit_before_probe_);
  if (held_back_from_ == 0) held_back_from_ = limit_;
  probe_ = Probe::kNone;
  intervals_to_probe_ = probe_patience_ = 2;
  held_ = {};
  set_limit(limit_ * 0.7);
}

void LimitControl::Goodput::add(double goodput, double share) {
  if (intervals < kMostIntervals) ++intervals;
  mean += (goodput - mean) / intervals;
  limited_share = share;
}

// The server, the link or the objects have become others, and what was held is of no use.
bool LimitControl::is_other_times(double goodput) const {
  return std::abs(goodput / held_.mean - 1) > kOtherTimes;
}

// What an interval did not gain may then be for want of requests.
bool LimitControl::less_was_asked_for() {
  const bool as_much = limited_share() >= kAsMuch * held_.limited_share;
  if (as_much || undecided_ == kMaxUndecided) return false;
  ++undecided_;
  return true;
}

void LimitControl::start(double goodput) {
  const bool paid = goodput >= kStartGain * held_.mean;
  if (paid && limit_ < max_limit_) {
    limit_before_probe_ = limit_;
    undecided_ = 0;
    held_ = {};
    held_.add(goodput, limited_share());
    set_limit(limit_ * 2.0);
  } else if (paid || !less_was_asked_for()) {
    starting_ = false;
    if (!paid) set_limit(limit_before_probe_);
    held_ = {};
  }
}

void LimitControl::adjust(double goodput) {
  if (probe_ == Probe::kNone) {
    if (held_.intervals > 0 && is_other_times(goodput)) held_ = {};
    if (held_.intervals > 0) {
      if (differences_ < kMostDifferences) ++differences_;
      difference_ += (std::abs(goodput / held_.mean - 1) - difference_) / differences_;
    }
    held_.add(goodput, limited_share());
    if (intervals_to_probe_ > 0) --intervals_to_probe_;
    if (intervals_to_probe_ == 0 && differences_ >= kFewestDifferences) begin_probe();
    return;
  }
  if (probe_ == Probe::kUp && less_was_asked_for()) return;
  // As long as hardly anything waits, nothing is lost, and nothing is learnt.
  if (probe_ == Probe::kDown && limited_share() < kMostlyLimited) {
    if (++undecided_ > kMaxUndecided) end_probe(Verdict::kDrop);
    return;
  }
  probed_.add(goodput, limited_share());
  end_probe(judge_probe());
}

void LimitControl::end_probe(Verdict verdict) {
  if (verdict == Verdict::kUndecided) return;
  if (verdict == Verdict::kKeep) {
    held_ = probed_;
    probe_patience_ = 1;
  } else {
    if (probed_.intervals > 0 && is_other_times(probed_.mean)) held_ = {};
    set_limit(limit_before_probe_);
    probe_patience_ = std::min(probe_patience_ * 2, kMaxPatience);
    next_probe_ = opposite(probe_);
  }
  probe_ = Probe::kNone;
  intervals_to_probe_ = probe_patience_;
}

void LimitControl::begin_probe() {
  const bool may_rise = limit_ < max_limit_;
  const bool goes_down = queueing() || (holds_much_ && (next_probe_ == Probe::kDown || !may_rise));
  probe_ = goes_down ? Probe::kDown : Probe::kUp;
  limit_before_probe_ = limit_;
  undecided_ = 0;
  probed_ = {};
  const double down = std::clamp(unqueued_share_, kMostDown, kDown);
  // If it was not their number that was refused, but all that was sent for a while, one step leads
  // back to where it was.
  const double up = std::max<double>(std::ceil(limit_ * kUp), held_back_from_);
  set_limit(probe_ == Probe::kDown ? limit_ * down : up);
  if (probe_ == Probe::kUp) held_back_from_ = 0;
  if (limit_ != limit_before_probe_) return;
  next_probe_ = opposite(probe_);
  probe_ = Probe::kNone;
}

// Sequentially: as soon as the gain is beyond the threshold, by more than chance explains.
LimitControl::Verdict LimitControl::judge_probe() const {
  const double threshold = probe_ == Probe::kUp ? kProbeGain : kHeldShare;
  const double gain = probed_.mean / held_.mean;
  const double error =
      kDeviation * difference_ * std::sqrt(1.0 / probed_.intervals + 1.0 / held_.intervals);
  if (gain - error >= threshold) return Verdict::kKeep;
  if (gain + error < threshold) return Verdict::kDrop;
  if (probed_.intervals < kMostIntervals) return Verdict::kUndecided;
  // What cannot be told from no loss is none.
  return probe_ == Probe::kDown && gain >= threshold ? Verdict::kKeep : Verdict::kDrop;
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
