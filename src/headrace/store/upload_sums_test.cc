#include "headrace/store/upload_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace headrace {
namespace {

using ::testing::ElementsAre;

Error refusal(int status, std::string message = "NotImplemented: a header") {
  return Error(Code::kInvalidArgument, std::move(message)).with_http_status(status);
}

TEST(UploadSums, ARefusedStartIsTriedOnEveryLevelThatNamesAnAlgorithmAndOnceWithout) {
  std::vector<SumLevel> tried;
  for (std::optional<UploadSums> sums = UploadSums(); sums; sums = after_refused_start(*sums)) {
    EXPECT_FALSE(sums->known);
    tried.push_back(sums->level);
  }
  EXPECT_THAT(tried, ElementsAre(SumLevel::kCrc32c, SumLevel::kCrc64Nvme, SumLevel::kComposite,
                                 SumLevel::kMd5));
}

TEST(UploadSums, RefusedBytesAreTriedWithTheirMd5AndThenWithNothing) {
  std::vector<SumLevel> tried;
  for (std::optional<UploadSums> sums = UploadSums(); sums; sums = after_refused_bytes(*sums)) {
    tried.push_back(sums->level);
  }
  EXPECT_THAT(tried, ElementsAre(SumLevel::kCrc32c, SumLevel::kMd5, SumLevel::kSize));
}

TEST(UploadSums, WhatIsFixedIsNotLeft) {
  for (const SumLevel level : {SumLevel::kCrc32c, SumLevel::kCrc64Nvme, SumLevel::kComposite,
                               SumLevel::kMd5, SumLevel::kSize}) {
    const UploadSums fixed{.level = level, .known = true, .fixed = true};
    EXPECT_EQ(after_refused_start(fixed), std::nullopt);
    EXPECT_EQ(after_refused_bytes(fixed), std::nullopt);
    EXPECT_EQ(after_bytes({.level = level, .known = true}, false, false).level, level);
  }
}

TEST(UploadSums, TheStartTellsWhetherTheSumIsThatOfTheWholeOrOfTheParts) {
  const UploadSums whole = after_start({}, AnnouncedSum::kWhole);
  EXPECT_EQ(whole, (UploadSums{.level = SumLevel::kCrc32c, .sends_whole = true}));
  const UploadSums parts = after_start({}, AnnouncedSum::kOfParts);
  EXPECT_EQ(parts, UploadSums{.level = SumLevel::kComposite});
  EXPECT_EQ(after_start({}, AnnouncedSum::kNone), UploadSums()) << "the first part will tell";
}

TEST(UploadSums, WhatTheStartTellsIsBelievedOnceAPartShowsIt) {
  const UploadSums whole = after_start({}, AnnouncedSum::kWhole);
  EXPECT_EQ(after_bytes(whole, true, false), (UploadSums{.known = true, .sends_whole = true}));
  EXPECT_EQ(after_bytes(whole, false, true).level, SumLevel::kMd5) << "it was only repeated";
  EXPECT_FALSE(after_bytes(whole, false, false).known);
  const UploadSums ignored{.level = SumLevel::kMd5, .known = true, .ignored = SumLevel::kCrc32c};
  EXPECT_EQ(after_start(ignored, AnnouncedSum::kWhole), ignored);
}

TEST(UploadSums, BytesWhoseSumIsToldMakeItKnownButNotThatOfTheWhole) {
  EXPECT_EQ(after_bytes({}, true, false), (UploadSums{.known = true}));
}

TEST(UploadSums, BytesWhoseSumIsIgnoredAreProvedByTheirEtagOrSentWithTheirMd5) {
  EXPECT_EQ(after_bytes({}, false, true), (UploadSums{.level = SumLevel::kMd5,
                                                      .known = true,
                                                      .ignored = SumLevel::kCrc32c,
                                                      .etags = Etags::kMd5}));
  const UploadSums again = after_bytes({}, false, false);
  EXPECT_EQ(again, (UploadSums{.level = SumLevel::kMd5, .ignored = SumLevel::kCrc32c}));
  EXPECT_EQ(after_bytes(again, false, false).etags, Etags::kOther);
  EXPECT_TRUE(after_bytes(again, false, false).known);
}

TEST(UploadSums, AHeaderThatWasIgnoredAndIsRefusedLaterIsLeftOut) {
  const UploadSums ignored = after_bytes({}, false, true);
  const UploadSums without = {.level = SumLevel::kMd5, .etags = Etags::kMd5};
  EXPECT_EQ(after_refused_bytes(ignored), without);
  EXPECT_EQ(after_refused_start(ignored), without);
}

TEST(UploadSums, ARefusalThatIsAboutTheBytesOrThePersonTeachesNothing) {
  const auto is_sum = [](const Error& error) {
    return may_be_about_sums({}, error, /*blames_taken=*/false);
  };
  EXPECT_TRUE(is_sum(refusal(501)));
  EXPECT_TRUE(is_sum(refusal(400)));
  EXPECT_FALSE(is_sum(refusal(400, "InvalidDigest: the Content-MD5 is not valid")));
  EXPECT_FALSE(is_sum(refusal(409)));
  EXPECT_FALSE(is_sum(Error(Code::kCorrupt, "BadDigest").with_http_status(400)));
  EXPECT_FALSE(is_sum(Error(Code::kPermissionDenied, "").with_http_status(400)));
  EXPECT_FALSE(is_sum(Error(Code::kUnavailable, "").with_http_status(503)));
}

TEST(UploadSums, WhatTheServiceHasTakenIsBlamedOnlyByARefusalThatMayBeAboutIt) {
  EXPECT_FALSE(may_be_about_sums({.known = true}, refusal(400), /*blames_taken=*/false));
  EXPECT_TRUE(may_be_about_sums({.known = true}, refusal(400), /*blames_taken=*/true));
  const UploadSums ignored{.level = SumLevel::kMd5, .known = true, .ignored = SumLevel::kCrc32c};
  EXPECT_TRUE(may_be_about_sums(ignored, refusal(400), /*blames_taken=*/false));
}

TEST(SumsRecord, ForgetsAfterAWhileWhatIsLessThanTheBest) {
  const SumsRecord::TimePoint now;
  const auto later = now + Learned::kForgottenAfter;
  SumsRecord record;
  EXPECT_EQ(record.at(now), std::nullopt);
  EXPECT_TRUE(record.learn({.level = SumLevel::kMd5, .known = true}, now));
  EXPECT_FALSE(
      record.learn({.level = SumLevel::kMd5, .known = true}, later - std::chrono::seconds(1)));
  EXPECT_NE(record.at(later - std::chrono::seconds(1)), std::nullopt);
  EXPECT_EQ(record.at(later), std::nullopt);
  EXPECT_TRUE(record.learn({.known = true}, later));
  EXPECT_NE(record.at(later + Learned::kForgottenAfter), std::nullopt);
}

TEST(SumLevel, HasANameThatIsFoundAgain) {
  for (const SumLevel level : {SumLevel::kCrc32c, SumLevel::kCrc64Nvme, SumLevel::kComposite,
                               SumLevel::kMd5, SumLevel::kSize}) {
    EXPECT_EQ(sum_level(to_string(level)), level);
  }
  EXPECT_EQ(sum_level("auto"), std::nullopt);
}

TEST(SentSums, LeaveOutThoseOfNoKind) {
  EXPECT_TRUE(SentSums({Checksum(), Checksum()}).all().empty());
  const SentSums sums = {Checksum(), Checksum(Crc32c(7))};
  ASSERT_EQ(sums.all().size(), 1U);
  EXPECT_EQ(sums.of(ChecksumKind::kCrc32c), Checksum(Crc32c(7)));
  EXPECT_TRUE(sums.of(ChecksumKind::kMd5).empty());
}

}  // namespace
}  // namespace headrace
