// Which request begins next: no coroutine, no clock but an argument.
#include "headrace/store/transfer/admission_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "headrace/store/transfer/piece_reader.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;

class Reader final : public PieceReader {
 public:
  explicit Reader(std::shared_ptr<Pace> pace) : pace_(std::move(pace)) {}
  awaitable<void> read_piece(Permit&, ReadPiece&, HttpRequest&) override { co_return; }
  void piece_failed(HostLane&, ReadPiece&, Error) override {}
  const std::shared_ptr<Pace>& pace() const override { return pace_; }

 private:
  const std::shared_ptr<Pace> pace_;
};

class AdmissionQueueTest : public ::testing::Test, private AdmissionQueue::Lane {
 protected:
  using Request = AdmissionQueue::Request;

  // A request that writes down its name once it has a permit.
  Request& ask(const std::string& name, const std::shared_ptr<Pace>& pace) {
    Request& request = requests_.emplace_back(/*reads=*/false);
    queue_.admit(request, pace, [this, name] { admitted_ += name; }, now_);
    if (request.is_admitted()) admitted_ += name;
    return request;
  }
  void queue(Reader& reader, size_t count) {
    const std::shared_ptr<ReadBatch> batch = ReadBatch::create(count);
    PieceList pieces;
    for (size_t i = 0; i < count; ++i) {
      batch->add({.name = "a", .size_bytes = 0});
      batch->slot(i).first_piece.reader = &reader;
      pieces.append(batch->slot(i).first_piece);
    }
    batch->make_shares(1);
    batch->deal([](size_t) { return 0u; });
    batches_.push_back(batch);
    queue_.pieces_like(*pieces.first).push(pieces);
    queue_.pump(now_);
  }
  void throttle(Pace& pace) {
    for (int i = 0; i < 5'000; ++i) {
      pace.report(true, milliseconds(1), now_);
      now_ += milliseconds(5);
    }
    ASSERT_EQ(pace.per_s(), 1);
  }
  void let_pass(std::chrono::seconds time) {
    for (const auto end = now_ + time; now_ < end; now_ += milliseconds(10)) queue_.pump(now_);
  }

  uint32_t limit_ = 2;
  size_t readers_ = 0, paced_readers_ = 0;
  std::string admitted_;
  AdmissionQueue::TimePoint now_{std::chrono::hours(1)};
  const std::shared_ptr<BlockPool> pool_ = BlockPool::create(kMiB);
  Metrics metrics_;
  ReadOrder order_;
  Rng rng_{7};
  Paces paces_;
  const std::shared_ptr<Pace> hot_ = paces_.of("gs://b/hot/"), cold_ = paces_.of("gs://b/cold/");
  std::vector<std::shared_ptr<ReadBatch>> batches_;
  std::deque<Request> requests_;
  AdmissionQueue queue_{*this, order_, *pool_, metrics_, 0, rng_};

 private:
  uint32_t permit_limit() const override { return limit_; }
  uint32_t hedge_permits() const override { return 0; }
  void start_reader(Begin begin) override { ++(begin.line != nullptr ? paced_readers_ : readers_); }
  void pump_at(AdmissionQueue::TimePoint) override {}
};

TEST_F(AdmissionQueueTest, WhoComesFirstHasAPermitAtOnceAndTheOthersInTheirOrder) {
  Request& a = ask("a", cold_);
  ask("b", cold_);
  ask("c", cold_);
  ask("d", cold_);
  EXPECT_EQ(admitted_, "ab");
  EXPECT_TRUE(queue_.was_limited());
  queue_.finish(a, now_);
  EXPECT_EQ(admitted_, "abc");
  EXPECT_EQ(queue_.permits_taken(), 2u);
}

TEST_F(AdmissionQueueTest, WhatIsWithdrawnGetsNoPermit) {
  Request& a = ask("a", cold_);
  ask("b", cold_);
  Request& c = ask("c", cold_);
  ask("d", cold_);
  AdmissionQueue::withdraw(c);
  queue_.finish(c, now_);
  queue_.finish(a, now_);
  EXPECT_EQ(admitted_, "abd");
}

TEST_F(AdmissionQueueTest, ReadersAndOthersGetHalfOfThePermitsEach) {
  limit_ = 4;
  Reader reader(cold_);
  queue(reader, 10);
  EXPECT_EQ(readers_, 4u) << "as long as nobody else wants any";
  ask("a", cold_);
  ask("b", cold_);
  ask("c", cold_);
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(queue_.next_piece(/*has_read=*/false, now_), nullptr);
    EXPECT_EQ(queue_.next_piece(/*has_read=*/true, now_), nullptr) << "somebody else's turn";
    Request ended(/*reads=*/true);
    AdmissionQueue::begin_reader(ended, {});
    queue_.finish(ended, now_);
  }
  EXPECT_EQ(admitted_, "ab");
  EXPECT_NE(queue_.next_piece(/*has_read=*/true, now_), nullptr) << "both have half";
}

TEST_F(AdmissionQueueTest, ARootThatWasThrottledWaitsForItsPaceAndHoldsUpNobody) {
  throttle(*hot_);
  for (int i = 0; i < 8; ++i) ask("h", hot_);
  ask("c", cold_);
  EXPECT_EQ(std::ranges::count(admitted_, 'c'), 1);
  EXPECT_LE(std::ranges::count(admitted_, 'h'), 1);
  // A turn a second, and no more of them begin than there are places.
  let_pass(std::chrono::seconds(20));
  EXPECT_LE(std::ranges::count(admitted_, 'h'), 2);
  Reader reader(hot_);
  queue(reader, 2);
  EXPECT_EQ(readers_, 0u);
  for (Request& request : requests_) queue_.finish(request, now_);
  let_pass(std::chrono::seconds(20));
  EXPECT_GT(paced_readers_, 0u);
  EXPECT_EQ(readers_, 0u);
  for (Request& request : requests_) AdmissionQueue::withdraw(request);
}

TEST_F(AdmissionQueueTest, WhatStepsAsideLeavesItToOthers) {
  Request& a = ask("a", cold_);
  ask("b", cold_);
  ask("c", cold_);
  throttle(*hot_);
  queue_.step_aside(a, hot_, now_);
  EXPECT_EQ(admitted_, "abc");
  EXPECT_FALSE(a.is_admitted());
  queue_.finish(a, now_);
  EXPECT_EQ(queue_.permits_taken(), 2u);
}

}  // namespace
}  // namespace headrace
