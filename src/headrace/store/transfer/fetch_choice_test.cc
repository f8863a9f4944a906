#include "headrace/store/transfer/fetch_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace headrace {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;

constexpr FetchChoice::Load kSmall{.object_count = 256, .size_bytes = 256 * 10 * 1024};
constexpr FetchChoice::Load kLarge{.object_count = 16, .size_bytes = 16 << 20};

class FetchChoiceTest : public ::testing::Test {
 protected:
  // One batch from begin to end, which takes as long as its way takes.
  FetchWay read(const FetchChoice::Load& load) {
    const FetchChoice::Ticket ticket = choice_.begin(load, now_);
    const milliseconds took = took_[ticket.way];
    now_ += took;
    choice_.end(ticket, false, now_);
    time_[ticket.way] += took;
    ++count_[ticket.way];
    return ticket.way;
  }
  // Batches one after the other for so long, with pauses of no work between them.
  void read_for(milliseconds time, const FetchChoice::Load& load, milliseconds pause = {}) {
    for (const auto until = now_ + time; now_ < until; now_ += pause) read(load);
  }
  // Many batches at a time, each of which takes `took_` of a server that works on one after the
  // other of its way.
  void read_ahead(int count, int at_a_time, const FetchChoice::Load& load) {
    std::deque<std::pair<FetchChoice::Ticket, FetchChoice::TimePoint>> open;
    FetchChoice::TimePoint free_at = now_;
    for (int i = 0; i < count || !open.empty();) {
      if (i < count && std::cmp_less(open.size(), at_a_time)) {
        if (!choice_.holds_back(load)) {
          const FetchChoice::Ticket ticket = choice_.begin(load, now_);
          ++count_[ticket.way];
          free_at = std::max(free_at, now_) + took_[ticket.way];
          open.emplace_back(ticket, free_at);
          ++i;
          continue;
        }
        ASSERT_FALSE(open.empty());  // whoever waits, waits for another one
      }
      now_ = open.front().second;
      choice_.end(open.front().first, false, now_);
      open.pop_front();
    }
  }

  FetchChoice choice_;
  FetchChoice::TimePoint now_ = FetchChoice::TimePoint() + hours(1);
  std::map<FetchWay, milliseconds> took_ = {{FetchWay::kAlone, milliseconds(240)},
                                            {FetchWay::kTogether, milliseconds(40)}};
  std::map<FetchWay, milliseconds> time_;
  std::map<FetchWay, int> count_;
};

TEST_F(FetchChoiceTest, TriesBothAndTakesTheFasterOne) {
  EXPECT_EQ(read(kSmall), FetchWay::kTogether);
  EXPECT_EQ(read(kSmall), FetchWay::kAlone);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(read(kSmall), FetchWay::kTogether);
  EXPECT_NEAR(
      *choice_.measured(FetchWay::kTogether, kSmall) / *choice_.measured(FetchWay::kAlone, kSmall),
      6, 0.01);
}

TEST_F(FetchChoiceTest, TakesSingleReadsWhereTheyAreFaster) {
  std::swap(took_[FetchWay::kAlone], took_[FetchWay::kTogether]);
  read(kSmall);
  read(kSmall);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(read(kSmall), FetchWay::kAlone);
}

TEST_F(FetchChoiceTest, TellsSizesApart) {
  read(kSmall);
  read(kSmall);
  std::swap(took_[FetchWay::kAlone], took_[FetchWay::kTogether]);
  EXPECT_EQ(read(kLarge), FetchWay::kTogether);
  EXPECT_EQ(read(kLarge), FetchWay::kAlone);
  EXPECT_EQ(read(kLarge), FetchWay::kAlone);
  EXPECT_EQ(read(kSmall), FetchWay::kTogether);
}

TEST_F(FetchChoiceTest, IsLedByTheTimeInUseAndNotByPauses) {
  read_for(minutes(1), kSmall, seconds(1));
  EXPECT_NEAR(
      *choice_.measured(FetchWay::kTogether, kSmall) / *choice_.measured(FetchWay::kAlone, kSmall),
      6, 0.01);
}

