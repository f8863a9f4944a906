#include "headrace/dataset/batch_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Positions = std::vector<uint64_t>;

Positions positions_of(std::span<const BatchEntry> entries) {
  Positions out;
  for (const BatchEntry& entry : entries) out.push_back(entry.position);
  return out;
}

struct Made {
  std::vector<Positions> batches, open;
  std::vector<uint64_t> ends;
  Positions left_out;
};

// What becomes of samples with these costs at the positions from 0 on.
Made make(const std::vector<double>& costs, BatchRules rules) {
  BatchMaker maker(std::move(rules));
  std::vector<MadeBatch> made;
  Made out;
  for (size_t at = 0; at < costs.size(); ++at) {
    const BatchEntry entry{.position = at, .weight = {.cost = costs[at]}};
    if (!maker.add(entry, true, at, at + 1, made)) out.left_out.push_back(at);
  }
  for (const MadeBatch& batch : made) {
    out.batches.push_back(positions_of(batch.entries));
    out.ends.push_back(batch.end);
  }
  for (const OpenBatch& batch : maker.open()) out.open.push_back(positions_of(batch.entries()));
  return out;
}

TEST(BatchMaker, TakesAsManySamplesAsFit) {
  const std::vector<double> ten(10, 1e6);
  EXPECT_THAT(make(ten, {.max_cost = 4e6}).ends, ElementsAre(4, 8));
  EXPECT_THAT(make(ten, {.max_cost = 3e6}).ends, ElementsAre(3, 6, 9));
  EXPECT_THAT(make(ten, {.max_cost = 3999999.5}).ends, ElementsAre(3, 6, 9));
}

TEST(BatchMaker, EndsABatchBeforeASampleThatDoesNotFit) {
  EXPECT_THAT(make({3, 4, 2, 5}, {.max_cost = 8}).ends, ElementsAre(2));
  EXPECT_THAT(make({3, 4, 2, 5}, {.max_cost = 7}).ends, ElementsAre(2, 4));
}

TEST(BatchMaker, AnOversizedSampleIsABatchOfItsOwn) {
  EXPECT_THAT(make({1, 9, 1, 1}, {.max_cost = 4}).batches, ElementsAre(Positions{0}, Positions{1}));
  EXPECT_THAT(make({9}, {.max_cost = 4}).ends, ElementsAre(1));
}

TEST(BatchMaker, AnOversizedSampleMayOvertakeTheBatchThatIsBeingFilled) {
  const Made made = make({3, 9, 1, 2}, {.max_cost = 5, .oversized = Oversized::kOvertakes});
  EXPECT_THAT(made.batches, ElementsAre(Positions{1}, Positions{0, 2}));
  EXPECT_THAT(made.ends, ElementsAre(2, 3));
  EXPECT_THAT(made.open, ElementsAre(Positions{3}));
}

TEST(BatchMaker, AnOversizedSampleMayBeLeftOut) {
  const Made made = make({3, 9, 1}, {.max_cost = 4, .oversized = Oversized::kLeftOut});
  EXPECT_THAT(made.batches, ElementsAre(Positions{0, 2}));
  EXPECT_THAT(made.left_out, ElementsAre(1));
}

TEST(BatchMaker, SamplesWithoutCostCountOnlyByTheirNumber) {
  const std::vector<double> costs{0, 0, 0, 4, 0};
  EXPECT_THAT(make(costs, {.max_cost = 5}).ends, IsEmpty());
  EXPECT_THAT(make(costs, {.max_cost = 4}).ends, ElementsAre(4));
  EXPECT_THAT(make(costs, {.max_cost = 5, .max_samples = 2}).ends, ElementsAre(2, 4));
}

TEST(BatchMaker, KeepsTheSamplesOfEachBandTogether) {
  // A cost at a boundary belongs to the band above it.
  const Made made = make({1, 5, 9, 4, 10, 6}, {.max_samples = 2, .boundaries = {5, 10}});
  EXPECT_THAT(made.batches, ElementsAre(Positions{1, 2}, Positions{0, 3}));
  EXPECT_THAT(made.open, ElementsAre(Positions{}, Positions{5}, Positions{4}));
}

