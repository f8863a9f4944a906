// When a request is late, and what hedges cost: no clock, no threads, no server.
#include "headrace/store/transfer/hedge_rules.h"

#include <gtest/gtest.h>

#include <random>

namespace headrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using TimePoint = HedgeRules::TimePoint;

const TimePoint kStart = TimePoint(std::chrono::hours(1));
constexpr AnswerKind kSmall = AnswerKind::kUpTo64KiB;

void take(HedgeRules& rules, int count, nanoseconds latency, TimePoint now = kStart) {
  for (int i = 0; i < count; ++i) rules.took(kSmall, latency, now);
}

TEST(HedgeRules, NothingIsLateBeforeEnoughAnswersAreKnown) {
  HedgeRules rules;
  take(rules, 15, milliseconds(30));
  EXPECT_FALSE(rules.late_after(kSmall));
  take(rules, 1, milliseconds(30));
  EXPECT_TRUE(rules.late_after(kSmall));
  EXPECT_FALSE(rules.late_after(AnswerKind::kPage)) << "each kind by itself";
}

TEST(HedgeRules, WhatWasReadLongBeforeDoesNotMakeTheFirstAnswersFewer) {
  HedgeRules rules;
  take(rules, 1, milliseconds(30));
  take(rules, 15, milliseconds(30), kStart + seconds(20));  // the model was made meanwhile
  EXPECT_TRUE(rules.late_after(kSmall));
}

TEST(HedgeRules, LateIsHalfAsLongAgainAsTheMedianWhereAnswersHardlyDiffer) {
  HedgeRules rules;
  take(rules, 990, milliseconds(100));
  take(rules, 10, seconds(1));
  EXPECT_GE(*rules.late_after(kSmall), milliseconds(150));
  EXPECT_LE(*rules.late_after(kSmall), milliseconds(170));
}

