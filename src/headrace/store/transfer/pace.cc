#include "headrace/store/transfer/pace.h"

#include <algorithm>
#include <cmath>

namespace headrace {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::nanoseconds;

constexpr double kMinIntervalS = 0.1;
constexpr double kMaxIntervalS = 1.0;
constexpr uint32_t kMinAnswers = 10;
constexpr double kRefusedFactor = 0.95;  // of the pace, per refusal ...
constexpr double kLeastFactor = 0.9;     // ... and per interval at the most
constexpr uint32_t kManyRefusals = 5;    // with a fifth of all answers: see refused_many()
constexpr double kManyFraction = 0.2;
constexpr double kPaceHeld = 0.8;     // of the pace succeeded: it is what holds us
constexpr double kBend = 0.07;        // of the way back to the edge and on, per cubic second ...
constexpr double kBendPerS = 200;     // ... less below this pace, where one refusal is many ...
constexpr double kLongCleanS = 10;    // ... but not for longer: the cap has moved
constexpr double kMaxGrowthPerS = 1;  // of the pace
constexpr double kFairStep = 0.1;
// What each answer adds while the pace returns: as much again, and at a higher pace so much, which
// doubles it in a tenth of a second.
constexpr double kReturnStepPerS = 7;
constexpr std::chrono::milliseconds kBurst{10};  // how much of what was not used may be made up

}  // namespace

bool refused_many(uint32_t completed, uint32_t refused) {
  return refused >= kManyRefusals && refused > kManyFraction * (completed + refused);
}

void PaceControl::report(bool refused, nanoseconds latency, TimePoint now) {
  if (interval_began_ == TimePoint()) {
    if (!refused) return;
    begin_interval(now);
  }
  if (!refused) {
    refusing_since_ = {};
  } else if (refusing_since_ == TimePoint()) {
    refusing_since_ = now;
  }
  if (service_ == Service::kAway && !refused) begin_return(now);
  if (service_ == Service::kReturning) {
    // What was sent before the first answer came says nothing new.
    if (refused && now - latency < returned_at_) return;
    if (refused) {
      end_return();
    } else {
      per_s_ += std::min(per_s_, kReturnStepPerS);
      if (return_to_per_s_ > 0 && per_s_ >= return_to_per_s_) {
        per_s_ = return_to_per_s_;
        end_return();
      }
    }
  }
  ++(refused ? refused_ : completed_);
  if (!refused) latency_sum_ += latency;
  const double elapsed_s = duration<double>(now - interval_began_).count();
  const double latency_s =
      completed_ == 0 ? 0 : duration<double>(latency_sum_).count() / completed_;
  // At least two round trips, or a change has had no effect yet; and, at a slow pace, several
  // answers, or the count is mere chance.
  if (elapsed_s < std::max(kMinIntervalS, 2 * latency_s)) return;
  const bool few = completed_ + refused_ < kMinAnswers;
  if (per_s_ > 0 && few && elapsed_s < kMaxIntervalS) return;
  // So few say nothing about what the server bears: most of the time nothing was asked of it.
  const bool quiet = per_s_ == 0 && few;
  if (!quiet) adjust(elapsed_s, now);
  begin_interval(quiet ? TimePoint() : now);
}

void PaceControl::begin_interval(TimePoint now) {
  completed_ = refused_ = 0;
  latency_sum_ = nanoseconds(0);
  interval_began_ = now;
}

void PaceControl::begin_return(TimePoint now) {
  service_ = Service::kReturning;
  returned_at_ = now;
  begin_interval(now);
}

// The pace is where it was, or where a refusal ends its return.
void PaceControl::end_return() {
  service_ = Service::kThere;
  edge_per_s_ = floor_per_s_ = per_s_;
  clean_s_ = 0;
}

