#include "headrace/dataset/weighted_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::vector<uint64_t> counts(const std::vector<double>& weights, uint64_t draws, uint64_t seed) {
  const WeightedOrder order(DrawTable::make(weights).value(), draws, seed, 0);
  std::vector<uint64_t> out(weights.size());
  for (uint64_t at = 0; at < draws; ++at) ++out[order.index(at)];
  return out;
}

TEST(WeightedOrder, DrawsInProportionToTheWeights) {
  constexpr uint64_t kDraws = 200'000;
  const std::vector<double> weights{1, 0, 2, 5, 0.5, 1e-9, 3};
  double sum = 0;
  for (const double weight : weights) sum += weight;
  const std::vector<uint64_t> found = counts(weights, kDraws, 7);
  for (size_t i = 0; i < weights.size(); ++i) {
    const double share = weights[i] / sum, expected = share * kDraws;
    // Six standard deviations.
    EXPECT_NEAR(static_cast<double>(found[i]), expected,
                6 * std::sqrt(expected * (1 - share)) + 1e-3);
  }
  EXPECT_EQ(found[1], 0U);
}

TEST(WeightedOrder, NeverDrawsWhatHasNoWeight) {
  std::vector<double> weights(1000, 0);
  for (size_t i = 0; i < weights.size(); i += 7) weights[i] = 0.1 + static_cast<double>(i % 3);
  const std::vector<uint64_t> found = counts(weights, 100'000, 3);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) EXPECT_EQ(found[i], 0U) << i;
  }
}

TEST(WeightedOrder, OneWeightIsAlwaysDrawn) {
  EXPECT_EQ(counts({3}, 100, 1), std::vector<uint64_t>{100});
  EXPECT_EQ(counts({0, 4, 0}, 100, 1), (std::vector<uint64_t>{0, 100, 0}));
}

TEST(WeightedOrder, DependsOnSeedEpochAndPositionAlone) {
  const auto table = DrawTable::make(std::vector<double>(1000, 1.0)).value();
  const WeightedOrder order(table, 500, 5, 2), again(table, 500, 5, 2), other(table, 500, 5, 3);
  std::vector<int64_t> all(500), part(100), of_other(500);
  order.indices(0, all);
  again.indices(300, part);
  other.indices(0, of_other);
  EXPECT_EQ(std::vector<int64_t>(all.begin() + 300, all.begin() + 400), part);
  EXPECT_NE(all, of_other);
  // Written down, because saved places depend on it.
  EXPECT_EQ(std::vector<int64_t>(all.begin(), all.begin() + 5),
            (std::vector<int64_t>{883, 917, 710, 976, 203}));
}

TEST(DrawTable, RefusesWeightsThatAreNone) {
  const auto refused = [](const std::vector<double>& weights) {
    const auto made = DrawTable::make(weights);
    return made ? std::string() : std::string(made.error().message());
  };
  EXPECT_THAT(refused({}), HasSubstr("there are no weights"));
  EXPECT_THAT(refused({1, -1}), HasSubstr("weight 1 is -1"));
  EXPECT_THAT(refused({NAN}), HasSubstr("weight 0 is nan"));
  EXPECT_THAT(refused({1, 2, INFINITY}), HasSubstr("weight 2 is inf"));
  EXPECT_THAT(refused({0, 0}), HasSubstr("all weights are 0"));
  const double most = std::numeric_limits<double>::max();
  EXPECT_THAT(refused({most, most}), HasSubstr("more than a float holds"));
}

}  // namespace
}  // namespace headrace
