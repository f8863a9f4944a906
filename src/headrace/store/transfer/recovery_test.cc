// Requests that never end, through an outage and back: lanes, operations, limit and pace together,
// without a socket, a server or a thread, on a clock that moves from timer to timer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/http/answer_test_support.h"
#include "headrace/store/gcs/gcs_protocol.h"
#include "headrace/store/transfer/lane_test_support.h"

namespace headrace {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr double kLatencyS = 0.03;

struct Answer {
  std::string status = "200 OK";
  std::string headers = "";
  bool is_opened = true;  // false: the connection is refused
};
// What a service makes of a request to this root at this second.
using Service = std::function<Answer(double now_s, const std::string& target)>;

Answer refusal(std::string status, std::string headers = "") {
  return {.status = std::move(status), .headers = std::move(headers)};
}

// Counts by tenths of a second.
struct Counts {
  std::vector<int> served, refused;
  void add(std::vector<int>& to, double now_s) {
    const auto tenth = static_cast<size_t>(now_s * 10);
    if (to.size() <= tenth) to.resize(tenth + 1);
    ++to[tenth];
  }
  static int sum(const std::vector<int>& of, double begin_s, double end_s) {
    int total = 0;
    for (auto i = static_cast<size_t>(std::lround(begin_s * 10));
         i < std::min(of.size(), static_cast<size_t>(std::lround(end_s * 10))); ++i) {
      total += of[i];
    }
    return total;
  }
};

struct Network {
  Service service;
  Counts counts;
  std::function<double()> now_s;
};

class TimedConnection final : public Transport {
 public:
  TimedConnection(IoThread& thread, Network& network) : thread_(thread), network_(network) {}

  awaitable<Result<void>> open(Activity&, Resolver&) override {
    if (!network_.service(network_.now_s(), "").is_opened) {
      network_.counts.add(network_.counts.refused, network_.now_s());
      co_return fail(Code::kUnavailable, "refused");
    }
    reusable_ = true;
    co_return Result<void>();
  }

  awaitable<Result<void>> exchange(const HttpRequest& request, ResponseSink& sink) override {
    const Answer answer = network_.service(network_.now_s(), request.target);
    sent_at_ = thread_.now();
    if (!answer.is_opened) {
      reusable_ = false;
      network_.counts.add(network_.counts.refused, network_.now_s());
      co_return fail(Code::kUnavailable, "reset");
    }
    const bool is_good = answer.status.starts_with("200");
    network_.counts.add(is_good ? network_.counts.served : network_.counts.refused,
                        network_.now_s());
    const auto timer = std::make_shared<Timer>(thread_.context());
    thread_.clock().set(timer, sent_at_ + duration_cast<nanoseconds>(duration<double>(kLatencyS)));
    co_await timer->async_wait(kAwait);
    first_byte_latency_ = thread_.now() - sent_at_;
    last_used_ = thread_.now();
    co_return give_head(sink, answer.status, answer.headers, /*content_length=*/0);
  }

  void abort(const Error&) override {}
  void check_stall(TimePoint) override {}
  bool waits_for_answer() const override { return false; }
  bool has_unread() override { return false; }
  void let_go() override {}
  bool still_silent(bool) override { return true; }

 private:
  IoThread& thread_;
  Network& network_;
};

class Get final : public TextAttempt {
 public:
  Get(const Protocol& protocol, std::string target)
      : TextAttempt(protocol), target_(std::move(target)) {}
  void build(HttpRequest& request) override { request.target = target_; }
  std::string url() const override { return "gs://bucket/o"; }

 private:
  Result<Verdict> finish() override { return Verdict::kDone; }
  const std::string target_;
};

class RecoveryTest : public ::testing::Test {
 protected:
  explicit RecoveryTest() {
    network_.now_s = [this] { return duration<double>(clock_.now() - began_).count(); };
    for (size_t i = 0; i < threads_.size(); ++i) {
      threads_[i] = IoThread::without_thread(static_cast<uint32_t>(i), clock_);
      host_.lanes.push_back(std::make_unique<HostLane>(host_, *threads_[i], resolver_, *pool_));
      host_.lanes.back()->rng().seed(static_cast<unsigned>(i + 1));
    }
  }
  ~RecoveryTest() override {
    is_ending_ = true;
    for (const auto& thread : threads_) thread->stop_all();
    for (int i = 0; i < 1'000 && running_ > 0; ++i) {
      poll();
      clock_.advance_to_next();
    }
    EXPECT_EQ(running_, 0);
    host_.lanes.clear();
    poll();
  }

  void poll() {
    bool is_done = false;
    while (!is_done) {
      is_done = true;
      for (const auto& thread : threads_) {
        thread->context().restart();
        if (thread->context().poll() > 0) is_done = false;
      }
    }
  }

