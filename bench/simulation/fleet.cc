#include "simulation/fleet.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <queue>
#include <string>
#include <utility>

#include "headrace/base/units.h"
#include "headrace/store/transfer/admission.h"
#include "headrace/store/transfer/pace.h"
#include "headrace/store/transfer/retry.h"

namespace headrace::simulation {
namespace {

using std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

// As HostLane::record_outcome() does.
constexpr uint32_t kReportEvery = 16;
constexpr std::chrono::milliseconds kReportInterval{20};
constexpr uint64_t kObjectBytes = 100 * kKiB;

nanoseconds of_seconds(double seconds) { return nanoseconds(static_cast<int64_t>(seconds * 1e9)); }
// Not at zero, which the controls take for "never".
const TimePoint kBegin = TimePoint(std::chrono::hours(1));
double seconds_of(TimePoint time) { return std::chrono::duration<double>(time - kBegin).count(); }

class Service {
 public:
  struct Answer {
    nanoseconds latency;
    bool refused;
  };

  Service(const ServiceOptions& options, uint64_t seed)
      : options_(options),
        cap_per_s_(options.cap_per_s),
        latency_s_(std::log(options.median_latency_s), options.latency_sigma),
        rng_(seed) {}

  double cap_per_s(double now_s) {
    while (next_move_ < options_.cap_moves.size() && options_.cap_moves[next_move_].at_s <= now_s) {
      cap_per_s_ = options_.cap_moves[next_move_++].value;
    }
    return cap_per_s_;
  }

  Answer take(double now_s) {
    const double cap = cap_per_s(now_s);
    tokens_ = std::min(std::max(1.0, cap * options_.burst_s), tokens_ + (now_s - last_s_) * cap);
    last_s_ = now_s;
    if (tokens_ < 1) {
      return {of_seconds(options_.refusal_latency_s * (0.8 + 0.4 * unit_(rng_))), true};
    }
    tokens_ -= 1;
    const bool slow = unit_(rng_) < options_.slow_fraction;
    return {of_seconds(slow ? options_.slow_latency_s : latency_s_(rng_)), false};
  }

 private:
  const ServiceOptions& options_;
  double cap_per_s_, tokens_ = 0, last_s_ = 0;
  size_t next_move_ = 0;
  std::lognormal_distribution<double> latency_s_;
  std::uniform_real_distribution<double> unit_{0, 1};
  std::mt19937_64 rng_;
};

// One process with one I/O thread and one root, as HostLane and Operation run it: the limit holds
// the number in flight, the pace the rate once a request was refused; a refused request waits its
// back-off without a place, and goes before new ones then.
class Process {
 public:
  Process(const FleetOptions& options, uint32_t seed)
      : limit_(options.initial_in_flight, options.max_in_flight), pace_(""), rng_(seed) {}

  // A request that may be sent now has been taken for sent; how often it was refused before.
  std::optional<uint16_t> begin(TimePoint now) {
    const bool may_begin_new = begun_ < limit_.limit();
    if (returning_.empty() && !may_begin_new) {
      limited_ = true;
      return std::nullopt;
    }
    if (in_flight_ >= limit_.limit()) {
      limited_ = true;
      return std::nullopt;
    }
    if (pace_.refused() && !has_turn(now)) return std::nullopt;
    turn_.reset();
    ++in_flight_;
    if (returning_.empty()) {
      ++begun_;
      return uint16_t{0};
    }
    const uint16_t refusals = returning_.front();
    returning_.pop();
    return refusals;
  }

  // When begin() may find another answer, though no request has ended.
  TimePoint look_again() const { return turn_ ? *turn_ : ask_again_; }
  bool waits_for_turn() const { return pace_.refused() && (turn_ || ask_again_ > TimePoint()); }

