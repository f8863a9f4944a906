#include "headrace/dataset/row_mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The row group of each row.
std::vector<size_t> groups_of(const RowMix& mix) {
  std::vector<size_t> groups;
  for (const int64_t row : mix.order) {
    size_t group = 0;
    uint64_t end = mix.counts[0];
    while (static_cast<uint64_t>(row) >= end) end += mix.counts[++group];
    groups.push_back(group);
  }
  return groups;
}

TEST(MixRows, OfOneRowGroupRowsComeInTurn) {
  const RowMix mix = mix_rows(1, 2, 3, 0, 4, std::vector<uint64_t>{9});
  EXPECT_THAT(mix.counts, ElementsAre(4));
  EXPECT_THAT(mix.order, ElementsAre(0, 1, 2, 3));
}

TEST(MixRows, OfNoneThereAreNoRows) { EXPECT_THAT(mix_rows(1, 2, 3, 0, 4, {}).order, IsEmpty()); }

TEST(MixRows, EndsAfterTheLastRowOfARowGroup) {
  const RowMix mix = mix_rows(1, 2, 3, 0, 1000, std::vector<uint64_t>{5, 500});
  EXPECT_EQ(mix.counts[0], 5u);
  EXPECT_EQ(groups_of(mix).back(), 0u);
}

TEST(MixRows, TheSameHoweverItIsCut) {
  std::mt19937_64 random(20261124);
  for (int round = 0; round < 500; ++round) {
    std::vector<uint64_t> left(1 + random() % 8);
    for (uint64_t& each : left) each = 1 + random() % 100;
    const uint64_t first = random() % 1000, count = random() % 300;
    const RowMix whole = mix_rows(7, 8, 9, first, count, left);
    ASSERT_EQ(std::accumulate(whole.counts.begin(), whole.counts.end(), uint64_t{0}),
              whole.order.size());
    const std::vector<size_t> groups = groups_of(whole);
    for (size_t i = 0; i < left.size(); ++i) ASSERT_LE(whole.counts[i], left[i]);
    std::vector<size_t> together;
    std::vector<uint64_t> rest = left;
    while (together.size() < groups.size()) {
      const RowMix part =
          mix_rows(7, 8, 9, first + together.size(),
                   std::min<uint64_t>(1 + random() % 40, groups.size() - together.size()), rest);
      for (const size_t group : groups_of(part)) {
        together.push_back(group);
        --rest[group];
      }
    }
    ASSERT_EQ(together, groups);
  }
}

TEST(MixRows, AllRowGroupsAreEquallyLikely) {
  constexpr uint64_t kRows = 60'000;
  const RowMix mix = mix_rows(1, 0, 0, 0, kRows, std::vector<uint64_t>(6, kRows));
  double chi_squared = 0;
  for (const uint64_t each : mix.counts) {
    const double off = static_cast<double>(each) - kRows / 6.0;
    chi_squared += off * off / (kRows / 6.0);
  }
  EXPECT_LT(chi_squared, 20.5);  // of five degrees of freedom: exceeded once in 1,000 seeds
}

TEST(MixRows, DependsOnSeedEpochAndLane) {
  const std::vector<uint64_t> left(4, 100);
  const std::vector<int64_t> one = mix_rows(1, 0, 0, 0, 50, left).order;
  EXPECT_NE(one, mix_rows(2, 0, 0, 0, 50, left).order);
  EXPECT_NE(one, mix_rows(1, 1, 0, 0, 50, left).order);
  EXPECT_NE(one, mix_rows(1, 0, 1, 0, 50, left).order);
}

}  // namespace
}  // namespace headrace
