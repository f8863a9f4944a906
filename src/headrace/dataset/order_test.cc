#include "headrace/dataset/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "headrace/dataset/order_test_support.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;

TEST(Order, IsAPermutation) {
  for (const uint64_t count :
       {0u, 1u, 2u, 3u, 64u, 1023u, 1024u, 1025u, 1797u, 2048u, 2049u, 100'003u}) {
    for (const uint64_t seed : {uint64_t{0}, uint64_t{7}, UINT64_MAX}) {
      std::vector<int64_t> indices = all_of(Order(count, seed, /*epoch=*/3, true));
      std::ranges::sort(indices);
      for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(indices[i], static_cast<int64_t>(i)) << count;
    }
  }
}

TEST(Order, IsTheIdentityUnlessShuffled) {
  const Order order(5000, 7, 3, false);
  std::vector<int64_t> expected(5000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all_of(order), expected);
}

TEST(Order, GivesPartsOfTheSameOrder) {
  for (const uint64_t count : {1000u, 5000u}) {
    const Order order(count, 7, 3, true);
    const std::vector<int64_t> whole = all_of(order);
    std::vector<int64_t> part(100);
    order.indices(431, part);
    for (uint64_t i = 0; i < part.size(); ++i) {
      EXPECT_EQ(part[i], whole[431 + i]);
      EXPECT_EQ(order.index(431 + i), static_cast<uint64_t>(whole[431 + i]));
    }
  }
}

// Saved states name positions: what stands at one must never change.
TEST(Order, IsTheSameOnEveryMachineAndInEveryVersion) {
  EXPECT_THAT(all_of(Order(10, 0, 0, true)), ElementsAre(4, 1, 9, 2, 0, 8, 6, 5, 3, 7));
  EXPECT_THAT(all_of(Order(10, 7, 1, true)), ElementsAre(1, 9, 6, 5, 2, 8, 3, 7, 0, 4));
  const auto first = [](const Order& order) {
    std::vector<int64_t> out(6);
    order.indices(0, out);
    return out;
  };
  EXPECT_THAT(first(Order(1797, 7, 0, true)), ElementsAre(1191, 1564, 402, 1121, 1036, 270));
  EXPECT_THAT(first(Order(1'000'000, 0, 0, true)),
              ElementsAre(841536, 582306, 932358, 979862, 269602, 761307));
  EXPECT_THAT(first(Order(uint64_t{1} << 40, 1, 2, true)),
              ElementsAre(72508646988, 327348727289, 219898363356, 442976963116, 429606000984,
                          182420038101));
  EXPECT_THAT(first(Order((uint64_t{1} << 62) + 1, UINT64_MAX, UINT64_MAX, true)),
              ElementsAre(488453525611282791, 4048159620014840565, 413767093788050995,
                          522282511627367576, 3547981643844030306, 3773746308008687541));
}

TEST(Order, GivesEveryPermutationOfFourEquallyOften) {
  std::map<std::vector<int64_t>, double> counted;
  constexpr int kSeeds = 240'000;
  for (int seed = 0; seed < kSeeds; ++seed) {
    counted[all_of(Order(4, static_cast<uint64_t>(seed), 0, true))] += 1;
  }
  ASSERT_EQ(counted.size(), 24u);
  std::vector<double> counts;
  for (const auto& [permutation, count] : counted) counts.push_back(count);
  EXPECT_LT(std::abs(chi_square_deviations(counts, kSeeds / 24.0)), 4);
}

// Seeds and epochs that follow each other give orders that have nothing to do with each other, and
// so do neighbouring positions.
TEST(Order, SpreadsPositionsEvenlyOverSeedsAndEpochs) {
  for (const uint64_t count : {100u, 1500u, 2048u}) {
    const uint64_t draws = count * 200;
    std::vector<double> landed(count, 0), stepped(count - 1, 0), between_epochs(count, 0);
    for (uint64_t draw = 0; draw < draws; ++draw) {
      const Order order(count, draw / 3, draw % 3, true);
      const Order next(count, draw / 3, draw % 3 + 1, true);
      const uint64_t here = order.index(draw % count), there = order.index((draw + 1) % count);
      landed[here] += 1;
      stepped[(there + count - here) % count - 1] += 1;
      between_epochs[(next.index(draw % count) + count - here) % count] += 1;
    }
    const auto expected = static_cast<double>(draws) / static_cast<double>(count);
    EXPECT_LT(std::abs(chi_square_deviations(landed, expected)), 4) << count;
    EXPECT_LT(std::abs(chi_square_deviations(between_epochs, expected)), 4) << count;
    EXPECT_LT(std::abs(chi_square_deviations(
                  stepped, static_cast<double>(draws) / static_cast<double>(count - 1))),
              4)
        << count;
  }
}

TEST(Order, ShufflesSeedAndEpochDifferently) {
  EXPECT_NE(all_of(Order(2000, 1, 2, true)), all_of(Order(2000, 2, 1, true)));
  EXPECT_NE(all_of(Order(20, 1, 2, true)), all_of(Order(20, 2, 1, true)));
}

}  // namespace
}  // namespace headrace
