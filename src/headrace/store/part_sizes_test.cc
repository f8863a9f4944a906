#include "headrace/store/part_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Upload::Limits s3_limits() {
  return {.min_part_bytes = 5 * kMiB,
          .max_part_bytes = 5 * kGiB,
          .max_parts = 10'000,
          .max_object_bytes = 5 * kTiB};
}

PartSizes::Wanted usual() { return {.max_parts_in_flight = 8, .budget_bytes = kGiB}; }

std::vector<uint64_t> first_parts(const PartSizes& sizes, uint32_t count) {
  std::vector<uint64_t> bytes;
  for (uint32_t i = 1; i <= count; ++i) bytes.push_back(sizes.of(i));
  return bytes;
}

TEST(PartSizes, OfAnUnknownSizeDoubleWithEachTenthOfThePartsUpToWhatMemoryHolds) {
  Upload::Limits limits = s3_limits();
  limits.max_parts = 20;
  const PartSizes sizes = PartSizes::choose(limits, usual()).value();
  constexpr uint64_t k = kMiB;
  EXPECT_THAT(first_parts(sizes, 10), ElementsAre(16 * k, 16 * k, 32 * k, 32 * k, 64 * k, 64 * k,
                                                  128 * k, 128 * k, 128 * k, 128 * k));
  EXPECT_EQ(sizes.of(20), 128 * k);
  EXPECT_EQ(sizes.reach_bytes(), (2 * 16 + 2 * 32 + 2 * 64 + 14 * 128) * k);
}

TEST(PartSizes, AtS3TheGuideNamesWhatTheyReach) {
  const auto reach = [](uint64_t budget_bytes, std::optional<uint64_t> size_bytes) {
    PartSizes::Wanted wanted = usual();
    wanted.budget_bytes = budget_bytes;
    wanted.expected_size_bytes = size_bytes;
    return PartSizes::choose(s3_limits(), wanted).value().reach_bytes();
  };
  EXPECT_EQ(reach(kGiB, {}) / kGiB, 984u);
  EXPECT_EQ(reach(4 * kGiB, {}) / kGiB, 2984u);
  EXPECT_EQ(reach(16 * kGiB, {}), 5 * kTiB) << "no more than the service takes";
  EXPECT_GE(reach(kGiB, 5 * kTiB), 5 * kTiB);
}

