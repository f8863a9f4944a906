// The permits and lines of one lane alone: no socket, no server, no thread, and a clock that the
// test moves. With servers: host_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/http/activity_test_support.h"
#include "headrace/http/manual_clock_test_support.h"
#include "headrace/store/transfer/host.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// Reads pieces as the test says.
class ScriptedReader final : public PieceReader {
 public:
  explicit ScriptedReader(std::shared_ptr<Pace> pace) : pace_(std::move(pace)) {}

  awaitable<void> read_piece(Permit& permit, ReadPiece&, HttpRequest&) override {
    ++begun;
    co_await reads(permit);
    ++ended;
  }
  void piece_failed(HostLane&, ReadPiece&, Error) override { ++failed; }
  const std::shared_ptr<Pace>& pace() const override { return pace_; }

  std::function<awaitable<void>(Permit&)> reads = [](Permit&) -> awaitable<void> { co_return; };
  size_t begun = 0, ended = 0, failed = 0;

 private:
  const std::shared_ptr<Pace> pace_;
};

std::shared_ptr<const Route> route() {
  Route route;
  route.endpoint.host = "storage.test";
  return std::make_shared<Route>(std::move(route));
}

class LaneTest : public ::testing::Test {
 protected:
  explicit LaneTest(uint32_t limit = 2) : LaneTest(limit, limit) {}
  LaneTest(uint32_t initial_limit, uint32_t max_limit)
      : host_(route(), initial_limit, max_limit, 100, std::make_shared<Log>()),
        lane_(*host_.lanes.emplace_back(
            std::make_unique<HostLane>(host_, *thread_, resolver_, *pool_))) {}
  ~LaneTest() override {
    host_.lanes.clear();
    poll();
  }

  void poll() {
    thread_->context().restart();
    thread_->context().poll();
  }
  void let_pass(milliseconds time) {
    const auto end = clock_.now() + time;
    while (clock_.now() < end && clock_.advance_to_next()) poll();
  }
  // So many refusals that one request a second is left.
  void throttle(Pace& pace) {
    for (int i = 0; i < 5'000; ++i) {
      pace.report(true, milliseconds(1), clock_.now());
      clock_.advance(milliseconds(5));
    }
    ASSERT_EQ(pace.per_s(), 1);
  }
  // Pieces whose memory is there.
  void queue(ScriptedReader& reader, size_t count) {
    PieceList pieces;
    for (size_t i = 0; i < count; ++i) {
      const std::shared_ptr<ReadBatch> batch = ReadBatch::create(1);
      batch->add({.name = "a", .size_bytes = 0});
      batch->order = batches_.size();
      batch->make_shares(1);
      batch->deal([](size_t) { return 0u; });
      ReadPiece& piece = batch->slot(0).first_piece;
      piece.reader = &reader;
      pieces.prepend({.first = &piece, .last = &piece});
      batches_.push_back(batch);
    }
    lane_.add(pieces);
    lane_.pump();
    poll();
  }
  // Takes a permit and keeps it.
  struct Taking {
    Taking(HostLane& lane, const std::shared_ptr<Pace>& pace)
        : permit(std::make_unique<RequestPermit>(lane, this)) {
      asio::co_spawn(lane.thread().context(), run(*this, pace), asio::detached);
    }
    static awaitable<void> run(Taking& self, std::shared_ptr<Pace> pace) {
      self.result = co_await self.permit->take(pace);
    }
    bool has_it() const { return result && result->has_value(); }

    std::unique_ptr<RequestPermit> permit;
    std::optional<Result<void>> result;
  };
  std::unique_ptr<Taking> take(const std::shared_ptr<Pace>& pace) {
    auto taking = std::make_unique<Taking>(lane_, pace);
    poll();
    return taking;
  }

  ManualClock clock_;
  const std::shared_ptr<IoThread> thread_ = IoThread::without_thread(0, clock_);
  Resolver resolver_;
  const std::shared_ptr<BlockPool> pool_ = BlockPool::create(64 * kMiB);
  Host host_;
  HostLane& lane_;
  const std::shared_ptr<Pace> hot_ = host_.paces.of("gs://bucket/hot/"),
                              cold_ = host_.paces.of("gs://bucket/cold/");
  std::vector<std::shared_ptr<ReadBatch>> batches_;
};

class LaneOfOnePermit : public LaneTest {
 protected:
  LaneOfOnePermit() : LaneTest(1) {}
};

TEST_F(LaneTest, PiecesThatSendNothingLeaveTheirTurnToTheNextOne) {
  throttle(*hot_);
  ScriptedReader reader(hot_);
  queue(reader, 100);
  EXPECT_EQ(reader.ended, 100u) << "without any time passing";
  reader.reads = [](Permit& permit) -> awaitable<void> {
    EXPECT_TRUE(permit.use_turn());
    co_return;
  };
  queue(reader, 10);
  EXPECT_LE(reader.ended, 101u);
  let_pass(seconds(20));
  EXPECT_EQ(reader.ended, 110u);
}

