#include "headrace/dataset/full_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(FullBatches, TakeAsManyObjectsAsFit) {
  const std::vector<int64_t> ten(10, 1'000'000);
  EXPECT_THAT(full_batches(ten, {.max_bytes = 4'000'000}), ElementsAre(4, 8));
  EXPECT_THAT(full_batches(ten, {.max_bytes = 3'000'000}), ElementsAre(3, 6, 9));
  EXPECT_THAT(full_batches(ten, {.max_bytes = 3'999'999}), ElementsAre(3, 6, 9));
}

TEST(FullBatches, AreFullBeforeAnObjectThatDoesNotFit) {
  const std::vector<int64_t> sizes{3, 4, 2, 5};
  EXPECT_THAT(full_batches(sizes, {.max_bytes = 8}), ElementsAre(2));
  EXPECT_THAT(full_batches(sizes, {.max_bytes = 7}), ElementsAre(2, 4));
}

TEST(FullBatches, AnObjectLargerThanTheLimitIsABatchOfItsOwn) {
  const std::vector<int64_t> sizes{1, 9, 1, 1};
  EXPECT_THAT(full_batches(sizes, {.max_bytes = 4}), ElementsAre(1, 2));
  EXPECT_THAT(full_batches(std::vector<int64_t>{9}, {.max_bytes = 4}), ElementsAre(1));
}

TEST(FullBatches, EmptyObjectsTakeNoBytesButCount) {
  const std::vector<int64_t> sizes{0, 0, 0, 4, 0};
  EXPECT_THAT(full_batches(sizes, {.max_bytes = 5}), IsEmpty());
  EXPECT_THAT(full_batches(sizes, {.max_bytes = 4}), ElementsAre(4));
  EXPECT_THAT(full_batches(sizes, {.max_bytes = 5, .max_objects = 2}), ElementsAre(2, 4));
}

TEST(FullBatches, OfNothingAreNone) { EXPECT_THAT(full_batches({}, {.max_bytes = 1}), IsEmpty()); }

TEST(FullBatches, SizesNearTheLargestDoNotWrapAround) {
  const std::vector<int64_t> sizes{INT64_MAX, INT64_MAX, INT64_MAX, 1};
  EXPECT_THAT(full_batches(sizes, {.max_bytes = UINT64_MAX}), ElementsAre(2));
  EXPECT_THAT(full_batches(sizes, {.max_bytes = 1}), ElementsAre(1, 2, 3, 4));
}

// What makes a place in the middle of an epoch enough to go on from there.
TEST(FullBatches, AreTheSameFromTheEndOfAnyOfThemOn) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> sizes(random() % 60);
    for (int64_t& size : sizes) size = static_cast<int64_t>(random() % 12);
    const BatchLimits limits{.max_bytes = 1 + random() % 30, .max_objects = 1 + random() % 8};
    const std::vector<int64_t> ends = full_batches(sizes, limits);
    for (size_t i = 0; i < ends.size(); ++i) {
      std::vector<int64_t> rest =
          full_batches(std::span(sizes).subspan(static_cast<size_t>(ends[i])), limits);
      for (int64_t& end : rest) end += ends[i];
      EXPECT_EQ(rest, std::vector<int64_t>(ends.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                           ends.end()));
    }
  }
}

TEST(FullBatches, ALimitBetweenTwoSizesIsNeverReached) {
  const std::vector<int64_t> sizes{2, 2, 1};
  EXPECT_THAT(full_batches(sizes, {.max_bytes = 4, .is_whole = false}), ElementsAre(2));
  EXPECT_THAT(full_batches({sizes.data(), 2}, {.max_bytes = 4, .is_whole = false}), IsEmpty());
}

std::vector<int64_t> ascending(size_t count) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TEST(PackedBatches, FollowTheOrderThatIsGiven) {
  const std::vector<int64_t> sizes{1, 2, 3, 4}, order{3, 2, 1, 0};
  const PackedBatches packed = packed_batches(sizes, order, Oversized::kLeftOut, {.max_bytes = 5});
  EXPECT_THAT(packed.indices, ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(packed.ends, ElementsAre(1, 3));
  EXPECT_THAT(packed.left_out, IsEmpty());
  EXPECT_EQ(packed.rest_bytes, 1U);
}

TEST(PackedBatches, LeaveOutWhatIsEmptyOrTooLarge) {
  const std::vector<int64_t> sizes{0, 3, 9, 0, 1};
  const PackedBatches packed =
      packed_batches(sizes, ascending(5), Oversized::kLeftOut, {.max_bytes = 4});
  EXPECT_THAT(packed.indices, ElementsAre(1, 4));
  EXPECT_THAT(packed.ends, ElementsAre(2));
  EXPECT_THAT(packed.left_out, ElementsAre(0, 2, 3));
  EXPECT_EQ(packed.rest_bytes, 0U);
}

TEST(PackedBatches, AnOversizedObjectOvertakesTheBatchThatIsBeingFilled) {
  const std::vector<int64_t> sizes{3, 9, 1, 2};
  const PackedBatches packed =
      packed_batches(sizes, ascending(4), Oversized::kOwnBatch, {.max_bytes = 5});
  EXPECT_THAT(packed.indices, ElementsAre(1, 0, 2, 3));
  EXPECT_THAT(packed.ends, ElementsAre(1, 3));
  EXPECT_EQ(packed.rest_bytes, 2U);
}

TEST(PackedBatches, ABatchThatCannotReachItsLimitIsOvertakenToo) {
  const std::vector<int64_t> sizes{2, 2, 9};
  const BatchLimits limits{.max_bytes = 4, .is_whole = false};
  const PackedBatches packed = packed_batches(sizes, ascending(3), Oversized::kOwnBatch, limits);
  EXPECT_THAT(packed.indices, ElementsAre(2, 0, 1));
  EXPECT_THAT(packed.ends, ElementsAre(1));
  EXPECT_EQ(packed.rest_bytes, 4U);
}

TEST(PackedBatches, ALimitOfNothingMakesEveryObjectOversized) {
  const std::vector<int64_t> sizes{0, 1, 2};
  EXPECT_THAT(packed_batches(sizes, ascending(3), Oversized::kLeftOut, {}).indices, IsEmpty());
  const PackedBatches own = packed_batches(sizes, ascending(3), Oversized::kOwnBatch, {});
  EXPECT_THAT(own.ends, ElementsAre(1, 2));
  EXPECT_THAT(own.left_out, ElementsAre(0));
}

TEST(PackedBatches, HaveTheEndsOfFullBatchesWhereAllObjectsFit) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> sizes(random() % 60);
    for (int64_t& size : sizes) size = 1 + static_cast<int64_t>(random() % 12);
    const BatchLimits limits{.max_bytes = 12 + random() % 30, .is_whole = random() % 2 == 0};
    EXPECT_EQ(packed_batches(sizes, ascending(sizes.size()), Oversized::kOwnBatch, limits).ends,
              full_batches(sizes, limits));
  }
}

}  // namespace
}  // namespace headrace
