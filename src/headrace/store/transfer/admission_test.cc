// The in-flight limit and the paces, in simulated worlds: no clock, no threads, no server.
#include "headrace/store/transfer/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/temporary_folder_test_support.h"
#include "headrace/base/units.h"
#include "headrace/store/transfer/pace.h"

namespace headrace {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::nanoseconds;
using TimePoint = Admission::TimePoint;

constexpr uint64_t kObjectBytes = 100 * kKiB;
constexpr uint32_t kInitialLimit = 64, kMaxLimit = 512;

TimePoint at(double seconds) {
  return TimePoint(std::chrono::hours(1)) + duration_cast<nanoseconds>(duration<double>(seconds));
}
double seconds_of(TimePoint time) { return duration<double>(time - at(0)).count(); }

struct Answer {
  double latency_s = 0;
  bool throttled = false;
  std::optional<double> first_byte_s = std::nullopt;  // if the bytes behind it take a while
};
// What a service makes of a request that reaches it at this second.
using Service = std::function<Answer(double)>;

// Clients that want as much as they can get, each with an admission of its own. Each reads several
// roots, which take turns if there are not enough places for all.
class World {
 public:
  World(Service service, size_t client_count, uint32_t initial_limit = kInitialLimit,
        uint32_t max_limit = kMaxLimit)
      : World(std::vector<Service>{std::move(service)}, client_count, initial_limit, max_limit) {}
  // One service for each root.
  World(std::vector<Service> services, size_t client_count, uint32_t initial_limit = kInitialLimit,
        uint32_t max_limit = kMaxLimit)
      : services_(std::move(services)) {
    for (size_t i = 0; i < client_count; ++i) {
      Client& client = clients_.emplace_back();
      client.admission = std::make_unique<Admission>(initial_limit, max_limit);
      client.roots.resize(services_.size());
      for (Root& root : client.roots) root.pace = std::make_unique<Pace>("");
    }
  }

  void set_object_bytes(uint64_t bytes) { object_bytes_ = bytes; }
  // The clients ask for so many, and for the next so many once all have come.
  void set_batch(uint32_t count) { batch_ = count; }

  // They begin with limits of their own, and are processes of one machine if there is a folder.
  void begin_unequally(const std::string& folder) {
    uint32_t limit = kInitialLimit;
    for (Client& client : clients_) {
      auto neighbours =
          folder.empty() ? nullptr : std::make_unique<Neighbours>("http://host", folder);
      client.admission = std::make_unique<Admission>(limit, kMaxLimit, std::move(neighbours));
      limit = limit == kInitialLimit ? kInitialLimit / 4 : kInitialLimit;
    }
  }

  void run_until(double end_s) {
    for (Client& client : clients_) fill(client);
    while (!events_.empty() && events_.top().at_s <= end_s) {
      const Event event = events_.top();
      events_.pop();
      now_s_ = event.at_s;
      Client& client = clients_[event.client];
      Root& root = client.roots[event.root];
      if (event.is_turn) {
        root.waits = false;
      } else {
        take_answer(client, root, event.answer);
      }
      fill(client);
    }
    now_s_ = end_s;
  }

  uint32_t limit(size_t client = 0) const { return clients_[client].admission->limit(); }
  bool queueing() const { return clients_[0].admission->queueing(); }
  uint64_t useful_ahead() const { return clients_[0].admission->useful_ahead(); }
  double pace_per_s(size_t root) const { return clients_[0].roots[root].pace->per_s(); }

  // Since the last call.
  struct Counts {
    std::vector<uint64_t> completed = {};  // by client
    std::vector<uint64_t> by_root = {};    // of all clients
    uint64_t total = 0, throttled = 0;
    double throttled_fraction() const {
      return static_cast<double>(throttled) / static_cast<double>(total + throttled);
    }
  };
  Counts take_counts() {
    Counts counts{.by_root = std::vector<uint64_t>(services_.size())};
    for (Client& client : clients_) {
      uint64_t completed = 0;
      for (size_t i = 0; i < client.roots.size(); ++i) {
        Root& root = client.roots[i];
        counts.by_root[i] += root.completed;
        completed += root.completed;
        counts.throttled += root.throttled;
        root.completed = root.throttled = 0;
      }
      counts.completed.push_back(completed);
      counts.total += completed;
    }
    return counts;
  }

