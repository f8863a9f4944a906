#include "headrace/store/transfer/fetch_choice.h"

#include <algorithm>
#include <numeric>

namespace headrace {
namespace {

// How much a new measurement moves the one before.
constexpr double kNewShare = 0.4;

constexpr size_t index_of(FetchWay way) { return way == FetchWay::kTogether ? 1 : 0; }
constexpr FetchWay other(FetchWay way) {
  return way == FetchWay::kTogether ? FetchWay::kAlone : FetchWay::kTogether;
}

double work_of(const FetchChoice::Load& load) {
  return static_cast<double>(load.object_count) * FetchChoice::kObjectBytes +
         static_cast<double>(load.size_bytes);
}

}  // namespace

size_t FetchChoice::class_of(const Load& load) {
  const uint64_t mean_bytes = load.size_bytes / std::max<uint64_t>(1, load.object_count);
  size_t at = 0;
  for (uint64_t most = 1024; mean_bytes > most && at + 1 < kClassCount; most *= 4) ++at;
  return at;
}

bool FetchChoice::holds_back(const Load& load) const {
  const SizeClass& of = classes_[class_of(load)];
  return of.trial && of.unmeasured_batches < of.most_unmeasured && of.batches >= kTrialBatches &&
         of.objects >= kTrialObjects;
}

std::optional<FetchWay> FetchChoice::settled(const Load& load, TimePoint now) const {
  const SizeClass& of = classes_[class_of(load)];
  if (of.trial || to_try(of, now)) return {};
  return of.chosen;
}

FetchChoice::Ticket FetchChoice::begin(const Load& load, TimePoint now) {
  Ticket ticket{
      .size_class = class_of(load), .object_count = load.object_count, .work = work_of(load)};
  SizeClass& of = classes_[ticket.size_class];
  ticket.way = choose(of, ticket.work, now);
  if (of.trial) {
    ++of.batches;
    of.objects += load.object_count;
    ticket.trial = of.number;
  }
  if (in_progress_[0] + in_progress_[1] == 0) {
    begin_run(ticket.way, now);
  } else if (run_.active && run_.way != ticket.way) {
    run_.active = false;
  }
  ++in_progress_[index_of(ticket.way)];
  if (run_.active) ticket.run = run_.number;
  return ticket;
}

void FetchChoice::end(const Ticket& ticket, bool failed, TimePoint now) {
  --in_progress_[index_of(ticket.way)];
  if (SizeClass& of = classes_[ticket.size_class]; of.trial && ticket.trial == of.number) {
    --of.batches;
    of.objects -= ticket.object_count;
  }
  const bool idle = in_progress_[0] + in_progress_[1] == 0;
  if (!run_.active || failed || ticket.run != run_.number) {
    SizeClass& of = classes_[ticket.size_class];
    if (of.trial == ticket.way) ++of.unmeasured_batches;
  }
  if (run_.active) {
    if (failed) {
      // Whatever took the time was not the work.
      begin_run(run_.way, now);
    } else if (ticket.run == run_.number) {
      run_.work[ticket.size_class] += ticket.work;
      ++run_.batches;
      const uint64_t least = std::max<uint64_t>(kLeastBatches, in_progress_[index_of(run_.way)]);
      if (idle || (now - run_.since >= kLeastRun && run_.batches >= least)) take_measurement(now);
    } else if (run_.batches == 0) {
      run_.since = now;  // until now the server was busy with what does not count
    }
    if (idle) run_.active = false;
    return;
  }
  if (idle) return;
  if (in_progress_[index_of(other(ticket.way))] == 0) begin_run(ticket.way, now);
  if (in_progress_[index_of(ticket.way)] == 0) begin_run(other(ticket.way), now);
}

void FetchChoice::begin_run(FetchWay way, TimePoint now) {
  run_ = {.number = run_.number + 1, .active = true, .way = way, .since = now};
}

// The work of all sizes was done in the same time, so it is measured together. It counts for those
// sizes that were a good part of it.
void FetchChoice::take_measurement(TimePoint now) {
  const double took_s = std::chrono::duration<double>(now - run_.since).count();
  const double total = std::accumulate(run_.work.begin(), run_.work.end(), 0.0);
  if (took_s <= 0 || total <= 0) {
    for (SizeClass& of : classes_) of.unmeasured_batches += of.trial == run_.way ? 1 : 0;
    return;
  }
  for (size_t i = 0; i < kClassCount; ++i) {
    if (run_.work[i] < total / 4) continue;
    SizeClass& of = classes_[i];
    Measured& measured = of.ways[index_of(run_.way)];
    const double share = measured.count == 0 ? 1.0 : kNewShare;
    measured.work_per_s += share * (total / took_s - measured.work_per_s);
    ++measured.count;
    measured.at = now;
    if (of.trial == run_.way) {
      of.trial.reset();
      settle(of, run_.work[i] / run_.batches, now);
    }
  }
  // What is in progress goes on, and counts when it ends: as much began before as is left then.
  run_.work.fill(0);
  run_.batches = 0;
  run_.since = now;
}

// After a trial: which way is taken, and when the other one is tried again.
void FetchChoice::settle(SizeClass& of, double work, TimePoint now) {
  Measured& mine = of.ways[index_of(of.chosen)];
  Measured& its = of.ways[index_of(other(of.chosen))];
  if (mine.count == 0 || its.count == 0) return;
  if (its.work_per_s > mine.work_per_s * kBetter) {
    of.chosen = other(of.chosen);
    of.between_trials = kLeastBetweenTrials;
  } else {
    of.between_trials *= 2;
  }
  const double slower = std::min(mine.work_per_s, its.work_per_s);
  const std::chrono::duration<double> least(kTimesTrial * work / slower);
  const auto wait = std::min<std::chrono::duration<double>>(std::max(of.between_trials, least),
                                                            kMostBetweenTrials);
  of.between_trials = wait;
  of.next_trial = now + std::chrono::duration_cast<std::chrono::steady_clock::duration>(wait);
}

void FetchChoice::begin_trial(SizeClass& of, FetchWay way) {
  of.trial = way;
  ++of.number;
  of.batches = of.objects = 0;
  of.unmeasured_batches = 0;
  of.most_unmeasured = kMostUnmeasured + in_progress_[0] + in_progress_[1];
}

std::optional<FetchWay> FetchChoice::to_try(const SizeClass& of, TimePoint now) {
  if (of.ways[index_of(of.chosen)].count == 0) return of.chosen;
  const bool is_due = of.ways[index_of(other(of.chosen))].count == 0 || now >= of.next_trial;
  return is_due ? std::optional(other(of.chosen)) : std::nullopt;
}

FetchWay FetchChoice::choose(SizeClass& of, double work, TimePoint now) {
  if (!of.trial) {
    const std::optional<FetchWay> way = to_try(of, now);
    if (!way) return of.chosen;
    begin_trial(of, *way);
  }
  if (of.unmeasured_batches >= of.most_unmeasured) {
    if (of.ways[0].count == 0 || of.ways[1].count == 0) {
      begin_trial(of, other(*of.trial));
    } else {
      of.trial.reset();
      settle(of, work, now);
      return of.chosen;
    }
  }
  return *of.trial;
}

std::optional<double> FetchChoice::measured(FetchWay way, const Load& load) const {
  const Measured& found = classes_[class_of(load)].ways[index_of(way)];
  if (found.count == 0) return {};
  return found.work_per_s;
}

}  // namespace headrace
