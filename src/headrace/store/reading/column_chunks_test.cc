#include "headrace/store/reading/column_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Location = ColumnChunkPlan::Location;

constexpr uint64_t kEnd = 1'000'000;

TEST(PlanColumnChunks, NeighboursAreReadTogether) {
  const std::vector<ByteRange> chunks = {{4, 100}, {100, 250}, {300, 400}};
  const ColumnChunkPlan plan =
      plan_column_chunks(chunks, kEnd, {.max_gap_bytes = 0, .max_request_bytes = 1000}).value();
  EXPECT_THAT(plan.requests, ElementsAre(ByteRange{4, 250}, ByteRange{300, 400}));
  EXPECT_THAT(plan.locations, ElementsAre(Location{0, 0}, Location{0, 96}, Location{1, 0}));
}

TEST(PlanColumnChunks, TheyMayComeInAnyOrder) {
  const std::vector<ByteRange> chunks = {{300, 400}, {4, 100}, {103, 250}};
  const ColumnChunkPlan plan =
      plan_column_chunks(chunks, kEnd, {.max_gap_bytes = 3, .max_request_bytes = 1000}).value();
  EXPECT_THAT(plan.requests, ElementsAre(ByteRange{4, 250}, ByteRange{300, 400}));
  EXPECT_THAT(plan.locations, ElementsAre(Location{1, 0}, Location{0, 0}, Location{0, 99}));
}

TEST(PlanColumnChunks, ALargeOneIsARequestOfItsOwn) {
  const std::vector<ByteRange> chunks = {{0, 10}, {10, 2000}, {2000, 2010}, {2010, 2020}};
  const ColumnChunkPlan plan =
      plan_column_chunks(chunks, kEnd, {.max_gap_bytes = 0, .max_request_bytes = 100}).value();
  EXPECT_THAT(plan.requests,
              ElementsAre(ByteRange{0, 10}, ByteRange{10, 2000}, ByteRange{2000, 2020}));
}

TEST(PlanColumnChunks, OfNoneThereAreNoRequests) {
  const ColumnChunkPlan plan = plan_column_chunks({}, kEnd, {}).value();
  EXPECT_THAT(plan.requests, IsEmpty());
  EXPECT_THAT(plan.locations, IsEmpty());
}

TEST(PlanColumnChunks, RefusesThoseThatCannotBe) {
  for (const ByteRange bad : {ByteRange{10, 10}, ByteRange{10, 9}, ByteRange{0, kEnd + 1}}) {
    const Result<ColumnChunkPlan> plan =
        plan_column_chunks(std::vector<ByteRange>{{4, 5}, bad}, kEnd, {});
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code(), Code::kCorrupt);
    EXPECT_THAT(plan.error().message(), HasSubstr("the file's footer begins at 1000000"));
  }
}

// Whatever the file: each column chunk lies whole in its request, no request reads a gap above the
// limit or, for several, more than the limit, and no two neighbours could have been one.
TEST(PlanColumnChunks, KeepsToItsRules) {
  std::mt19937_64 random(20261124);
  const auto below = [&random](uint64_t n) { return random() % n; };
  for (int round = 0; round < 2000; ++round) {
    const ColumnChunkRules rules = {.max_gap_bytes = below(3) * below(200),
                                    .max_request_bytes = below(4) * below(2000)};
    std::vector<ByteRange> chunks;
    uint64_t at = 4;
    for (uint64_t i = below(30); i > 0; --i) {
      at += below(2) * below(300);
      chunks.push_back({at, at + 1 + below(800)});
      at = chunks.back().end;
    }
    std::ranges::shuffle(chunks, random);
    const ColumnChunkPlan plan = plan_column_chunks(chunks, at, rules).value();
    ASSERT_EQ(plan.locations.size(), chunks.size());
    std::vector<std::vector<ByteRange>> in(plan.requests.size());
    for (size_t i = 0; i < chunks.size(); ++i) {
      const Location& location = plan.locations[i];
      const ByteRange& request = plan.requests.at(location.request);
      ASSERT_EQ(request.begin + location.offset_bytes, chunks[i].begin);
      ASSERT_LE(chunks[i].end, request.end);
      in[location.request].push_back(chunks[i]);
    }
    for (size_t i = 0; i < in.size(); ++i) {
      const ByteRange& request = plan.requests[i];
      ASSERT_FALSE(in[i].empty());
      std::ranges::sort(in[i], {}, &ByteRange::begin);
      ASSERT_EQ(request, (ByteRange{in[i].front().begin, in[i].back().end}));
      if (in[i].size() > 1) {
        ASSERT_LE(request.size_bytes(), rules.max_request_bytes);
      }
      for (size_t k = 1; k < in[i].size(); ++k) {
        ASSERT_LE(in[i][k].begin - in[i][k - 1].end, rules.max_gap_bytes);
      }
      if (i > 0) {
        const ByteRange& before = plan.requests[i - 1];
        const ByteRange& first = in[i].front();
        ASSERT_TRUE(first.begin - before.end > rules.max_gap_bytes ||
                    first.end - before.begin > rules.max_request_bytes);
      }
    }
  }
}

}  // namespace
}  // namespace headrace
