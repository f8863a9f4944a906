#include "headrace/store/reading/fetch_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Sizes = std::vector<std::optional<uint64_t>>;

TEST(PlanGroups, TakesObjectsInOrderUpToTheNumberAllowed) {
  const Sizes sizes(5, 10);
  EXPECT_THAT(plan_groups(sizes, 1000, 2),
              ElementsAre(PlannedGroup{{0, 1}, 20}, PlannedGroup{{2, 3}, 20}));
}

TEST(PlanGroups, NeverExceedsTheSizeAndUsesItToTheLastByte) {
  const Sizes sizes = {40, 60, 1, 99, 2};
  EXPECT_THAT(plan_groups(sizes, 100, 32),
              ElementsAre(PlannedGroup{{0, 1}, 100}, PlannedGroup{{2, 3}, 100}));
}

TEST(PlanGroups, LeavesOutWhatIsLargerAndWhatMustBeReadAlone) {
  const Sizes sizes = {10, 101, std::nullopt, 10, 0};
  EXPECT_THAT(plan_groups(sizes, 100, 32), ElementsAre(PlannedGroup{{0, 3, 4}, 20}));
}

TEST(PlanGroups, JoinsNeitherOneObjectNorNothing) {
  EXPECT_THAT(plan_groups(Sizes{}, 100, 32), IsEmpty());
  EXPECT_THAT(plan_groups(Sizes{10}, 100, 32), IsEmpty());
  EXPECT_THAT(plan_groups(Sizes{10, 10}, 15, 32), IsEmpty());
  EXPECT_THAT(plan_groups(Sizes{0, 0, 0}, 100, 32), IsEmpty());
}

TEST(PlanGroups, SizesNearTheEndOfTheNumbersDoNotWrapAround) {
  const Sizes sizes = {UINT64_MAX - 1, 1, 1, UINT64_MAX};
  EXPECT_THAT(plan_groups(sizes, UINT64_MAX, 32), ElementsAre(PlannedGroup{{0, 1}, UINT64_MAX}));
}

TEST(PlanGroups, HoldForAnySizes) {
  std::mt19937_64 rng(1);
  for (int round = 0; round < 2000; ++round) {
    Sizes sizes(rng() % 100);
    for (std::optional<uint64_t>& size : sizes) {
      if (rng() % 8 != 0) size = rng() % 50;
    }
    const uint64_t max_size_bytes = 1 + rng() % 200;
    const auto max_objects = static_cast<uint32_t>(2 + rng() % 31);
    int64_t last = -1;
    for (const PlannedGroup& group : plan_groups(sizes, max_size_bytes, max_objects)) {
      uint64_t total_bytes = 0;
      for (const uint32_t slot : group.slots) {
        ASSERT_GT(slot, last);
        last = slot;
        ASSERT_TRUE(sizes[slot].has_value());
        total_bytes += *sizes[slot];
      }
      ASSERT_EQ(group.size_bytes, total_bytes);
      ASSERT_LE(total_bytes, max_size_bytes);
      ASSERT_GE(group.slots.size(), 2u);
      ASSERT_LE(group.slots.size(), max_objects);
    }
  }
}

}  // namespace
}  // namespace headrace
