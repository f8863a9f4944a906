#include "headrace/dataset/full_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace headrace
