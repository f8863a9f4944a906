#include "headrace/dataset/sample_seeds.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace {
namespace {

TEST(SplitMix, GivesTheOutputsThatItsAuthorsPublished) {
  // The generator that begins in the state 1234567.
  uint64_t state = 1234567;
  EXPECT_EQ(split_mix(state += kSplitMixStep), 6457827717110365317u);
  EXPECT_EQ(split_mix(state += kSplitMixStep), 3203168211198807973u);
  EXPECT_EQ(split_mix(state += kSplitMixStep), 9817491932198370423u);
}

TEST(SampleSeeds, AreTheSameInEveryVersion) {
  // Whoever changes these changes the random transforms of every run that is resumed.
  EXPECT_EQ(SampleSeeds(0, 0).at(0), 7093023848729740133u);
  EXPECT_EQ(SampleSeeds(7, 3).at(1'000'000), 2074714310156776946u);
}

TEST(SampleSeeds, FitIntoInt64) {
  for (uint64_t position = 0; position < 1000; ++position) {
    EXPECT_EQ(SampleSeeds(0, 0).at(position) >> 63, 0u);
  }
}

TEST(SampleSeeds, DifferBetweenPositionsEpochsAndSeeds) {
  std::set<uint64_t> seen;
  size_t count = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (uint64_t epoch = 0; epoch < 10; ++epoch) {
      for (uint64_t position = 0; position < 100; ++position, ++count) {
        seen.insert(SampleSeeds(seed, epoch).at(position));
      }
    }
  }
  EXPECT_EQ(seen.size(), count);
}

}  // namespace
}  // namespace headrace