TEST(BatchMaker, BytesAndCostAreLimitsOfOneBatch) {
  BatchMaker maker({.max_cost = 10, .max_bytes = 100});
  std::vector<MadeBatch> made;
  maker.add({.position = 0, .weight = {.cost = 1, .bytes = 60}}, true, 0, 1, made);
  EXPECT_TRUE(maker.has_room_for({.cost = 9, .bytes = 40}));
  EXPECT_FALSE(maker.has_room_for({.cost = 1, .bytes = 41}));
  EXPECT_FALSE(maker.has_room_for({.cost = 10, .bytes = 1}));
  EXPECT_TRUE(made.empty());
}

TEST(BatchMaker, ASampleThatDoesNotJoinEndsTheBatch) {
  BatchMaker maker({.max_samples = 9});
  std::vector<MadeBatch> made;
  maker.add({.position = 0, .weight = {}}, true, 0, 1, made);
  maker.add({.position = 1, .weight = {}}, false, 1, 2, made);
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(positions_of(made[0].entries), Positions{0});
  EXPECT_EQ(made[0].end, 1U);
  EXPECT_EQ(maker.open_count(), 1U);
}

TEST(BatchMaker, FlushesBatchesThatAreFilledToMoreThanAShare) {
  BatchMaker maker({.max_cost = 10, .max_samples = 8, .boundaries = {3}});
  std::vector<MadeBatch> made;
  for (uint64_t at = 0; at < 4; ++at) {
    maker.add({.position = at, .weight = {.cost = 1}}, true, at, at + 1, made);
  }
  maker.add({.position = 4, .weight = {.cost = 8}}, true, 4, 5, made);
  maker.flush(0.8, 5, made);
  EXPECT_TRUE(made.empty());
  maker.flush(0.5, 5, made);  // 4 of 8 samples are not more than half
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(positions_of(made[0].entries), Positions{4});
  maker.flush(-1, 5, made);
  EXPECT_EQ(made.size(), 2U);
  EXPECT_EQ(maker.open_count(), 0U);
}

TEST(BatchMaker, HugeCostsAddUp) {
  const std::vector<double> costs{9e18, 9e18, 9e18, 1};
  EXPECT_THAT(make(costs, {.max_cost = 18e18}).ends, ElementsAre(2));
  EXPECT_THAT(make(costs, {.max_cost = 1}).ends, ElementsAre(1, 2, 3, 4));
}

// What makes the entries of the open batches enough to go on from.
TEST(BatchMaker, GoesOnFromTheEntriesOfItsOpenBatches) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    const BatchRules rules{
        .max_cost = 1.0 + static_cast<double>(random() % 30),
        .max_samples = 1 + random() % 8,
        .boundaries = random() % 2 == 0 ? std::vector<double>{} : std::vector<double>{3, 6}};
    std::vector<BatchEntry> entries(random() % 60);
    for (size_t at = 0; at < entries.size(); ++at) {
      entries[at] = {.position = at, .weight = {.cost = static_cast<double>(random() % 12)}};
    }
    const size_t cut = entries.empty() ? 0 : random() % entries.size();
    BatchMaker whole(rules), resumed(rules);
    std::vector<MadeBatch> made, made_again;
    for (size_t at = 0; at < cut; ++at) whole.add(entries[at], true, at, at + 1, made);
    made.clear();
    std::vector<BatchEntry> open;
    for (const OpenBatch& batch : whole.open()) {
      open.insert(open.end(), batch.entries().begin(), batch.entries().end());
    }
    std::ranges::sort(open, {}, &BatchEntry::position);
    for (const BatchEntry& entry : open) resumed.add(entry, true, cut, cut, made_again);
    EXPECT_TRUE(made_again.empty());
    for (size_t at = cut; at < entries.size(); ++at) {
      whole.add(entries[at], true, at, at + 1, made);
      resumed.add(entries[at], true, at, at + 1, made_again);
    }
    ASSERT_EQ(made.size(), made_again.size());
    for (size_t i = 0; i < made.size(); ++i) {
      EXPECT_EQ(made[i].entries, made_again[i].entries);
      EXPECT_EQ(made[i].end, made_again[i].end);
    }
  }
}

}  // namespace
}  // namespace headrace