TEST_F(FetchChoiceTest, TrialsOfTheSlowerWayTakeASmallPartOfTheTime) {
  took_[FetchWay::kAlone] = seconds(8);
  read_for(hours(2), kSmall);
  EXPECT_GT(count_[FetchWay::kAlone], 3);
  EXPECT_LT(duration<double>(time_[FetchWay::kAlone]) / duration<double>(hours(2)), 0.05);
  EXPECT_GT(count_[FetchWay::kTogether], 100'000);
}

TEST_F(FetchChoiceTest, ChangesWhenTheOtherWayBecomesFaster) {
  read_for(minutes(1), kSmall);
  EXPECT_EQ(read(kSmall), FetchWay::kTogether);
  took_[FetchWay::kTogether] = seconds(1);
  read_for(minutes(12), kSmall);
  count_.clear();
  read_for(minutes(1), kSmall);
  EXPECT_GT(count_[FetchWay::kAlone], 200);
  EXPECT_LE(count_[FetchWay::kTogether], 5);
}

TEST_F(FetchChoiceTest, SmallDifferencesChangeNothing) {
  took_[FetchWay::kAlone] = milliseconds(41);
  took_[FetchWay::kTogether] = milliseconds(43);
  read(kSmall);
  read(kSmall);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(read(kSmall), FetchWay::kTogether);
}

TEST_F(FetchChoiceTest, BatchesThatOverlapAreMeasured) {
  read_ahead(200, 4, kSmall);
  EXPECT_LE(count_[FetchWay::kAlone], 20);
  EXPECT_GE(count_[FetchWay::kTogether], 180);
  EXPECT_NEAR(
      *choice_.measured(FetchWay::kTogether, kSmall) / *choice_.measured(FetchWay::kAlone, kSmall),
      6, 2);
}

TEST_F(FetchChoiceTest, DeepReadAheadIsNotAllSentTheSlowerWay) {
  read_ahead(500, 64, kSmall);
  EXPECT_LE(count_[FetchWay::kAlone], 20);
  EXPECT_GE(count_[FetchWay::kTogether], 480);
  std::swap(took_[FetchWay::kAlone], took_[FetchWay::kTogether]);
  choice_ = {};
  count_.clear();
  read_ahead(500, 64, kSmall);
  EXPECT_LE(count_[FetchWay::kTogether], 20);
}

TEST_F(FetchChoiceTest, WithoutAMomentForAMeasurementItGoesBothWaysInTurn) {
  // A batch of another size goes the other way all the time.
  std::map<FetchWay, int> begun;
  FetchChoice::Ticket before = choice_.begin(kLarge, now_);
  for (int i = 0; i < 64; ++i) {
    now_ += milliseconds(10);
    const FetchChoice::Ticket ticket = choice_.begin(kSmall, now_);
    ++begun[ticket.way];
    const FetchChoice::Ticket after = choice_.begin(kLarge, now_);
    choice_.end(before, /*failed=*/true, now_);
    choice_.end(ticket, /*failed=*/true, now_);
    before = after;
  }
  EXPECT_THAT(begun[FetchWay::kAlone], AllOf(Ge(16), Le(48)));
  EXPECT_FALSE(choice_.measured(FetchWay::kAlone, kSmall));
}

TEST_F(FetchChoiceTest, WhatFailedSaysNothing) {
  for (int i = 0; i < 4; ++i) {
    const FetchChoice::Ticket ticket = choice_.begin(kSmall, now_);
    EXPECT_EQ(ticket.way, FetchWay::kTogether);
    now_ += seconds(30);
    choice_.end(ticket, /*failed=*/true, now_);
  }
  EXPECT_EQ(read(kSmall), FetchWay::kTogether);
  EXPECT_EQ(read(kSmall), FetchWay::kAlone);
  EXPECT_EQ(read(kSmall), FetchWay::kTogether);
}

TEST_F(FetchChoiceTest, TimeThatStandsStillIsNoMeasurement) {
  took_[FetchWay::kTogether] = milliseconds(0);
  for (uint64_t i = 0; i < FetchChoice::kMostUnmeasured; ++i) {
    EXPECT_EQ(read(kSmall), FetchWay::kTogether);
  }
  EXPECT_EQ(read(kSmall), FetchWay::kAlone);
}

}  // namespace
}  // namespace headrace