 private:
  struct Root {
    std::unique_ptr<Pace> pace;
    std::optional<double> turn_s;  // when the next request may be sent
    bool waits = false;            // for this, or to ask again
    uint64_t completed = 0, throttled = 0;
  };
  struct Client {
    std::unique_ptr<Admission> admission;
    std::vector<Root> roots;
    size_t next_root = 0;
    uint32_t in_flight = 0;
    uint32_t asked = 0;  // of the batch
    bool limited = false;
  };
  struct Event {
    double at_s = 0;
    size_t client = 0, root = 0;
    bool is_turn = false;
    Answer answer = {};
    uint64_t number = 0;  // makes the order of equal times certain
    bool operator<(const Event& other) const {
      return at_s != other.at_s ? at_s > other.at_s : number > other.number;
    }
  };

  void take_answer(Client& client, Root& root, const Answer& answer) {
    --client.in_flight;
    ++(answer.throttled ? root.throttled : root.completed);
    const auto latency = duration_cast<nanoseconds>(duration<double>(answer.latency_s));
    const auto first_byte = answer.first_byte_s
                                ? duration_cast<nanoseconds>(duration<double>(*answer.first_byte_s))
                                : latency;
    const bool paced = answer.throttled || root.pace->refused();
    if (paced) root.pace->report(answer.throttled, first_byte, at(now_s_));
    AdmissionReport report{.completed = answer.throttled ? 0u : 1u,
                           .unhindered = paced ? 0u : 1u,
                           .throttled = answer.throttled ? 1u : 0u,
                           .bytes = answer.throttled ? 0 : object_bytes_,
                           .limited = std::exchange(client.limited, false)};
    if (!answer.throttled) report.add(first_byte, latency);
    client.admission->report(report, at(now_s_));
  }

  // As in the engine: what is not due takes no place within the limit.
  void fill(Client& client) {
    for (size_t idle = 0; idle < client.roots.size();) {
      const size_t index = client.next_root++ % client.roots.size();
      Root& root = client.roots[index];
      if (!is_due(root, static_cast<size_t>(&client - clients_.data()), index)) {
        ++idle;
        continue;
      }
      if (client.asked == batch_) {
        if (client.in_flight > 0) return;
        client.asked = 0;
      }
      if (client.in_flight >= client.admission->limit()) {
        client.limited = true;
        client.next_root = index;  // it gets the next place
        return;
      }
      idle = 0;
      root.turn_s.reset();
      ++client.in_flight;
      ++client.asked;
      const Answer answer = services_[index](now_s_);
      events_.push({.at_s = now_s_ + answer.latency_s,
                    .client = static_cast<size_t>(&client - clients_.data()),
                    .root = index,
                    .answer = answer,
                    .number = next_++});
    }
  }

  bool is_due(Root& root, size_t client, size_t index) {
    if (root.waits) return false;
    if (!root.pace->refused() || root.turn_s) return true;
    const std::optional<TimePoint> turn = root.pace->reserve(at(now_s_));
    if (turn) root.turn_s = seconds_of(*turn);
    if (turn && *turn <= at(now_s_)) return true;
    root.waits = true;
    events_.push({.at_s = std::max(now_s_, seconds_of(turn.value_or(at(now_s_) + Pace::kHorizon))),
                  .client = client,
                  .root = index,
                  .is_turn = true,
                  .number = next_++});
    return false;
  }

