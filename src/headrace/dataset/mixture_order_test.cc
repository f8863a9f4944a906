#include "headrace/dataset/mixture_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MixtureOrderTest : public ::testing::Test {
 protected:
  MixtureOrder order(uint64_t count, uint64_t epoch = 0, bool shuffle = true, uint64_t seed = 7) {
    return MixtureOrder::create(schedule_, counts_, count, seed, epoch, shuffle).value();
  }
  static std::vector<int64_t> all_of(const MixtureOrder& order) {
    std::vector<int64_t> out(order.count());
    order.indices(0, out);
    return out;
  }

  std::shared_ptr<const MixtureSchedule> schedule_ = std::make_shared<const MixtureSchedule>(
      MixtureSchedule::create(std::vector{3.0, 1.0}).value());
  std::vector<uint64_t> counts_ = {6, 4};
};

TEST_F(MixtureOrderTest, UnshuffledSourcesComeInTheirOwnOrderAgainAndAgain) {
  const std::vector<int64_t> indices = all_of(order(20, 0, false));
  std::vector<int64_t> first, second;
  for (const int64_t index : indices) (index < 6 ? first : second).push_back(index);
  EXPECT_THAT(first, ElementsAre(0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2));
  EXPECT_THAT(second, ElementsAre(6, 7, 8, 9, 6));
}

TEST_F(MixtureOrderTest, EachPassOfASourceHasEverySampleOnceInAnOrderOfItsOwn) {
  const std::vector<int64_t> indices = all_of(order(8 * 100));
  std::vector<std::vector<int64_t>> passes(1);
  for (const int64_t index : indices) {
    if (index >= 6) continue;
    if (passes.back().size() == 6) passes.emplace_back();
    passes.back().push_back(index);
  }
  EXPECT_EQ(passes.size(), 100u);
  std::map<std::vector<int64_t>, int> orders;
  for (const std::vector<int64_t>& pass : passes) {
    ++orders[pass];
    EXPECT_THAT(pass, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5));
  }
  EXPECT_GT(orders.size(), 80u) << "of 720 orders, 100 draws give some 93";
}

TEST_F(MixtureOrderTest, EpochsAreOneSequence) {
  const std::vector<int64_t> whole = all_of(order(7 * 13));
  for (uint64_t epoch = 0; epoch < 13; ++epoch) {
    EXPECT_TRUE(
        std::ranges::equal(all_of(order(7, epoch)), std::span(whole).subspan(7 * epoch, 7)));
  }
}

TEST_F(MixtureOrderTest, AnyPartIsComputedAlone) {
  const MixtureOrder made = order(1000, 3);
  const std::vector<int64_t> whole = all_of(made);
  for (uint64_t begin = 0; begin < 1000; begin += 37) {
    std::vector<int64_t> part(std::min<uint64_t>(50, 1000 - begin));
    made.indices(begin, part);
    EXPECT_TRUE(std::ranges::equal(part, std::span(whole).subspan(begin, part.size())));
  }
}

TEST_F(MixtureOrderTest, SourcesOfOneSizeAreShuffledUnlike) {
  counts_ = {500, 500};
  schedule_ = std::make_shared<const MixtureSchedule>(
      MixtureSchedule::create(std::vector{1.0, 1.0}).value());
  const std::vector<int64_t> indices = all_of(order(1000));
  size_t alike = 0;
  for (size_t i = 0; i < 1000; i += 2) {
    alike += indices[i] % 500 == indices[i + 1] % 500;
  }
  EXPECT_LT(alike, 12u) << "one of 500 by chance";
}

TEST_F(MixtureOrderTest, TheLastEpochsThereAreHaveOrders) {
  const MixtureOrder last = order(uint64_t{INT64_MAX}, UINT64_MAX);
  std::vector<int64_t> part(8);
  last.indices(uint64_t{INT64_MAX} - 8, part);
  EXPECT_EQ(std::ranges::count_if(part, [](int64_t index) { return index < 6; }), 6);
}

TEST_F(MixtureOrderTest, RefusesWhatHasNoSamplesOrTooMany) {
  const auto refused = [&](std::vector<uint64_t> counts) {
    return MixtureOrder::create(schedule_, counts, 10, 0, 0, true).error().message();
  };
  EXPECT_THAT(refused({1, 0}), HasSubstr("source 1 has no samples"));
  EXPECT_THAT(refused({1}), HasSubstr("there are 1 sources and 2 weights"));
  EXPECT_THAT(refused({uint64_t{INT64_MAX}, 1}), HasSubstr("2^63"));
}

}  // namespace
}  // namespace headrace