void PaceControl::adjust(double seconds, TimePoint now) {
  const double succeeded_per_s = completed_ / seconds;
  if (refused_ > 0) {
    if (completed_ > 0) {
      before_refusals_per_s_.reset();
    } else if (!before_refusals_per_s_) {
      before_refusals_per_s_ = per_s_;
    }
    if (service_ != Service::kAway && completed_ == 0 && now - refusing_since_ >= kLeastAway) {
      service_ = Service::kAway;
      return_to_per_s_ = *before_refusals_per_s_;
    }
    // Refusals right after the first are the same edge, seen from above.
    if (clean_s_ > 0) edge_per_s_ = per_s_;
    clean_s_ = 0;
    const bool many = refused_many(completed_, refused_);
    if (per_s_ == 0 || many) {
      const double tried_per_s = (completed_ + refused_) / seconds;
      const double from_per_s = per_s_ == 0 ? tried_per_s : per_s_;
      // An interval with hardly any success must not reduce the pace to nothing: other clients may
      // just have been luckier for a moment.
      per_s_ =
          std::max({1.0, from_per_s / 2, std::min(from_per_s, succeeded_per_s) * kRefusedFactor});
    } else {
      per_s_ *= std::max(kLeastFactor, std::pow(kRefusedFactor, refused_));
      per_s_ = std::max(1.0, per_s_);
    }
    if (many || edge_per_s_ == 0) edge_per_s_ = per_s_;  // it is elsewhere
    floor_per_s_ = per_s_;
    return;
  }
  if (per_s_ == 0) return;
  if (service_ == Service::kReturning) return;
  clean_s_ += seconds;
  if (succeeded_per_s < kPaceHeld * per_s_) return;  // the pace is not what holds us
  seconds = std::min(seconds, kMaxIntervalS);
  const double moved = std::max(0.0, clean_s_ / kLongCleanS - 1);
  const double bend = kBend * std::min(1.0, edge_per_s_ / kBendPerS + moved);
  const double way_back_s = std::cbrt(std::max(0.0, 1 - floor_per_s_ / edge_per_s_) / bend);
  const double target_per_s = edge_per_s_ * (1 + bend * std::pow(clean_s_ - way_back_s, 3));
  const double most_per_s = per_s_ * (1 + kMaxGrowthPerS * seconds);
  per_s_ = std::max(per_s_, std::min(target_per_s, most_per_s));
  // The square root lets a small share grow faster than a large one.
  per_s_ += kFairStep * std::sqrt(per_s_) * seconds;
}

std::optional<Pace::TimePoint> Pace::reserve(TimePoint now) {
  const Lock lock(mutex_);
  const double per_s = control_.per_s();
  if (per_s == 0) return now;
  next_send_ = std::max(next_send_, now - kBurst);
  if (next_send_ > now + kHorizon) return std::nullopt;
  const TimePoint turn = std::max(next_send_, now);
  next_send_ += duration_cast<nanoseconds>(duration<double>(1.0 / per_s));
  return turn;
}

void Pace::give_back() {
  const Lock lock(mutex_);
  const double per_s = control_.per_s();
  if (per_s > 0) next_send_ -= duration_cast<nanoseconds>(duration<double>(1.0 / per_s));
}

bool Pace::report(bool refused, nanoseconds latency, TimePoint now) {
  const Lock lock(mutex_);
  control_.report(refused, latency, now);
  last_answer_ = now;
  return refused && !refused_.exchange(true, std::memory_order_relaxed);
}

double Pace::per_s() {
  const Lock lock(mutex_);
  return control_.per_s();
}

Pace::TimePoint Pace::last_answer() {
  const Lock lock(mutex_);
  return last_answer_;
}

std::shared_ptr<Pace> Paces::of(const std::string& root) {
  const Lock lock(mutex_);
  std::shared_ptr<Pace>& found = by_root_[root];
  if (!found) {
    found = std::make_shared<Pace>(root);
    const std::shared_ptr<Pace> made = found;
    trim();
    return made;
  }
  return found;
}

size_t Paces::size() {
  const Lock lock(mutex_);
  return by_root_.size();
}

void Paces::trim() {
  while (by_root_.size() > kKept) {
    auto idlest = by_root_.end();
    Pace::TimePoint since;
    for (auto at = by_root_.begin(); at != by_root_.end(); ++at) {
      if (at->second.use_count() > 1) continue;  // a store uses it
      const Pace::TimePoint last = at->second->last_answer();
      if (idlest == by_root_.end() || last < since) {
        idlest = at;
        since = last;
      }
    }
    if (idlest == by_root_.end()) return;
    by_root_.erase(idlest);
  }
}

}  // namespace headrace