  void take_answer(bool refused, nanoseconds latency, TimePoint now) {
    --in_flight_;
    if (!refused) --begun_;
    const bool paced = refused || pace_.refused();
    if (paced) {
      pace_.report(refused, latency, now);
      ask_again_ = TimePoint();  // the pace may have changed
    }
    unreported_.completed += refused ? 0 : 1;
    unreported_.unhindered += paced ? 0 : 1;
    unreported_.throttled += refused ? 1 : 0;
    unreported_.bytes += refused ? 0 : kObjectBytes;
    if (!refused) unreported_.add(latency, latency);
    const uint32_t answers = unreported_.completed + unreported_.throttled;
    if (!refused && answers < kReportEvery && now - reported_at_ < kReportInterval) return;
    unreported_.limited = std::exchange(limited_, false);
    limit_.report(std::exchange(unreported_, {}), now);
    reported_at_ = now;
  }

  nanoseconds back_off(uint16_t refusals) {
    return backoff(retries_, refusals, Error(Code::kThrottled, ""), rng_);
  }
  void return_after_back_off(uint16_t refusals) { returning_.push(refusals); }

 private:
  bool has_turn(TimePoint now) {
    if (!turn_ && ask_again_ <= now) {
      turn_ = pace_.reserve(now);
      if (turn_) {
        last_turn_ = *turn_;
      } else {
        // As HostLane does, but without the questions whose answer is known: at this pace, the next
        // turn is no nearer. An answer may change it, and then it asks at once.
        const auto known = last_turn_ + of_seconds(1 / pace_.per_s()) - Pace::kHorizon;
        std::uniform_real_distribution<double> share(0.5, 1);
        const auto poll = now + of_seconds(share(rng_) * seconds(Pace::kHorizon));
        ask_again_ = std::max(poll, known);
      }
    }
    return turn_ && *turn_ <= now;
  }
  static double seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

  LimitControl limit_;
  Pace pace_;
  Rng rng_;
  const RetryOptions retries_{};
  uint32_t in_flight_ = 0, begun_ = 0;
  std::queue<uint16_t> returning_;  // by how often they were refused
  std::optional<TimePoint> turn_;
  TimePoint ask_again_{}, last_turn_{};
  bool limited_ = false;
  AdmissionReport unreported_;
  TimePoint reported_at_{};
};

struct Event {
  enum class Kind : uint8_t { kStart, kAnswer, kRefusal, kReturn, kLook };
  TimePoint at;
  uint64_t number;  // makes the order of equal times certain
  nanoseconds latency;
  uint32_t process;
  uint16_t refusals;
  Kind kind;
  bool operator<(const Event& other) const {
    return at != other.at ? at > other.at : number > other.number;
  }
};

class Fleet {
 public:
  explicit Fleet(const FleetOptions& options)
      : options_(options), service_(options.service, options.seed) {
    std::mt19937_64 rng(options.seed + 1);
    std::uniform_real_distribution<double> spread(0, options.start_spread_s);
    add_processes(0, options.process_count, spread, rng);
    for (const Change& group : options.newcomers) {
      add_processes(group.at_s, static_cast<size_t>(group.value), spread, rng);
    }
    run_.process_count = processes_.size();
    run_.seconds.resize(options.duration_s);
    run_.served_by_each.resize(options.duration_s * processes_.size());
    looks_at_.resize(processes_.size());
    Service caps(options.service, 0);  // looked at in steps of its own
    for (uint32_t second = 0; second < options.duration_s; ++second) {
      for (int hundredth = 0; hundredth < 100; ++hundredth) {
        run_.seconds[second].allowed += caps.cap_per_s(second + hundredth / 100.0) / 100;
      }
    }
  }

  FleetRun run() {
    const TimePoint end = kBegin + std::chrono::seconds(options_.duration_s);
    while (!events_.empty() && events_.top().at < end) {
      const Event event = events_.top();
      events_.pop();
      take(event);
    }
    return std::move(run_);
  }

 private:
  using Kind = Event::Kind;

  void add_processes(double at_s, size_t count, std::uniform_real_distribution<double>& spread,
                     std::mt19937_64& rng) {
    for (size_t i = 0; i < count; ++i) {
      const double began_s = at_s + spread(rng);
      run_.began_s.push_back(began_s);
      processes_.push_back(std::make_unique<Process>(options_, static_cast<uint32_t>(rng())));
      push(kBegin + of_seconds(began_s), Kind::kStart, processes_.size() - 1);
    }
  }