  // So many that each send one request after the other, to this root.
  void begin(int count, const std::string& root = "/o") {
    for (int i = 0; i < count; ++i) {
      HostLane& lane = *host_.lanes[static_cast<size_t>(i) % host_.lanes.size()];
      ++running_;
      asio::co_spawn(lane.thread().context(), client(*this, lane, root), asio::detached);
    }
  }
  static awaitable<void> client(RecoveryTest& self, HostLane& lane, std::string root) {
    const std::shared_ptr<Pace> pace = self.host_.paces.of(root);
    StoreContext store{.retry = self.retry_,
                       .timeout = self.timeout_,
                       .credentials = nullptr,
                       .signer = nullptr,
                       .elsewhere = LanesElsewhere({}),
                       .pace = pace};
    HttpRequest request;
    while (!self.is_ending_) {
      RequestPermit permit(lane, &self);
      if (const Result<void> taken = co_await permit.take(pace); !taken) break;
      Operation operation(permit.permit(), store, &self);
      Get get(self.protocol_, root);
      if (const Result<void> done = co_await operation.run(get, request); !done) ++self.failed_;
    }
    --self.running_;
  }

  void run_until(double end_s) {
    poll();
    while (network_.now_s() < end_s && clock_.advance_to_next()) poll();
  }