  const std::vector<Service> services_;
  std::vector<Client> clients_;
  std::priority_queue<Event> events_;
  double now_s_ = 0;
  uint64_t next_ = 0;
  uint64_t object_bytes_ = kObjectBytes;
  uint32_t batch_ = UINT32_MAX;
};

// Serves one after the other, as a processor or a link does.
Service queueing(double base_latency_s, std::function<double(double)> requests_per_s) {
  return [base_latency_s, requests_per_s = std::move(requests_per_s),
          free_at_s = 0.0](double now_s) mutable {
    free_at_s = std::max(free_at_s, now_s) + 1 / requests_per_s(now_s);
    return Answer{.latency_s = base_latency_s + free_at_s - now_s};
  };
}

// Refuses what is above a rate that nobody told. A burst, of a tenth of a second, is let through.
// The latency varies by a fifth, or clients would go in lockstep.
Service rate_capped(double base_latency_s, std::function<double(double)> cap_per_s,
                    double burst_s = 0.1) {
  return [base_latency_s, cap_per_s = std::move(cap_per_s), burst_s, tokens = 0.0, last_s = 0.0,
          rng = std::mt19937(1)](double now_s) mutable {
    const double cap = cap_per_s(now_s);
    const double latency_s = base_latency_s * std::uniform_real_distribution<double>(0.8, 1.2)(rng);
    tokens = std::min(cap * burst_s, tokens + (now_s - last_s) * cap);
    last_s = now_s;
    if (tokens < 1) return Answer{.latency_s = latency_s, .throttled = true};
    tokens -= 1;
    return Answer{.latency_s = latency_s};
  };
}

// So many of the answers, at random, take as long as `slow_s`.
Service with_tail(Service service, double share, double slow_s) {
  return
      [service = std::move(service), share, slow_s, rng = std::mt19937(3)](double now_s) mutable {
        Answer answer = service(now_s);
        if (std::uniform_real_distribution<double>(0, 1)(rng) < share) answer.latency_s = slow_s;
        return answer;
      };
}

TEST(Admission, ReachesManyRequestsWithinASecondWhenOnlyLatencyHolds) {
  World world([](double) { return Answer{.latency_s = 0.03}; }, 1);
  world.run_until(1);
  EXPECT_GE(world.limit(), 256u);
  world.take_counts();
  world.run_until(11);
  EXPECT_GE(world.limit(), 256u);
  EXPECT_GE(world.take_counts().total, 10 * 256 / 0.03 * 0.9);
}

TEST(Admission, StaysWhereItIsWhenMoreInFlightBringsNothing) {
  World world(queueing(0, [](double) { return 20'000.0; }), 1);
  for (int second = 1; second <= 30; ++second) {
    world.run_until(second);
    EXPECT_GE(world.limit(), 8u) << "second " << second;
    EXPECT_LE(world.limit(), 128u) << "second " << second;
  }
  // And the service is never idle for it.
  EXPECT_GE(world.take_counts().total, 30 * 20'000 * 0.98);
}

// A link that is full with less than a hundred in flight. Its rate is another one every tenth of a
// second, and what waits for it waits behind the first byte, where no latency tells of it.
Service noisy_link(unsigned seed) {
  return [rate = std::normal_distribution<double>(2'000, 400), rng = std::mt19937(seed),
          free_at_s = 0.0, tenth = -1.0, now_per_s = 2'000.0](double now_s) mutable {
    constexpr double kFirstByteS = 0.046;
    if (std::floor(now_s * 10) != tenth) {
      tenth = std::floor(now_s * 10);
      now_per_s = std::max(500.0, rate(rng));
    }
    free_at_s = std::max(free_at_s, now_s + kFirstByteS) + 1 / now_per_s;
    return Answer{.latency_s = free_at_s - now_s, .first_byte_s = kFirstByteS};
  };
}

// The mean limit, looked at every second, of two minutes.
double mean_limit(World& world) {
  double sum = 0;
  for (int second = 11; second <= 130; ++second) {
    world.run_until(second);
    sum += world.limit();
  }
  return sum / 120;
}

TEST(Admission, ARateThatVariesDoesNotMakeItCreep) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(noisy_link(seed), 1);
    world.set_object_bytes(kMiB);
    world.run_until(10);
    world.take_counts();
    EXPECT_LE(mean_limit(world), 200);
    EXPECT_GE(world.take_counts().total, 120 * 2'000 * 0.92);
  }
}

TEST(Admission, LargeRequestsThatAreSlowByThemselvesStayMany) {
  // Each of the connections is slow, and there is always room for another one.
  for (const double spread : {0.0, 0.2, 0.5}) {
    SCOPED_TRACE("spread " + std::to_string(spread));
    World world(
        [rng = std::mt19937(1), spread](double) mutable {
          std::uniform_real_distribution<double> varied(1 - spread, 1 + spread);
          return Answer{.latency_s = 0.16 * varied(rng), .first_byte_s = 0.03};
        },
        1);
    world.set_object_bytes(8 * kMiB);
    world.run_until(10);
    world.take_counts();
    mean_limit(world);
    EXPECT_GE(world.take_counts().total, 120 * 512 / 0.16 * 0.95);
  }
}

TEST(Admission, ReadersThatWaitForAWholeBatchKeepTheirPermits) {
  for (const uint32_t batch : {256u, 512u}) {
    for (const double whole_s : {0.05, 0.08, 0.23}) {
      SCOPED_TRACE(std::to_string(batch) + " at " + std::to_string(whole_s) + " s");
      World world(
          [rng = std::mt19937(1), whole_s](double) mutable {
            const double varied = std::uniform_real_distribution<double>(0.9, 1.1)(rng);
            return Answer{.latency_s = whole_s * varied, .first_byte_s = 0.03};
          },
          1);
      world.set_object_bytes(kMiB);
      world.set_batch(batch);
      world.run_until(30);
      world.take_counts();
      world.run_until(150);
      EXPECT_GE(world.take_counts().total, 120 * batch / (whole_s * 1.1) * 0.9);
    }
  }
}

TEST(Admission, ComesBackDownWhenALinkIsFullAndLatencyRises) {
  // 250 requests suffice at first; then 31 do.
  World world(queueing(0.025, [](double now_s) { return now_s < 10 ? 10'000.0 : 1'250.0; }), 1);
  world.run_until(10);
  EXPECT_GE(world.limit(), 200u);
  world.run_until(40);
  EXPECT_LE(world.limit(), 100u);
  world.take_counts();
  world.run_until(60);
  EXPECT_LE(world.limit(), 100u);
  EXPECT_GE(world.take_counts().total, 20 * 1'250 * 0.95);
}

TEST(Admission, ATailOfSlowAnswersIsNoCongestion) {
  struct Tail {
    double share, slow_s;
  };
  for (const Tail& tail : {Tail{0.01, 1}, Tail{0.05, 1}, Tail{0.001, 5}, Tail{0.1, 0.5}}) {
    SCOPED_TRACE(std::to_string(tail.share) + " at " + std::to_string(tail.slow_s) + " s");
    World world(
        with_tail([](double) { return Answer{.latency_s = 0.03}; }, tail.share, tail.slow_s), 1);
    world.run_until(10);
    EXPECT_GE(world.limit(), 256u);
    for (int second = 11; second <= 40; ++second) {
      world.run_until(second);
      EXPECT_FALSE(world.queueing()) << "second " << second;
      EXPECT_GE(world.limit(), 200u) << "second " << second;
    }
  }
}

TEST(Admission, LatenciesThatSpreadAreNoQueue) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world([rng = std::mt19937(seed),
                 latency_s = std::lognormal_distribution<double>(std::log(0.03), 1)](
                    double) mutable { return Answer{.latency_s = latency_s(rng)}; },
                1);
    for (int step = 1; step <= 40; ++step) {
      world.run_until(step * 0.25);
      EXPECT_FALSE(world.queueing()) << step * 0.25 << " s";
    }
    EXPECT_GE(world.limit(), 256u);
  }
}

TEST(Admission, AFullLinkIsSeenBehindATail) {
  // As above, with a tail: 250 requests suffice at first; then 31 and those that are slow do.
  const auto rate = [](double now_s) { return now_s < 10 ? 10'000.0 : 1'250.0; };
  World world(with_tail(queueing(0.025, rate), 0.01, 1), 1);
  world.run_until(10);
  EXPECT_GE(world.limit(), 200u);
  world.run_until(12);
  EXPECT_TRUE(world.queueing());
  world.run_until(40);
  EXPECT_LE(world.limit(), 120u);
  world.take_counts();
  world.run_until(60);
  EXPECT_LE(world.limit(), 120u);
  EXPECT_GE(world.take_counts().total, 20 * 1'250 * 0.9);
}

class ManyClients : public ::testing::TestWithParam<size_t> {
 protected:
  // What the slowest gets of a server with more to do than it can, in parts of the mean.
  double slowest_share(const std::string& folder) {
    World world(queueing(0.03, [](double) { return 18'000.0; }), GetParam());
    world.begin_unequally(folder);
    world.run_until(2);
    world.take_counts();
    world.run_until(10);
    const World::Counts counts = world.take_counts();
    EXPECT_GE(counts.total, 8 * 18'000 * 0.95);
    const uint64_t slowest = *std::ranges::min_element(counts.completed);
    return static_cast<double>(slowest * GetParam()) / static_cast<double>(counts.total);
  }
};

TEST_P(ManyClients, OnOneMachineGetEqualShares) {
  const TemporaryFolder folder;
  EXPECT_GE(slowest_share(folder.path()), 0.85);
}

class UnawareClients : public ManyClients {};

// Why they tell each other: more in flight is more for each, whatever it takes from the others.
TEST_P(UnawareClients, GetWhatTheyHappenTo) { EXPECT_LT(slowest_share(""), 0.85); }

INSTANTIATE_TEST_SUITE_P(Counts, ManyClients, ::testing::Values(2u, 4u, 8u));
INSTANTIATE_TEST_SUITE_P(Counts, UnawareClients, ::testing::Values(4u, 8u));

// An interval of 100 ms: requests that are completed while others wait, and while none does, each
// after so long.
void pass_interval(LimitControl& control, double& now_s, uint32_t limited, uint32_t others,
                   std::chrono::milliseconds after = std::chrono::milliseconds(34)) {
  for (const uint32_t completed : {limited, others}) {
    now_s += 0.051;
    AdmissionReport report{.completed = completed,
                           .unhindered = completed,
                           .bytes = completed * kObjectBytes,
                           .limited = completed == limited};
    report.add(after, after);
    control.report(report, at(now_s));
  }
}

TEST(Admission, AnIntervalInWhichLessWasAskedForDoesNotEndTheGrowth) {
  LimitControl control(64, 512);
  double now_s = 0;
  control.report({}, at(now_s));  // begins the interval
  pass_interval(control, now_s, 100, 90);
  EXPECT_EQ(control.limit(), 128u);
  pass_interval(control, now_s, 30, 60);  // the readers wait for one answer
  EXPECT_EQ(control.limit(), 128u);
  pass_interval(control, now_s, 200, 180);
  EXPECT_EQ(control.limit(), 256u);
  pass_interval(control, now_s, 200, 180, std::chrono::milliseconds(50));
  EXPECT_EQ(control.limit(), 128u) << "as much was asked for, and no more was gained";
}

TEST(Admission, ReadersThatAskForLessForGoodAreBelieved) {
  LimitControl control(64, 512);
  double now_s = 0;
  control.report({}, at(now_s));
  pass_interval(control, now_s, 100, 90);
  EXPECT_EQ(control.limit(), 128u);
  for (int i = 0; i < 3; ++i) pass_interval(control, now_s, 30, 60);
  EXPECT_EQ(control.limit(), 128u);
  pass_interval(control, now_s, 30, 60);
  EXPECT_EQ(control.limit(), 64u);
}

TEST(Admission, ReadAheadIsAsDeepAsTheTailAsksFor) {
  const Service even = [](double) { return Answer{.latency_s = 0.03}; };
  World without(even, 1);
  EXPECT_EQ(without.useful_ahead(), 128u) << "nothing is known yet";
  without.run_until(10);
  EXPECT_EQ(without.useful_ahead(), 2 * without.limit());

  World with(with_tail(even, 0.01, 0.3), 1);
  with.run_until(10);
  // While an answer of 300 ms is waited for, ten round trips of 30 ms take place.
  EXPECT_GE(with.useful_ahead(), 10 * with.limit());
  EXPECT_LE(with.useful_ahead(), 13 * with.limit());

  World fast(with_tail([](double) { return Answer{.latency_s = 0.0005}; }, 0.01, 0.02), 1);
  fast.run_until(10);
  EXPECT_EQ(fast.useful_ahead(), 2 * fast.limit()) << "that little is not worth the memory";

  World slow(with_tail([](double) { return Answer{.latency_s = 0.001}; }, 0.01, 10), 1);
  slow.run_until(30);
  EXPECT_LE(slow.useful_ahead(), 65 * slow.limit()) << "it is bounded";
}

TEST(Admission, SharesAHiddenRateCapFairlyAndIsSeldomRefused) {
  for (const double cap : {200.0, 2'000.0, 10'000.0}) {
    World world(rate_capped(0.03, [cap](double) { return cap; }), 4);
    world.run_until(30);
    world.take_counts();
    world.run_until(90);
    const World::Counts counts = world.take_counts();
    EXPECT_GE(static_cast<double>(counts.total), 60 * cap * 0.9) << cap;
    EXPECT_LE(counts.throttled_fraction(), 0.02) << cap;
    const uint64_t least = *std::ranges::min_element(counts.completed);
    EXPECT_GE(static_cast<double>(least), 60 * cap / 4 / 2) << cap;
  }
}

TEST(Admission, OneClientUsesAHiddenRateCap) {
  World world(rate_capped(0.03, [](double) { return 3'000.0; }), 1);
  world.run_until(30);
  world.take_counts();
  world.run_until(90);
  const World::Counts counts = world.take_counts();
  EXPECT_GE(static_cast<double>(counts.total), 60 * 3'000 * 0.9);
  EXPECT_LE(counts.throttled_fraction(), 0.02);
}

TEST(Admission, FollowsARateCapThatMoves) {
  constexpr double kPhaseS = 30;
  for (const std::vector<double>& caps : std::vector<std::vector<double>>{
           {4'000, 2'000}, {2'000, 1'000, 3'000}, {1'000, 4'000}, {500, 2'000}}) {
    const auto cap = [&caps](double now_s) {
      return caps[static_cast<size_t>(now_s / kPhaseS) % caps.size()];
    };
    for (const size_t client_count : {1u, 4u}) {
      SCOPED_TRACE(std::to_string(caps[0]) + ", " + std::to_string(client_count) + " clients");
      World world(rate_capped(0.03, cap), client_count);
      world.run_until(kPhaseS);
      world.take_counts();
      double allowed = 0;
      for (size_t phase = 1; phase <= 6; ++phase) allowed += kPhaseS * caps[phase % caps.size()];
      world.run_until(7 * kPhaseS);
      const World::Counts counts = world.take_counts();
      EXPECT_GE(static_cast<double>(counts.total), 0.9 * allowed);
      EXPECT_LE(counts.throttled_fraction(), 0.02);
    }
  }
}

TEST(Admission, ARateCapMayTakeNearlyNothingAtOnce) {
  // As above, but what was not used is forgotten after a fiftieth of a second.
  const auto cap = [](double now_s) {
    return static_cast<int>(now_s / 30) % 2 == 0 ? 4'000.0 : 2'000.0;
  };
  World world(rate_capped(0.03, cap, /*burst_s=*/0.02), 1);
  world.run_until(30);
  world.take_counts();
  world.run_until(210);
  const World::Counts counts = world.take_counts();
  EXPECT_GE(static_cast<double>(counts.total), 180 * 3'000 * 0.85);
  EXPECT_LE(counts.throttled_fraction(), 0.02);
}

TEST(Admission, RecoversFromAnOutageOfRefusals) {
  const auto cap = [](double now_s) { return now_s > 20 && now_s < 25 ? 1.0 : 2'000.0; };
  World world(rate_capped(0.03, cap), 1);
  world.run_until(60);
  world.take_counts();
  world.run_until(90);
  EXPECT_GE(static_cast<double>(world.take_counts().total), 30 * 2'000 * 0.9);
}

TEST(Admission, OneThrottledRootDoesNotSlowDownTheOthers) {
  const auto hot = [] { return rate_capped(0.03, [](double) { return 100.0; }); };
  const Service cold = [](double) { return Answer{.latency_s = 0.03}; };
  World alone(cold, 1);
  alone.run_until(3);
  alone.take_counts();
  alone.run_until(13);
  const uint64_t undisturbed = alone.take_counts().total;

  World world(std::vector{hot(), cold}, 1);
  world.run_until(3);
  world.take_counts();
  world.run_until(13);
  const World::Counts counts = world.take_counts();
  EXPECT_GE(world.limit(), 256u) << "the limit goes on growing";
  EXPECT_GE(static_cast<double>(counts.by_root[1]), 0.98 * static_cast<double>(undisturbed));
  EXPECT_GE(counts.by_root[0], 10 * 100 * 0.8);
  EXPECT_LE(counts.throttled, 100u);
  EXPECT_EQ(world.pace_per_s(1), 0) << "and has no pace";
}

TEST(Admission, RootsThatAreThrottledKeepPacesOfTheirOwn) {
  const auto capped = [](double cap) { return rate_capped(0.03, [cap](double) { return cap; }); };
  World world(std::vector{capped(100), capped(1'000), capped(4'000)}, 1);
  world.run_until(30);
  world.take_counts();
  world.run_until(90);
  const World::Counts counts = world.take_counts();
  EXPECT_GE(static_cast<double>(counts.by_root[0]), 60 * 100 * 0.85);
  EXPECT_GE(static_cast<double>(counts.by_root[1]), 60 * 1'000 * 0.9);
  EXPECT_GE(static_cast<double>(counts.by_root[2]), 60 * 4'000 * 0.9);
  EXPECT_LE(counts.throttled_fraction(), 0.02);
}

TEST(Admission, RootsBelowOneCapUseItHoweverLongAnAnswerTakes) {
  for (const double latency_s : {0.03, 0.2}) {
    const auto shared =
        std::make_shared<Service>(rate_capped(latency_s, [](double) { return 100.0; }));
    const Service root = [shared](double now_s) { return (*shared)(now_s); };
    World world(std::vector<Service>(8, root), 1);
    world.run_until(20);
    world.take_counts();
    world.run_until(80);
    EXPECT_GE(static_cast<double>(world.take_counts().total), 60 * 100 * 0.8) << latency_s;
  }
}

TEST(Admission, ACapOnRequestsInFlightLowersTheLimitOfAHostWhoseRootsAreAllRefused) {
  // More than 40 at once are refused; each takes 20 ms.
  std::vector<double> ends_s;
  const Service service = [&ends_s](double now_s) {
    std::erase_if(ends_s, [now_s](double end_s) { return end_s <= now_s; });
    if (ends_s.size() >= 40) return Answer{.latency_s = 0.001, .throttled = true};
    ends_s.push_back(now_s + 0.02);
    return Answer{.latency_s = 0.02};
  };
  World world(std::vector{service, service}, 1, 256, 256);
  world.run_until(10);
  EXPECT_LE(world.limit(), 100u);
  world.take_counts();
  world.run_until(30);
  const World::Counts counts = world.take_counts();
  EXPECT_GE(static_cast<double>(counts.total), 20 * 40 / 0.02 * 0.85);
  EXPECT_LE(counts.throttled_fraction(), 0.03);
}

TEST(Admission, LimitStaysWithinItsBounds) {
  Admission narrow(1000, 16);
  EXPECT_EQ(narrow.limit(), 16u);
  Admission least(0, 0);
  EXPECT_EQ(least.limit(), 1u);
  for (int i = 1; i < 200; ++i) {
    narrow.report({.throttled = 3}, at(i * 0.1));
    EXPECT_GE(narrow.limit(), 1u);
    EXPECT_LE(narrow.limit(), 16u);
  }
}

}  // namespace
}  // namespace headrace
