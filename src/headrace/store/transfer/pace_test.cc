// The pace of one root, and which paces a host keeps. How paces and limits work together is in
// admission_test.cc.
#include "headrace/store/transfer/pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using TimePoint = Pace::TimePoint;

TimePoint at(double seconds) {
  return TimePoint(std::chrono::hours(1)) + duration_cast<nanoseconds>(duration<double>(seconds));
}

// A hundred answers in the first second, half of them refusals.
void refuse_half(Pace& pace) {
  for (int i = 0; i < 100; ++i) pace.report(i % 2 == 0, milliseconds(1), at(i * 0.01));
}

TEST(Pace, BeforeTheFirstRefusalNobodyWaitsAndNothingIsKnown) {
  Pace pace("gs://bucket/");
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(pace.report(false, milliseconds(1), at(i)));
  EXPECT_FALSE(pace.refused());
  EXPECT_EQ(pace.per_s(), 0);
  EXPECT_EQ(pace.reserve(at(200)), at(200));
}

TEST(Pace, TheFirstRefusalIsToldOnce) {
  Pace pace("gs://bucket/");
  EXPECT_TRUE(pace.report(true, milliseconds(1), at(0)));
  EXPECT_TRUE(pace.refused());
  EXPECT_FALSE(pace.report(true, milliseconds(1), at(0)));
  EXPECT_FALSE(pace.report(false, milliseconds(1), at(0)));
}

TEST(Pace, BeginsAtTheRateThatSucceededWhileOthersWereRefused) {
  Pace pace("gs://bucket/");
  // What came before the refusals does not count, however much it was.
  for (int i = 0; i < 5'000; ++i) pace.report(false, milliseconds(1), at(-1));
  for (int i = 0; i <= 20; ++i) pace.report(i % 2 == 0, milliseconds(1), at(i * 0.005));
  EXPECT_GE(pace.per_s(), 90);
  EXPECT_LE(pace.per_s(), 110);
}

TEST(Pace, ARefusalAmongFewAnswersSaysNothingAboutTheRate) {
  Pace pace("gs://bucket/");
  pace.report(true, milliseconds(1), at(0));
  pace.report(false, milliseconds(1), at(0.2));
  EXPECT_EQ(pace.per_s(), 0);
  // However much follows, and however soon.
  for (int i = 0; i < 1'000; ++i) pace.report(false, milliseconds(1), at(0.5 + i * 0.001));
  EXPECT_EQ(pace.per_s(), 0);
  EXPECT_EQ(pace.reserve(at(70)), at(70));
  for (int i = 0; i < 100; ++i) pace.report(i % 2 == 0, milliseconds(1), at(80 + i * 0.01));
  EXPECT_GT(pace.per_s(), 0) << "many, in a short time";
}

TEST(Pace, TurnsComeAtThisRateAndAreGivenOutForTheNearFutureOnly) {
  Pace pace("gs://bucket/");
  refuse_half(pace);
  const double per_s = pace.per_s();
  ASSERT_GT(per_s, 0);
  std::vector<TimePoint> turns;
  while (const std::optional<TimePoint> turn = pace.reserve(at(10))) {
    turns.push_back(*turn);
    ASSERT_LE(turns.size(), 100u);
  }
  EXPECT_EQ(turns.front(), at(10));
  EXPECT_LE(turns.back(), at(10) + Pace::kHorizon);
  EXPECT_LE(static_cast<double>(turns.size()), 1 + 0.03 * per_s) << "10 ms behind, 20 ms ahead";
  EXPECT_TRUE(pace.reserve(at(10.04)).has_value());
}

TEST(Pace, ARefusalNowAndThenTakesOffATwentieth) {
  Pace pace("gs://bucket/");
  refuse_half(pace);
  const double before = pace.per_s();
  // The first interval ends with what it has; the next one has one refusal among ten answers.
  pace.report(false, milliseconds(1), at(1.5));
  ASSERT_NEAR(pace.per_s(), before, before * 0.2);
  const double clean = pace.per_s();
  for (int i = 1; i <= 10; ++i) pace.report(i == 5, milliseconds(1), at(1.5 + i * 0.02));
  EXPECT_NEAR(pace.per_s(), clean * 0.95, 0.001);
}

TEST(Paces, StoresOfOneRootShareOneAndOthersHaveTheirOwn) {
  Paces paces;
  const std::shared_ptr<Pace> one = paces.of("s3://a/one/");
  EXPECT_EQ(paces.of("s3://a/one/"), one);
  EXPECT_NE(paces.of("s3://a/two/"), one);
  EXPECT_NE(paces.of("s3://b/one/"), one);
  EXPECT_EQ(one->root(), "s3://a/one/");
}

TEST(Paces, WhatWasLearntIsKeptWhenNoStoreIsLeft) {
  Paces paces;
  refuse_half(*paces.of("s3://a/hot/"));
  EXPECT_GT(paces.of("s3://a/hot/")->per_s(), 0);
}

TEST(Paces, TheNumberIsBoundedAndTheOneIdleLongestGoesFirst) {
  Paces paces;
  const std::shared_ptr<Pace> used = paces.of("used");
  const auto name = [](size_t i) { return "hot" + std::to_string(i); };
  for (size_t i = 0; i < Paces::kKept - 1; ++i) {
    paces.of(name(i))->report(true, milliseconds(1), at(static_cast<double>(100 - i)));
  }
  EXPECT_EQ(paces.size(), Paces::kKept);
  for (int i = 0; i < 10; ++i) {
    static_cast<void>(paces.of("other" + std::to_string(i)));
    EXPECT_EQ(paces.size(), Paces::kKept);
  }
  // The first of them took the place of the one idle longest, each other one that of the one
  // before.
  EXPECT_EQ(paces.of("used"), used) << "though it was never throttled";
  for (size_t i = 0; i < Paces::kKept - 2; ++i) EXPECT_TRUE(paces.of(name(i))->refused()) << i;
  EXPECT_FALSE(paces.of(name(Paces::kKept - 2))->refused()) << "made anew";
}

TEST(Paces, WhatStoresUseIsKeptHoweverManyThereAre) {
  Paces paces;
  std::vector<std::shared_ptr<Pace>> used;
  for (size_t i = 0; i < 2 * Paces::kKept; ++i) used.push_back(paces.of(std::to_string(i)));
  for (size_t i = 0; i < used.size(); ++i) EXPECT_EQ(paces.of(std::to_string(i)), used[i]);
}

}  // namespace
}  // namespace headrace
