#include "headrace/store/writing/sums_of_part.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "headrace/format/running_sum.h"

namespace headrace {
namespace {

using Told = SumsOfPart::Told;

class SumsOfPartTest : public ::testing::Test {
 protected:
  using Part = std::shared_ptr<const UploadPart>;

  std::shared_ptr<SumLadder> ladder(const UploadSums& begin) {
    return std::make_shared<SumLadder>(
        begin, [this](const UploadSums& sums) { learned_.push_back(sums); });
  }
  Part part() const {
    const std::span<const std::byte> bytes(bytes_);
    return std::make_shared<UploadPart>(UploadPart{
        .size_bytes = bytes.size(), .crc32c = Crc32c().extended(bytes), .spans = {bytes}});
  }
  static bool is_repeated(SumsOfPart& sums, int status, bool blames_taken = true) {
    Error error = Error(Code::kInvalidArgument, "Wrong: no").with_http_status(status);
    return sums.refused(error, blames_taken);
  }
  static std::vector<ChecksumKind> next(SumsOfPart& sums) {
    std::vector<ChecksumKind> kinds;
    const SentSums sent = sums.next();
    for (const Checksum& each : sent.all()) kinds.push_back(each.kind());
    return kinds;
  }

  std::array<std::byte, 5> bytes_{std::byte{1}};
  std::vector<UploadSums> learned_;
};

constexpr UploadSums kIgnoring{
    .level = SumLevel::kMd5, .known = true, .ignored = SumLevel::kCrc32c, .etags = Etags::kMd5};
const std::vector kMd5AndCrc = {ChecksumKind::kMd5, ChecksumKind::kCrc32c};
const std::vector kMd5Alone = {ChecksumKind::kMd5};
const std::vector kCrcAlone = {ChecksumKind::kCrc32c};

TEST_F(SumsOfPartTest, APartThatIsRefusedGoesDownAloneUntilItIsAccepted) {
  const auto shared = ladder(kIgnoring);
  SumsOfPart one(part(), shared), other(part(), shared);
  EXPECT_EQ(next(one), kMd5AndCrc);
  EXPECT_TRUE(is_repeated(one, 400));
  EXPECT_EQ(next(one), kMd5AndCrc) << "it may have been spoilt";
  EXPECT_TRUE(is_repeated(one, 400));
  EXPECT_EQ(next(one), kMd5Alone);
  EXPECT_EQ(next(other), kMd5AndCrc) << "one part was refused, for whatever reason";
  EXPECT_TRUE(other.accepted({.md5 = other.of(ChecksumKind::kMd5)}).value());
  EXPECT_TRUE(learned_.empty());
  EXPECT_TRUE(one.accepted({.md5 = one.of(ChecksumKind::kMd5)}).value());
  ASSERT_EQ(learned_.size(), 1U);
  EXPECT_EQ(learned_[0],
            (UploadSums{.level = SumLevel::kMd5, .known = true, .etags = Etags::kMd5}));
  EXPECT_EQ(next(other), kMd5Alone) << "the service has accepted such bytes";
}

TEST_F(SumsOfPartTest, BytesThatWereComparedBeforeAreNeverSentWithoutASumForABadRequest) {
  const auto shared = ladder({.known = true, .sends_whole = true});
  SumsOfPart sums(part(), shared);
  EXPECT_EQ(next(sums), kCrcAlone);
  EXPECT_TRUE(is_repeated(sums, 400));
  EXPECT_EQ(next(sums), kCrcAlone);
  EXPECT_TRUE(is_repeated(sums, 400));
  EXPECT_EQ(next(sums), kMd5Alone);
  EXPECT_TRUE(is_repeated(sums, 400));
  EXPECT_EQ(next(sums), kMd5Alone);
  EXPECT_FALSE(is_repeated(sums, 400));
  EXPECT_TRUE(learned_.empty());
  EXPECT_EQ(shared->now(), (UploadSums{.known = true, .sends_whole = true}));
}

TEST_F(SumsOfPartTest, WhatAServiceNoLongerKnowsIsLeftOutThoughItWasTaken) {
  const auto shared = ladder({.known = true});
  SumsOfPart sums(part(), shared);
  EXPECT_EQ(next(sums), kCrcAlone);
  EXPECT_TRUE(is_repeated(sums, 501));
  EXPECT_EQ(next(sums), kMd5Alone);
  EXPECT_TRUE(is_repeated(sums, 501));
  EXPECT_TRUE(next(sums).empty());
  EXPECT_TRUE(sums.accepted({}).value());
  EXPECT_EQ(shared->now().level, SumLevel::kSize);
}

TEST_F(SumsOfPartTest, ABadRequestThatIsAboutSomethingElseIsNotSentAgainWhereTheSumWasTaken) {
  SumsOfPart sums(part(), ladder({.known = true}));
  EXPECT_EQ(next(sums), kCrcAlone);
  EXPECT_FALSE(is_repeated(sums, 400, /*blames_taken=*/false));
}

TEST_F(SumsOfPartTest, WhatIsFixedIsRepeatedOnceAndNotLeft) {
  SumsOfPart sums(part(), ladder({.known = true, .fixed = true}));
  EXPECT_EQ(next(sums), kCrcAlone);
  EXPECT_TRUE(is_repeated(sums, 400));
  EXPECT_EQ(next(sums), kCrcAlone);
  EXPECT_FALSE(is_repeated(sums, 400));
  EXPECT_FALSE(is_repeated(sums, 501));
}

TEST_F(SumsOfPartTest, AnMd5OfOtherBytesThanWereGivenProvesNothing) {
  const Part changing = part();
  const auto shared = ladder({});
  SumsOfPart sums(changing, shared);
  EXPECT_EQ(next(sums), kCrcAlone);
  bytes_[0] = std::byte{2};
  const Result<bool> accepted = sums.accepted({.md5 = sum_of(ChecksumKind::kMd5, bytes_)});
  ASSERT_FALSE(accepted.has_value());
  EXPECT_EQ(accepted.error().code(), Code::kCorrupt);
  EXPECT_TRUE(learned_.empty());
}

TEST_F(SumsOfPartTest, BytesThatHaveChangedAreNotSentWithASumOfTheirOwn) {
  for (const SumLevel level : {SumLevel::kCrc64Nvme, SumLevel::kMd5}) {
    const Part changing = part();
    bytes_[0] ^= std::byte{3};
    SumsOfPart sums(changing, ladder({.level = level, .known = true, .etags = Etags::kMd5}));
    HttpRequest request;
    static_cast<void>(sums.next());
    sums.supervise(request, nullptr, nullptr);
    ASSERT_TRUE(request.refused) << to_string(level);
    EXPECT_EQ(request.refused->code(), Code::kCorrupt);
  }
}

}  // namespace
}  // namespace headrace