  // Five seconds, an outage of these, and as long again as may be needed.
  void run_through(double outage_s, const Answer& amid) {
    outage_s_ = outage_s;
    network_.service = [outage_s, amid](double now_s, const std::string&) {
      return now_s >= kBeginS && now_s < kBeginS + outage_s ? amid : Answer();
    };
    run_until(kBeginS + outage_s + allowed_s() + 2);
  }
  double allowed_s() const { return std::max(3.0, outage_s_); }
  double rate_before() const { return Counts::sum(network_.counts.served, 3, 5) / 2.0; }
  // After its end: when a second begins that has four fifths of the rate before.
  double recovered_s() const {
    const double end_s = kBeginS + outage_s_;
    double begin_s = end_s;
    while (begin_s < end_s + allowed_s() + 1 &&
           Counts::sum(network_.counts.served, begin_s, begin_s + 1) < 0.8 * rate_before()) {
      begin_s += 0.1;
    }
    return begin_s - end_s;
  }
  int refused() const { return Counts::sum(network_.counts.refused, 0, 1'000); }

  static constexpr double kBeginS = 5;
  double outage_s_ = 0;
  ManualClock clock_;
  const steady_clock::time_point began_ = clock_.now();
  std::array<std::shared_ptr<IoThread>, 2> threads_;
  Resolver resolver_;
  const std::shared_ptr<BlockPool> pool_ = BlockPool::create(64 * kMiB);
  const GcsProtocol protocol_{"bucket", ""};
  Network network_;
  Host host_{route_to("storage.test"),
             64,
             64,
             500,
             std::make_shared<Log>(),
             [this](IoThread& thread, const std::shared_ptr<const Route>&) {
               return std::make_unique<TimedConnection>(thread, network_);
             }};
  RetryOptions retry_;
  TimeoutOptions timeout_{.total = std::chrono::hours(24)};
  bool is_ending_ = false;
  int running_ = 0, failed_ = 0;
};

struct Case {
  std::string name;
  double outage_s;
  Answer amid;
  int clients;
  int most_refused;  // that are sent in vain
};

class Recovery : public RecoveryTest, public ::testing::WithParamInterface<Case> {};

TEST_P(Recovery, TheRateIsBackWithinTheLengthOfTheOutage) {
  retry_.max_attempts = 30;  // how many an outage takes is not the question here
  begin(GetParam().clients);
  run_through(GetParam().outage_s, GetParam().amid);
  EXPECT_GT(rate_before(), 0.8 * GetParam().clients / kLatencyS);
  EXPECT_LE(recovered_s(), allowed_s());
  EXPECT_EQ(failed_, 0);
  EXPECT_LE(refused(), GetParam().most_refused);
}

INSTANTIATE_TEST_SUITE_P(
    , Recovery,
    ::testing::Values(
        Case{"HalfASecondOf503", 0.5, refusal("503 Unavailable"), 48, 250},
        Case{"ThreeSecondsOf503", 3, refusal("503 Unavailable"), 48, 400},
        Case{"TwentySecondsOf503", 20, refusal("503 Unavailable"), 48, 600},
        Case{"ThreeSecondsWithoutConnections", 3, {.is_opened = false}, 48, 400},
        Case{"HalfASecondOf429", 0.5, refusal("429 Too Many"), 48, 200},
        Case{"ThreeSecondsOf429", 3, refusal("429 Too Many"), 48, 300},
        Case{"TwentySecondsOf429", 20, refusal("429 Too Many"), 48, 450},
        Case{"ThreeSecondsOf429WithARetryAfter", 3, refusal("429 Too Many", "Retry-After: 1\r\n"),
             48, 200},
        Case{"OneRequestAtATimeAndThreeSecondsOf503", 3, refusal("503 Unavailable"), 1, 20},
        Case{"OneRequestAtATimeAndTwentySecondsOf503", 20, refusal("503 Unavailable"), 1, 40},
        Case{"OneRequestAtATimeAndThreeSecondsOf429", 3, refusal("429 Too Many"), 1, 20}),
    [](const auto& info) { return info.param.name; });

TEST_F(RecoveryTest, ThoseThatWaitAreCalledByTwosForEachAnswer) {
  retry_.initial_backoff = retry_.max_backoff = std::chrono::hours(1);
  begin(32);
  run_through(3, refusal("503 Unavailable"));
  // Hardly one came back by itself. The probes before the end were in vain.
  EXPECT_LE(refused(), 32 + 12);
  const std::vector<int>& served = network_.counts.served;
  EXPECT_GT(Counts::sum(served, 8, 12), 0);
  EXPECT_LE(recovered_s(), 3);
}

TEST_F(RecoveryTest, OneRequestThatAlwaysFailsWaitsAsLongAsItMustWhileOthersSucceed) {
  network_.service = [](double, const std::string& target) {
    return target == "/broken" ? refusal("503 Unavailable") : Answer();
  };
  retry_.initial_backoff = retry_.max_backoff = milliseconds(10'000);
  retry_.max_attempts = 4;
  begin(8);
  begin(1, "/broken");
  run_until(12);
  EXPECT_LE(refused(), 1 + 12) << "not sent again for each answer to others";
  EXPECT_GT(Counts::sum(network_.counts.served, 0, 12), 8 * 11 / kLatencyS);
}

TEST_F(RecoveryTest, WhatFailsNowAndThenIsNotSentAgainAtOnce) {
  // A service that can do half of it is not to be met by twice as much.
  uint64_t number = 0;
  network_.service = [&number](double, const std::string& target) {
    if (target.empty()) return Answer();  // to open a connection
    return ++number % 2 == 0 ? refusal("503 Unavailable") : Answer();
  };
  retry_.initial_backoff = retry_.max_backoff = milliseconds(60'000);
  begin(64);
  run_until(20);
  const int served = Counts::sum(network_.counts.served, 0, 20);
  EXPECT_LE(std::abs(refused() - served), 1);
  EXPECT_LE(served, 64 * 4) << "each waits half a minute after its first failure";
}

TEST_F(RecoveryTest, OneThrottledRootReturnsWhileAnotherWorksOn) {
  network_.service = [](double now_s, const std::string& target) {
    return target == "/hot" && now_s >= 5 && now_s < 8 ? refusal("429 Too Many") : Answer();
  };
  outage_s_ = 3;
  begin(24, "/hot");
  begin(24, "/cold");
  run_until(13);
  EXPECT_LE(recovered_s(), 3);
  EXPECT_GE(Counts::sum(network_.counts.served, 5, 8), 3 * 24 / kLatencyS * 0.9) << "the cold one";
  EXPECT_LE(refused(), 150);
}

// A rate that is let through, of which a tenth of a second may come at once.
Service rate_capped(std::function<double(double)> cap_per_s) {
  return [cap_per_s = std::move(cap_per_s), tokens = 0.0, last_s = 0.0](
             double now_s, const std::string&) mutable {
    const double cap = cap_per_s(now_s);
    tokens = std::min(std::max(1.0, cap / 10), tokens + (now_s - last_s) * cap);
    last_s = now_s;
    if (tokens < 1) return refusal("429 Too Many");
    tokens -= 1;
    return Answer();
  };
}

TEST_F(RecoveryTest, ARateThatFallsAndRisesIsFollowedWithFewRefusals) {
  network_.service = rate_capped([](double now_s) {
    return now_s < 10 ? 1'000.0 : now_s < 20 ? 100.0 : 1'000.0;
  });
  begin(64);
  run_until(40);
  const auto served = [this](double begin_s, double end_s) {
    return Counts::sum(network_.counts.served, begin_s, end_s);
  };
  EXPECT_GE(served(5, 10), 0.8 * 5 * 1'000);
  EXPECT_GE(served(12, 20), 0.7 * 8 * 100);
  EXPECT_GE(served(30, 31), 0.8 * 1'000) << "within the ten seconds that it was low";
  EXPECT_LE(refused(), 0.03 * (refused() + served(0, 40)));
}

TEST_F(RecoveryTest, ARateOfLessThanOneASecondIsNotTakenForAnOutage) {
  network_.service = rate_capped([](double) { return 0.5; });
  begin(64);
  run_until(20);
  const int refused_before = refused();
  run_until(80);
  EXPECT_GE(Counts::sum(network_.counts.served, 20, 80), 20);
  EXPECT_LE(refused() - refused_before, 100) << "in a minute";
}

}  // namespace
}  // namespace headrace