TEST(HedgeRules, LateIsBeyondAlmostAllWhereAnswersDiffer) {
  HedgeRules rules;
  std::mt19937 rng(5);
  std::lognormal_distribution<double> latency_ms(3.4, 1);  // median 30 ms, 97.5 % below 213 ms
  int beyond = 0;
  for (int i = 0; i < 20'000; ++i) {
    const nanoseconds latency(static_cast<int64_t>(latency_ms(rng) * 1e6));
    const auto late = rules.late_after(kSmall);
    if (i >= 10'000 && latency > *late) ++beyond;
    rules.took(kSmall, latency, kStart);
  }
  EXPECT_LE(beyond, 300) << "of 10,000: as many as hedges are paid for";
  EXPECT_GE(beyond, 100);
}

TEST(HedgeRules, OnAFastNetworkNothingIsLateWithinTwentyMilliseconds) {
  HedgeRules rules;
  take(rules, 1000, nanoseconds(100'000));
  EXPECT_GE(*rules.late_after(kSmall), milliseconds(20));
}

TEST(HedgeRules, FollowsAHostThatBecomesSlower) {
  HedgeRules rules;
  take(rules, 1000, milliseconds(10));
  take(rules, 2000, milliseconds(200));
  EXPECT_GE(*rules.late_after(kSmall), milliseconds(300));
}

TEST(HedgeRules, ForgetsWhatIsOld) {
  HedgeRules rules;
  take(rules, 1000, milliseconds(200));
  EXPECT_GE(*rules.late_after(kSmall), milliseconds(300));
  for (int i = 1; i <= 10; ++i) take(rules, 64, milliseconds(10), kStart + i * seconds(11));
  EXPECT_LE(*rules.late_after(kSmall), milliseconds(40)) << "though there were more of them";
}

TEST(HedgeRules, HedgesAreAtMostThreePercentOfTheRequests) {
  HedgeRules rules;
  int hedges = 0;
  for (int i = 0; i < 10'000; ++i) {
    rules.earn(1000);
    if (rules.begin({.kind = kSmall, .bytes = 1000}, 64, false)) {
      ++hedges;
      rules.end();
    }
  }
  EXPECT_LE(hedges, 301) << "and one that is lent";
  EXPECT_GE(hedges, 300);
}

TEST(HedgeRules, OneHedgeIsLentToTheFirstRequests) {
  HedgeRules rules;
  EXPECT_TRUE(rules.begin({.kind = kSmall, .bytes = 100'000}, 64, false));
  rules.end();
  for (int i = 0; i < 33; ++i) rules.earn(100'000);
  EXPECT_FALSE(rules.begin({.kind = kSmall, .bytes = 100'000}, 64, false));
  rules.earn(100'000);
  EXPECT_TRUE(rules.begin({.kind = kSmall, .bytes = 100'000}, 64, false));
}

TEST(HedgeRules, HedgesBringAtMostThreePercentOfTheBytes) {
  HedgeRules rules;
  uint64_t read_bytes = 0, hedged_bytes = 0;
  for (int i = 0; i < 10'000; ++i) {
    rules.earn(1000);
    read_bytes += 1000;
    if (rules.begin({.kind = kSmall, .bytes = 50'000}, 64, false)) {
      hedged_bytes += 50'000;
      rules.end();
    }
  }
  EXPECT_LE(hedged_bytes, read_bytes * 3 / 100 + 1 * kMiB);
  EXPECT_GE(hedged_bytes, read_bytes * 2 / 100);
}

TEST(HedgeRules, ALongQuietTimeSavesUpNoMoreThanTenHedges) {
  HedgeRules rules;
  for (int i = 0; i < 100'000; ++i) rules.earn(1'000'000);
  int hedges = 0;
  while (rules.begin({.kind = kSmall, .bytes = 1000}, 10'000, false)) ++hedges;
  EXPECT_EQ(hedges, 10);
}

TEST(HedgeRules, BeyondTheLimitATwentiethOfItRunsAtATimeAndMoreWhereAPermitIsFree) {
  HedgeRules rules;
  for (int i = 0; i < 10'000; ++i) rules.earn(1'000'000);
  const ExpectedAnswer small{.kind = kSmall, .bytes = 1000};
  EXPECT_FALSE(rules.begin(small, 19, false));
  EXPECT_TRUE(rules.begin(small, 20, false));
  EXPECT_FALSE(rules.begin(small, 39, false));
  EXPECT_EQ(rules.permits_taken(39), 0u);
  EXPECT_TRUE(rules.begin(small, 39, true));
  EXPECT_EQ(rules.permits_taken(39), 1u);
  EXPECT_EQ(rules.permits_taken(19), 2u) << "after the limit was reduced";
  EXPECT_EQ(rules.permits_taken(40), 0u);
  rules.end();
  EXPECT_TRUE(rules.begin(small, 40, false));
  EXPECT_EQ(rules.running(), 2u);
}

TEST(HedgeRules, AtMostAThirdOfTheLimitIsDrainedAtATime) {
  HedgeRules rules;
  EXPECT_FALSE(rules.begin_draining(2));
  EXPECT_TRUE(rules.begin_draining(5));
  EXPECT_FALSE(rules.begin_draining(5));
  EXPECT_TRUE(rules.begin_draining(6));
  EXPECT_FALSE(rules.begin_draining(6));
  rules.end_draining();
  EXPECT_TRUE(rules.begin_draining(6));
  EXPECT_EQ(rules.running(), 2u);
}

TEST(HedgeRules, KindsAreBySize) {
  EXPECT_EQ(ExpectedAnswer::of_bytes(0).kind, AnswerKind::kUpTo64KiB);
  EXPECT_EQ(ExpectedAnswer::of_bytes(64 * kKiB + 1).kind, AnswerKind::kUpTo1MiB);
  EXPECT_EQ(ExpectedAnswer::of_bytes(8 * kMiB).kind, AnswerKind::kUpTo16MiB);
  EXPECT_EQ(ExpectedAnswer::of_bytes(17 * kMiB).kind, AnswerKind::kLarger);
  EXPECT_EQ(ExpectedAnswer::of_bytes(kUnknownSize).kind, AnswerKind::kUnknownSize);
  EXPECT_GT(ExpectedAnswer::of_bytes(kUnknownSize).bytes, 0u) << "a guess, so that it is paid for";
}

}  // namespace
}  // namespace headrace