TEST_F(LaneTest, NoMoreRequestsOfALineBeginThanThereArePermitsHoweverOftenTheyAreRefused) {
  throttle(*hot_);
  ScriptedReader reader(hot_);
  bool refuses = true;
  reader.reads = [&](Permit& permit) -> awaitable<void> {
    TestActivity request(*thread_);
    EXPECT_TRUE(permit.use_turn());
    while (refuses) {
      permit.step_aside(hot_);
      co_await request.park(clock_.now() + seconds(10));  // many turns
      EXPECT_TRUE(co_await permit.take(request, hot_));
      EXPECT_TRUE(permit.use_turn());
    }
  };
  queue(reader, 20);
  let_pass(seconds(60));
  EXPECT_EQ(reader.begun, 2u);
  // Whoever waits to be sent again holds no permit.
  ScriptedReader other(cold_);
  queue(other, 20);
  EXPECT_EQ(other.ended, 20u);
  refuses = false;
  let_pass(minutes(2));
  EXPECT_EQ(reader.ended, 20u);
}

class LaneThatMayGrow : public LaneTest {
 protected:
  LaneThatMayGrow() : LaneTest(2, 512) {}
};

TEST_F(LaneThatMayGrow, TheLimitGrowsThoughEachRequestIsOfAPacedRoot) {
  // Five hundred a second are let through, which two at a time do not reach.
  for (int i = 0; i < 1'000; ++i) {
    hot_->report(i % 100 == 0, milliseconds(1), clock_.now());
    clock_.advance(milliseconds(2));
  }
  ASSERT_TRUE(hot_->refused());
  ASSERT_GE(hot_->per_s(), 200);
  ScriptedReader reader(hot_);
  reader.reads = [&](Permit& permit) -> awaitable<void> {
    TestActivity request(*thread_);
    EXPECT_TRUE(permit.use_turn());
    co_await request.park(clock_.now() + milliseconds(30));
    AdmissionReport report{.completed = 1, .bytes = 1000};
    report.add(milliseconds(30), milliseconds(30));
    lane_.record_outcome(report, clock_.now());
  };
  queue(reader, 3'000);
  let_pass(seconds(5));
  EXPECT_GE(host_.admission.limit(), 8u);
  let_pass(minutes(10));
  EXPECT_EQ(reader.ended, 3'000u);
}

TEST_F(LaneOfOnePermit, WhoIsGrantedAPermitWhenItIsStoppedSendsNothingAndLeavesItsTurn) {
  throttle(*hot_);
  std::unique_ptr<Taking> holder = take(cold_);
  std::unique_ptr<Taking> first = take(hot_), second = take(hot_);
  let_pass(seconds(2));
  EXPECT_TRUE(holder->has_it());
  EXPECT_FALSE(first->result);
  // In this order before either of them runs again.
  holder->permit->release();
  first->permit->stop(Error(Code::kCancelled, "it was cancelled"));
  poll();
  ASSERT_TRUE(first->result);
  EXPECT_EQ(first->result->error().code(), Code::kCancelled);
  first->permit->release();
  poll();
  EXPECT_TRUE(second->has_it()) << "by the turn that was not used";
}

TEST_F(LaneOfOnePermit, WhatMayExceedTheLimitAtTheEndNeedNotWaitForReadsThatWereRefused) {
  throttle(*hot_);
  ScriptedReader reader(hot_);
  reader.reads = [&](Permit& permit) -> awaitable<void> {
    TestActivity request(*thread_);
    EXPECT_TRUE(permit.use_turn());
    permit.step_aside(hot_);
    co_await request.park(clock_.now() + minutes(10));
  };
  queue(reader, 1);
  std::unique_ptr<Taking> removal = take(hot_);
  let_pass(seconds(5));
  EXPECT_FALSE(removal->result) << "one has begun, and there is one permit";
  lane_.lift_limit();
  let_pass(seconds(5));
  EXPECT_TRUE(removal->has_it());
  removal.reset();
  let_pass(minutes(20));
}

TEST_F(LaneOfOnePermit, ReadsAndOtherRequestsOfALineTakeTurns) {
  throttle(*hot_);
  std::unique_ptr<Taking> holder = take(cold_);
  ScriptedReader reader(hot_);
  reader.reads = [](Permit& permit) -> awaitable<void> {
    permit.use_turn();
    co_return;
  };
  queue(reader, 10);
  std::deque<std::unique_ptr<Taking>> others;
  for (int i = 0; i < 10; ++i) others.push_back(take(hot_));
  holder.reset();
  for (int i = 1; i <= 10; ++i) {
    for (int waited = 0; waited < 300 && !others.front()->has_it(); ++waited) {
      let_pass(milliseconds(20));
    }
    ASSERT_TRUE(others.front()->has_it());
    EXPECT_NEAR(static_cast<double>(reader.ended), i, 1);
    others.front()->permit->permit().use_turn();
    others.pop_front();
  }
}

}  // namespace
}  // namespace headrace