TEST(PartSizes, OfAKnownSizeAreEqualAndFitWhateverItIs) {
  for (const uint64_t size_bytes :
       {uint64_t{0}, uint64_t{1}, 156 * kGiB, 157 * kGiB, 160'000 * kMiB, 160'000 * kMiB + 1,
        999'999'999'999ul, 5 * kTiB - 1, 5 * kTiB}) {
    PartSizes::Wanted wanted = usual();
    wanted.expected_size_bytes = size_bytes;
    const PartSizes sizes = PartSizes::choose(s3_limits(), wanted).value();
    const uint64_t each_bytes = sizes.of(1);
    EXPECT_EQ(sizes.of(static_cast<uint32_t>(size_bytes / each_bytes) + 1), each_bytes);
    EXPECT_GE(each_bytes, PartSizes::kUsualBytes);
    EXPECT_LT(each_bytes, size_bytes / 9'800 + PartSizes::kUsualBytes + kMiB);
    EXPECT_GE(sizes.reach_bytes(), size_bytes);
    EXPECT_TRUE(sizes.check(size_bytes));
  }
}

TEST(PartSizes, GrowOnceAnObjectIsLargerThanWasExpected) {
  Upload::Limits limits = s3_limits();
  limits.max_parts = 20;
  PartSizes::Wanted wanted = usual();
  wanted.expected_size_bytes = 40 * kMiB;
  constexpr uint64_t k = kMiB;
  EXPECT_THAT(first_parts(PartSizes::choose(limits, wanted).value(), 9),
              ElementsAre(16 * k, 16 * k, 16 * k, 16 * k, 16 * k, 32 * k, 32 * k, 64 * k, 64 * k));
  wanted.expected_size_bytes = 0;
  EXPECT_EQ(PartSizes::choose(limits, wanted).value().reach_bytes(),
            (3 * 16 + 2 * 32 + 2 * 64 + 13 * 128) * k);
}

TEST(PartSizes, WhereAServiceWantsEqualOnesAreTheLargestThatMemoryHolds) {
  Upload::Limits limits = s3_limits();
  limits.equal_parts = true;
  PartSizes::Wanted wanted = usual();
  PartSizes sizes = PartSizes::choose(limits, wanted).value();
  EXPECT_EQ(sizes.of(1), 128 * kMiB);
  EXPECT_EQ(sizes.of(10'000), 128 * kMiB);
  wanted.expected_size_bytes = kGiB;
  sizes = PartSizes::choose(limits, wanted).value();
  EXPECT_EQ(sizes.of(1), PartSizes::kUsualBytes);
}

TEST(PartSizes, WhoseNumberIsNotLimitedStayAsTheyAre) {
  PartSizes::Wanted wanted = usual();
  for (const std::optional<uint64_t> size_bytes :
       {std::optional<uint64_t>(), std::optional<uint64_t>(kTiB)}) {
    wanted.expected_size_bytes = size_bytes;
    const PartSizes sizes = PartSizes::choose({}, wanted).value();
    EXPECT_EQ(sizes.of(1), PartSizes::kUsualBytes);
    EXPECT_EQ(sizes.of(1'000'000), PartSizes::kUsualBytes);
  }
}

TEST(PartSizes, AreSmallerWhereTheBudgetIsSmall) {
  PartSizes::Wanted wanted = usual();
  wanted.budget_bytes = 64 * kMiB;
  EXPECT_EQ(PartSizes::choose({}, wanted).value().of(1), 2 * kMiB);
  EXPECT_EQ(PartSizes::choose(s3_limits(), wanted).value().of(1), 5 * kMiB);
  EXPECT_EQ(PartSizes::choose(s3_limits(), wanted).value().of(10'000), 8 * kMiB);
  wanted.budget_bytes = kMiB;
  EXPECT_EQ(PartSizes::choose({}, wanted).value().of(1), kMiB);
}

TEST(PartSizes, ThatAreAskedForAreThose) {
  PartSizes::Wanted wanted = usual();
  wanted.part_bytes = 7 * kMiB;
  const PartSizes sizes = PartSizes::choose(s3_limits(), wanted).value();
  EXPECT_EQ(sizes.of(1), 7 * kMiB);
  EXPECT_EQ(sizes.of(10'000), 7 * kMiB);
  EXPECT_EQ(sizes.reach_bytes(), 70'000 * kMiB);
}

TEST(PartSizes, ThatCannotReachTheSizeAreRefusedByTheNameOfTheOption) {
  Upload::Limits limits = s3_limits();
  PartSizes::Wanted wanted = usual();
  wanted.expected_size_bytes = 5 * kTiB + 1;
  EXPECT_THAT(PartSizes::choose(limits, wanted),
              FailsWith(Code::kInvalidArgument, HasSubstr("the store takes no object of more")));
  wanted.expected_size_bytes = kTiB;
  wanted.part_bytes = 16 * kMiB;
  EXPECT_THAT(PartSizes::choose(limits, wanted),
              FailsWith(Code::kInvalidArgument,
                        AllOf(HasSubstr("it is expected to have 1099511627776 bytes"),
                              HasSubstr("at most 10000 parts, and with part_bytes 16777216"),
                              HasSubstr("167772160000 bytes fit"))));
  wanted.part_bytes = 0;
  limits.max_parts = 20;
  EXPECT_THAT(PartSizes::choose(limits, wanted),
              FailsWith(Code::kInvalidArgument, HasSubstr("at most 20 parts of 5368709120 bytes")));
  wanted.expected_size_bytes = 100 * kMiB;
  EXPECT_THAT(PartSizes::choose(limits, wanted).value().check(kTiB),
              FailsWith(Code::kInvalidArgument,
                        AllOf(HasSubstr("sized for expected_size_bytes 104857600 and are"),
                              HasSubstr("a larger expected_size_bytes is needed"))));
  wanted.expected_size_bytes = {};
  EXPECT_THAT(PartSizes::choose(limits, wanted).value().check(kTiB),
              FailsWith(Code::kInvalidArgument,
                        AllOf(HasSubstr("an object of unknown size and are 2113929216 bytes"),
                              HasSubstr("pass its size as expected_size_bytes"))));
}

TEST(PartSizes, TellTheLogHowFarTheyReach) {
  Upload::Limits limits = s3_limits();
  limits.max_parts = 20;
  EXPECT_EQ(PartSizes::choose(limits, usual()).value().to_string(),
            "parts of 16777216 bytes that grow to 134217728 bytes, for an object of at most "
            "2113929216 bytes");
  EXPECT_EQ(PartSizes::choose({}, usual()).value().to_string(), "parts of 16777216 bytes");
}

}  // namespace
}  // namespace headrace