  void push(TimePoint at, Kind kind, size_t process, nanoseconds latency = {},
            uint16_t refusals = 0) {
    events_.push({.at = at,
                  .number = next_++,
                  .latency = latency,
                  .process = static_cast<uint32_t>(process),
                  .refusals = refusals,
                  .kind = kind});
  }

  void take(const Event& event) {
    Process& process = *processes_[event.process];
    const auto second = static_cast<size_t>(seconds_of(event.at));
    switch (event.kind) {
      case Kind::kStart: break;
      case Kind::kAnswer:
        process.take_answer(false, event.latency, event.at);
        ++run_.seconds[second].served;
        ++run_.served_by_each[second * processes_.size() + event.process];
        break;
      case Kind::kRefusal:
        process.take_answer(true, event.latency, event.at);
        ++run_.seconds[second].refused;
        push(event.at + process.back_off(event.refusals), Kind::kReturn, event.process, {},
             event.refusals);
        break;
      case Kind::kReturn: process.return_after_back_off(event.refusals); break;
      case Kind::kLook:
        if (looks_at_[event.process] != event.at) return;  // at another time since
        looks_at_[event.process] = TimePoint();
        break;
    }
    fill(process, event.process, event.at);
  }

  void fill(Process& process, uint32_t index, TimePoint now) {
    while (const std::optional<uint16_t> refusals = process.begin(now)) {
      const Service::Answer answer = service_.take(seconds_of(now));
      push(now + answer.latency, answer.refused ? Kind::kRefusal : Kind::kAnswer, index,
           answer.latency, static_cast<uint16_t>(*refusals + (answer.refused ? 1 : 0)));
    }
    if (!process.waits_for_turn()) return;
    const TimePoint at = process.look_again();
    if (at <= now || looks_at_[index] == at) return;
    looks_at_[index] = at;
    push(at, Kind::kLook, index);
  }

  const FleetOptions& options_;
  Service service_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<TimePoint> looks_at_;
  std::priority_queue<Event> events_;
  uint64_t next_ = 0;
  FleetRun run_;
};

}  // namespace

std::vector<uint64_t> FleetRun::served(size_t from, size_t to, size_t first, size_t end) const {
  std::vector<uint64_t> sums(end - first);
  for (size_t second = from; second < to; ++second) {
    for (size_t i = first; i < end; ++i) {
      sums[i - first] += served_by_each[second * process_count + i];
    }
  }
  return sums;
}

FleetRun::Totals FleetRun::totals(size_t from, size_t to) const {
  double allowed = 0;
  uint64_t served_count = 0, refused_count = 0;
  for (size_t second = from; second < to; ++second) {
    allowed += seconds[second].allowed;
    served_count += seconds[second].served;
    refused_count += seconds[second].refused;
  }
  std::vector<uint64_t> shares;
  const std::vector<uint64_t> each = served(from, to, 0, process_count);
  for (size_t i = 0; i < process_count; ++i) {
    if (began_s[i] <= static_cast<double>(from)) shares.push_back(each[i]);
  }
  const auto requests = static_cast<double>(served_count + refused_count);
  return {.used = allowed == 0 ? 0 : static_cast<double>(served_count) / allowed,
          .refused = requests == 0 ? 0 : static_cast<double>(refused_count) / requests,
          .fairness = jain_index(shares)};
}

double jain_index(const std::vector<uint64_t>& shares) {
  double sum = 0, squares = 0;
  for (const uint64_t share : shares) {
    sum += static_cast<double>(share);
    squares += static_cast<double>(share) * static_cast<double>(share);
  }
  if (squares == 0) return 1;
  return sum * sum / (static_cast<double>(shares.size()) * squares);
}

std::optional<size_t> settled_after_s(const FleetRun& run, size_t from, size_t to,
                                      const Targets& targets, size_t window_s) {
  std::optional<size_t> settled;
  for (size_t after = to - from - window_s + 1; after-- > 0;) {
    const FleetRun::Totals found = run.totals(from + after, from + after + window_s);
    const bool good = found.used >= targets.used_at_least &&
                      found.refused <= targets.refused_at_most &&
                      found.fairness >= targets.fairness_at_least;
    if (!good) break;
    settled = after;
  }
  return settled;
}

FleetRun simulate(const FleetOptions& options) { return Fleet(options).run(); }

}  // namespace headrace::simulation
