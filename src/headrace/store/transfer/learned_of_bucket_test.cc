#include "headrace/store/transfer/learned_of_bucket.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr Learned::TimePoint kBegin{seconds(1000)};

TEST(LearnedOfBuckets, KeepWhatIsKnownOfEachBucketApart) {
  LearnedOfBuckets buckets;
  buckets.of("s3://a/")->part_sums.learn({.level = SumLevel::kMd5, .known = true}, kBegin);
  buckets.of("s3://a/")->note(1, Learned::Treatment::kRefused, kBegin);
  EXPECT_NE(buckets.of("s3://a/")->part_sums.at(kBegin), std::nullopt);
  EXPECT_EQ(buckets.of("s3://a/")->write_sums.at(kBegin), std::nullopt);
  EXPECT_EQ(buckets.of("s3://a/")->refused(1, kBegin), 1);
  EXPECT_EQ(buckets.of("s3://b/")->part_sums.at(kBegin), std::nullopt);
  EXPECT_EQ(buckets.of("s3://b/")->refused(1, kBegin), 0);
}

TEST(LearnedOfBucket, TellsOfThoseHeadersThatAreAskedAbout) {
  LearnedOfBucket learned;
  learned.note(0b0101, Learned::Treatment::kRefused, kBegin);
  learned.note(0b0010, Learned::Treatment::kTaken, kBegin);
  EXPECT_EQ(learned.refused(0b1111, kBegin), 0b0101);
  EXPECT_EQ(learned.refused(0b0110, kBegin), 0b0100);
  EXPECT_EQ(learned.taken(0b1111, kBegin), 0b0010);
  EXPECT_EQ(learned.taken(0, kBegin), 0);
  EXPECT_EQ(learned.refused(0xff, kBegin + minutes(10)), 0);
  EXPECT_EQ(learned.taken(0xff, kBegin + minutes(10)), 0b0010);
}

TEST(WriteConditions, TellWritesThatCreateFromThoseThatReplace) {
  WriteConditions conditions;
  conditions.of("").note(Learned::Treatment::kIgnored, kBegin);
  EXPECT_EQ(conditions.create.at(kBegin), Learned::Treatment::kIgnored);
  EXPECT_EQ(conditions.of("1").at(kBegin), Learned::Treatment::kUnknown);
}

}  // namespace
}  // namespace headrace
