#include "headrace/dataset/mixture_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MixtureSchedule made(const std::vector<double>& weights) {
  return MixtureSchedule::create(weights).value();
}

// By how much any source is off its share, at its worst.
double largest_deviation(const MixtureSchedule& schedule, std::span<const double> shares) {
  std::vector<double> drawn(shares.size(), 0);
  double worst = 0;
  for (uint64_t t = 0; t < schedule.period(); ++t) {
    ++drawn[schedule.source(t)];
    for (size_t k = 0; k < shares.size(); ++k) {
      worst = std::max(worst, std::abs(drawn[k] - shares[k] * static_cast<double>(t + 1)));
    }
  }
  return worst;
}

TEST(MixtureSchedule, WeightsAsPeopleWriteThemAreMetExactly) {
  EXPECT_THAT(made({3, 1}).parts(), ElementsAre(3, 1));
  EXPECT_THAT(made({0.7, 0.2, 0.1}).parts(), ElementsAre(7, 2, 1));
  EXPECT_THAT(made({1.0 / 3, 2.0 / 3}).parts(), ElementsAre(1, 2));
  EXPECT_THAT(made({0.333, 0.667}).parts(), ElementsAre(333, 667));
  EXPECT_THAT(made({1e-3, 1}).parts(), ElementsAre(1, 1000));
  EXPECT_THAT(made({5000000, 10000000}).parts(), ElementsAre(1, 2));
  EXPECT_THAT(made({1e300, 1e300}).parts(), ElementsAre(1, 1));
  EXPECT_THAT(made({42}).parts(), ElementsAre(1));
}

TEST(MixtureSchedule, OthersAreRoundedToAMillionth) {
  const double root = std::sqrt(2.0), pi = std::acos(-1.0);
  const MixtureSchedule schedule = made({root, pi});
  EXPECT_LE(schedule.period(), MixtureSchedule::kMaxPeriod);
  const double share =
      static_cast<double>(schedule.parts()[0]) / static_cast<double>(schedule.period());
  EXPECT_NEAR(share, root / (root + pi), 1e-6);
}

TEST(MixtureSchedule, NoSourceIsLostHoweverSmallItsWeight) {
  for (const double small : {1e-12, std::numeric_limits<double>::denorm_min()}) {
    const MixtureSchedule schedule = made({1, small, small, 1.5});
    EXPECT_EQ(schedule.parts()[1], 1u);
    EXPECT_EQ(schedule.parts()[2], 1u);
    EXPECT_EQ(std::accumulate(schedule.parts().begin(), schedule.parts().end(), uint64_t{0}),
              schedule.period());
  }
  const MixtureSchedule large = made({std::numeric_limits<double>::max(), 1, 1e-300});
  EXPECT_EQ(large.parts()[1], 1u);
}

TEST(MixtureSchedule, EverySourceIsWithinOneSampleOfItsShareAtEveryTime) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> weights(1 + random() % 12);
    const uint64_t most = 1 + random() % 300;
    for (double& each : weights) each = static_cast<double>(1 + random() % most);
    const MixtureSchedule schedule = made(weights);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<double> shares;
    for (const double each : weights) shares.push_back(each / sum);
    const auto n = static_cast<double>(weights.size());
    const double bound = n == 1 ? 0 : 1 - 1 / (2 * n - 2);
    EXPECT_LE(largest_deviation(schedule, shares), bound + 1e-9)
        << ::testing::PrintToString(weights);
  }
}

TEST(MixtureSchedule, AtSaysHowManyCameBefore) {
  const MixtureSchedule schedule = made({500, 301, 99, 7});
  std::vector<uint64_t> drawn(4, 0);
  for (uint64_t t = 0; t < schedule.period(); ++t) {
    const size_t source = schedule.source(t);
    ASSERT_EQ(schedule.at(t), (MixtureSchedule::Draw{.source = source, .number = drawn[source]++}));
  }
  EXPECT_THAT(drawn, ElementsAre(500, 301, 99, 7));
}

TEST(MixtureSchedule, ManySourcesTakeNoLongPeriod) {
  std::vector<double> weights;
  for (size_t i = 0; i < MixtureSchedule::kMaxSources; ++i) {
    weights.push_back(1 + std::sqrt(static_cast<double>(i)));
  }
  const MixtureSchedule schedule = made(weights);
  EXPECT_LE(schedule.period(), 1u << 14);
  for (const uint64_t part : schedule.parts()) EXPECT_GE(part, 1u);
}

TEST(MixtureSchedule, RefusesWeightsThatCannotBe) {
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    const auto made = MixtureSchedule::create(std::vector{1.0, bad});
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(made.error().message(), HasSubstr("weight 1 is "));
  }
  EXPECT_FALSE(MixtureSchedule::create({}).has_value());
  EXPECT_FALSE(MixtureSchedule::create(std::vector<double>(5000, 1.0)).has_value());
}

}  // namespace
}  // namespace headrace
