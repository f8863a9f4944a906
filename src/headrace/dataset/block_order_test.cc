#include "headrace/dataset/block_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "headrace/dataset/order_test_support.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;

// How much the means of batches vary, in parts of what they do if batches are drawn at random.
double spread_of_means(const std::vector<int64_t>& order, size_t batch_size) {
  const auto count = static_cast<double>(order.size()), size = static_cast<double>(batch_size);
  double sum = 0, batches = 0;
  for (size_t begin = 0; begin + batch_size <= order.size(); begin += batch_size) {
    double mean = 0;
    for (size_t i = begin; i < begin + batch_size; ++i) mean += static_cast<double>(order[i]);
    mean = mean / size - (count - 1) / 2;
    sum += mean * mean;
    batches += 1;
  }
  return sum / batches / ((count * count - 1) / 12 / size);
}

TEST(BlockOrder, IsAPermutation) {
  for (const uint64_t count : {0u, 1u, 2u, 7u, 64u, 1000u, 1025u, 4097u, 50'021u}) {
    for (const uint64_t block_size : {1u, 2u, 7u, 32u, 1000u, 60'000u}) {
      for (const uint64_t window : {1u, 2u, 5u, 64u, 100'000u}) {
        for (const uint64_t seed : {uint64_t{0}, UINT64_MAX}) {
          std::vector<int64_t> indices = all_of(BlockOrder(count, seed, 3, block_size, window));
          std::ranges::sort(indices);
          for (uint64_t i = 0; i < count; ++i) {
            ASSERT_EQ(indices[i], static_cast<int64_t>(i))
                << count << " in blocks of " << block_size << ", windows of " << window;
          }
        }
      }
    }
  }
}

TEST(BlockOrder, EachWindowConsistsOfWholeBlocksOfNeighbours) {
  for (const uint64_t window : {1u, 4u}) {
    constexpr uint64_t kCount = 10'007, kBlock = 25;
    const std::vector<int64_t> order = all_of(BlockOrder(kCount, 7, 1, kBlock, window));
    const uint64_t size = window * kBlock;
    for (uint64_t begin = 0; begin + 2 * size <= kCount; begin += size) {
      std::vector<int64_t> sorted(order.begin() + static_cast<int64_t>(begin),
                                  order.begin() + static_cast<int64_t>(begin + size));
      EXPECT_FALSE(std::ranges::is_sorted(sorted));
      std::ranges::sort(sorted);
      uint64_t runs = 1;
      for (uint64_t i = 1; i < size; ++i) runs += sorted[i] != sorted[i - 1] + 1;
      // Blocks may be neighbours, which makes fewer; one may continue at index 0.
      EXPECT_LE(runs, window + 1);
      EXPECT_GE(runs + 2, window);
    }
  }
}

TEST(BlockOrder, GivesPartsOfTheSameOrder) {
  for (const uint64_t count : {900u, 100'000u}) {
    const BlockOrder order(count, 7, 3, 16, 10);
    const std::vector<int64_t> whole = all_of(order);
    std::vector<int64_t> part(400);
    order.indices(431, part);
    BlockOrder::Reader reader(order);
    for (uint64_t i = 0; i < part.size(); ++i) {
      EXPECT_EQ(part[i], whole[431 + i]);
      EXPECT_EQ(order.index(431 + i), static_cast<uint64_t>(whole[431 + i]));
      const uint64_t anywhere = i * 7919 % count;
      EXPECT_EQ(reader.index(anywhere), static_cast<uint64_t>(whole[anywhere]));
    }
  }
}

// Saved states name positions: what stands at one must never change.
TEST(BlockOrder, IsTheSameOnEveryMachineAndInEveryVersion) {
  EXPECT_THAT(all_of(BlockOrder(10, 7, 1, 3, 1)), ElementsAre(7, 8, 9, 4, 5, 6, 0, 3, 1, 2));
  const auto first = [](const BlockOrder& order) {
    std::vector<int64_t> out(6);
    order.indices(0, out);
    return out;
  };
  EXPECT_THAT(first(BlockOrder(100'000, 7, 0, 32, 100)),
              ElementsAre(77321, 60177, 99915, 74958, 8427, 83520));
  EXPECT_THAT(first(BlockOrder(INT64_MAX, UINT64_MAX, UINT64_MAX, uint64_t{1} << 40, UINT64_MAX)),
              ElementsAre(2694195840015518062, 2415005285507665689, 6126948475377392360,
                          4177448511634150146, 7290793212381665873, 1479308252244048501));
}

// Where any object comes, and what the first blocks are, is even over seeds and epochs: also for
// the objects that fill no block.
TEST(BlockOrder, SpreadsPositionsEvenlyOverSeedsAndEpochs) {
  for (const uint64_t count : {100u, 1503u}) {
    const uint64_t draws = count * 200;
    std::vector<double> landed(count, 0), between_epochs(count, 0), last(count, 0);
    for (uint64_t draw = 0; draw < draws; ++draw) {
      const BlockOrder order(count, draw / 3, draw % 3, 7, 5);
      const BlockOrder next(count, draw / 3, draw % 3 + 1, 7, 5);
      const uint64_t here = order.index(draw % count);
      landed[here] += 1;
      between_epochs[(next.index(draw % count) + count - here) % count] += 1;
      last[order.index(count - 1)] += 1;
    }
    const auto expected = static_cast<double>(draws) / static_cast<double>(count);
    EXPECT_LT(std::abs(chi_square_deviations(landed, expected)), 4) << count;
    EXPECT_LT(std::abs(chi_square_deviations(between_epochs, expected)), 4) << count;
    EXPECT_LT(std::abs(chi_square_deviations(last, expected)), 4) << count;
  }
}

TEST(BlockOrder, DoesNotAlwaysKeepTheSameObjectsTogether) {
  constexpr uint64_t kCount = 1000, kBlock = 10;
  std::vector<double> parted(kBlock, 0);  // by where in tens of the index a block ends
  for (uint64_t epoch = 0; epoch < 4000; ++epoch) {
    const BlockOrder order(kCount, 7, epoch, kBlock, 1);
    std::vector<int64_t> block(kBlock);
    order.indices(0, block);
    const std::set<int64_t> members(block.begin(), block.end());
    int64_t end = block.front();
    while (members.contains(end)) end = (end + 1) % static_cast<int64_t>(kCount);
    parted[static_cast<size_t>(end) % kBlock] += 1;
  }
  EXPECT_LT(std::abs(chi_square_deviations(parted, 400)), 4);
}

// A batch within one block is as bad as no shuffle; from whole blocks, it has as many of these as
// fit; with windows that are large, it is nearly as good as the global order's.
TEST(BlockOrder, BatchesVaryLessTheLargerTheWindow) {
  constexpr uint64_t kCount = 400'000, kBlock = 32, kBatch = 256;
  const auto spread = [](uint64_t window) {
    double sum = 0;
    for (uint64_t epoch = 0; epoch < 4; ++epoch) {
      sum += spread_of_means(all_of(BlockOrder(kCount, 7, epoch, kBlock, window)), kBatch);
    }
    return sum / 4;
  };
  // The means of whole blocks vary 32 times as much as those of samples.
  EXPECT_NEAR(spread(1), 32, 3);
  EXPECT_NEAR(spread(8), 32, 3);
  // Of a window's 128 blocks, a batch has all: 1 + 256 / 128, less what it draws without
  // replacement.
  EXPECT_NEAR(spread(128), 3, 0.5);
  EXPECT_NEAR(spread(2048), 1, 0.2);
  EXPECT_NEAR(spread(UINT64_MAX), 1, 0.15);
  std::vector<int64_t> global(kCount);
  Order(kCount, 7, 0, true).indices(0, global);
  EXPECT_NEAR(spread_of_means(global, kBatch), 1, 0.15);
}

TEST(BlockOrder, ShufflesSeedAndEpochDifferently) {
  EXPECT_NE(all_of(BlockOrder(2000, 1, 2, 16, 4)), all_of(BlockOrder(2000, 2, 1, 16, 4)));
}

}  // namespace
}  // namespace headrace
