// The in-flight limit and the pace, in simulated worlds: no clock, no threads, no server.
#include "headrace/store/transfer/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "headrace/base/units.h"

namespace headrace {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::nanoseconds;
using TimePoint = Admission::TimePoint;

constexpr uint64_t kObjectBytes = 100 * kKiB;

TimePoint at(double seconds) {
  return TimePoint(std::chrono::hours(1)) + duration_cast<nanoseconds>(duration<double>(seconds));
}
double seconds_of(TimePoint time) { return duration<double>(time - at(0)).count(); }

struct Answer {
  double latency_s = 0;
  bool throttled = false;
};
// What a service makes of a request that reaches it at this second.
using Service = std::function<Answer(double)>;

// Clients that want as much as they can get, each with an admission of its own.
class World {
 public:
  World(Service service, size_t client_count, uint32_t initial_limit = 64, uint32_t max_limit = 512)
      : service_(std::move(service)) {
    for (size_t i = 0; i < client_count; ++i) {
      clients_.push_back({.admission = std::make_unique<Admission>(initial_limit, max_limit)});
    }
  }

  void run_until(double end_s) {
    for (Client& client : clients_) fill(client);
    while (!events_.empty() && events_.top().at_s <= end_s) {
      const Event event = events_.top();
      events_.pop();
      now_s_ = event.at_s;
      Client& client = clients_[event.client];
      if (event.asks) {
        ask(event.client);
        continue;
      }
      if (event.sends) {
        const Answer answer = service_(now_s_);
        events_.push({.at_s = now_s_ + answer.latency_s,
                      .client = event.client,
                      .answer = answer,
                      .number = next_++});
        continue;
      }
      --client.in_flight;
      (event.answer.throttled ? client.throttled : client.completed) += 1;
      client.admission->report(
          {.completed = event.answer.throttled ? 0u : 1u,
           .throttled = event.answer.throttled ? 1u : 0u,
           .bytes = event.answer.throttled ? 0 : kObjectBytes,
           .latency_sum = duration_cast<nanoseconds>(duration<double>(event.answer.latency_s)),
           .limited = true},
          at(now_s_));
      fill(client);
    }
    now_s_ = end_s;
  }

  uint32_t limit(size_t client = 0) const { return clients_[client].admission->limit(); }

  // Since the last call.
  struct Counts {
    std::vector<uint64_t> completed;
    uint64_t total = 0, throttled = 0;
    double throttled_fraction() const {
      return static_cast<double>(throttled) / static_cast<double>(total + throttled);
    }
  };
  Counts take_counts() {
    Counts counts;
    for (Client& client : clients_) {
      counts.completed.push_back(client.completed);
      counts.total += client.completed;
      counts.throttled += client.throttled;
      client.completed = client.throttled = 0;
    }
    return counts;
  }

 private:
  struct Client {
    std::unique_ptr<Admission> admission;
    uint32_t in_flight = 0;
    uint64_t completed = 0, throttled = 0;
  };
  struct Event {
    double at_s = 0;
    size_t client = 0;
    bool asks = false, sends = false;
    Answer answer = {};
    uint64_t number = 0;  // makes the order of equal times certain
    bool operator<(const Event& other) const {
      return at_s != other.at_s ? at_s > other.at_s : number > other.number;
    }
  };

  // A place within the limit is taken when the request is admitted, as in the engine: a paced
  // request waits in its place.
  void fill(Client& client) {
    while (client.in_flight < client.admission->limit()) {
      ++client.in_flight;
      ask(static_cast<size_t>(&client - clients_.data()));
    }
  }

  void ask(size_t client) {
    const Admission::Turn turn = clients_[client].admission->reserve(at(now_s_));
    events_.push({.at_s = std::max(now_s_, seconds_of(turn.at)),
                  .client = client,
                  .asks = !turn.granted,
                  .sends = turn.granted,
                  .number = next_++});
  }

  const Service service_;
  std::vector<Client> clients_;
  std::priority_queue<Event> events_;
  double now_s_ = 0;
  uint64_t next_ = 0;
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

TEST(Admission, IsNotPacedUntilItIsRefused) {
  Admission admission(8, 8);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(admission.reserve(at(0)).at, at(0));
  for (int i = 1; i <= 100; ++i) {
    admission.report({.completed = 10, .latency_sum = std::chrono::milliseconds(10)}, at(i * 0.01));
  }
  admission.report({.throttled = 1}, at(1.2));
  admission.report({.throttled = 1}, at(1.4));
  int paced_count = 0;
  for (int i = 0; i < 1000; ++i) paced_count += admission.reserve(at(1.5)).at > at(1.5);
  EXPECT_GT(paced_count, 900);
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
