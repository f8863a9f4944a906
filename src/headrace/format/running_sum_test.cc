#include "headrace/format/running_sum.h"

#include <gtest/gtest.h>

#include <string_view>
#include <utility>

namespace headrace {
namespace {

constexpr std::string_view kText = "123456789";

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

struct Known {
  ChecksumKind kind;
  const char* hex;
};

constexpr Known kKnown[] = {
    {ChecksumKind::kCrc32, "cbf43926"},
    {ChecksumKind::kCrc32c, "e3069283"},
    {ChecksumKind::kCrc64Nvme, "ae8b14860a799888"},
    {ChecksumKind::kSha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"},
    {ChecksumKind::kSha256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"},
    {ChecksumKind::kMd5, "25f9e794323b453885f5181f1b624d0b"},
    {ChecksumKind::kXxh64, "8cb841db40e6ae83"},
};

TEST(RunningSum, OfEveryKindIsThatOfTheWholeHoweverItIsCut) {
  for (const Known& known : kKnown) {
    ASSERT_TRUE(RunningSum::can_sum(known.kind)) << to_string(known.kind);
    EXPECT_EQ(to_hex(sum_of(known.kind, bytes_of(kText))), known.hex);
    for (size_t cut = 0; cut <= kText.size(); ++cut) {
      RunningSum sum(known.kind);
      EXPECT_EQ(sum.kind(), known.kind);
      sum.extend(bytes_of(kText.substr(0, cut)));
      sum.extend(bytes_of(kText.substr(cut)));
      EXPECT_EQ(to_hex(sum.value()), known.hex) << to_string(known.kind) << ", " << cut;
    }
  }
}

TEST(RunningSum, GoesOnAfterItsValueWasAskedFor) {
  for (const Known& known : kKnown) {
    RunningSum sum(known.kind);
    sum.extend(bytes_of("1234"));
    EXPECT_EQ(sum.value(), sum_of(known.kind, bytes_of("1234")));
    sum.extend(bytes_of("56789"));
    EXPECT_EQ(to_hex(sum.value()), known.hex) << to_string(known.kind);
  }
}

TEST(RunningSum, JoinsTheSumsOfPiecesWhereTheKindCan) {
  for (const Known& known : kKnown) {
    RunningSum first(known.kind), rest(known.kind);
    first.extend(bytes_of("1234"));
    rest.extend(bytes_of("56789"));
    const Checksum whole = first.joined(rest, 5).value();
    EXPECT_EQ(whole, joined(first.value(), rest.value(), 5));
    if (can_join(known.kind)) {
      EXPECT_EQ(to_hex(whole), known.hex) << to_string(known.kind);
    } else {
      EXPECT_EQ(whole.kind(), ChecksumKind::kNone) << to_string(known.kind);
    }
  }
}

TEST(RunningSum, TheSumOfAPieceComesOffAgainAtEitherEnd) {
  for (const ChecksumKind kind :
       {ChecksumKind::kCrc32, ChecksumKind::kCrc32c, ChecksumKind::kCrc64Nvme}) {
    const Checksum first = sum_of(kind, bytes_of("1234")), rest = sum_of(kind, bytes_of("56789"));
    const Checksum whole = joined(first, rest, 5);
    EXPECT_EQ(without_last(whole, rest, 5), first) << to_string(kind);
    EXPECT_EQ(joined(first, whole, 5), rest) << to_string(kind);
    for (const uint64_t size_bytes :
         {uint64_t{1} << 31, (uint64_t{1} << 32) - 1, uint64_t{1} << 40, UINT64_MAX}) {
      EXPECT_EQ(without_last(joined(first, rest, size_bytes), rest, size_bytes), first)
          << to_string(kind) << ", " << size_bytes;
    }
  }
  const Checksum digest = sum_of(ChecksumKind::kSha1, bytes_of("1"));
  EXPECT_EQ(without_last(digest, digest, 1).kind(), ChecksumKind::kNone);
}

TEST(RunningSum, SumsOfDifferentKindsAreNotJoined) {
  EXPECT_EQ(RunningSum(ChecksumKind::kCrc32).joined(RunningSum(ChecksumKind::kCrc32c), 1).kind(),
            ChecksumKind::kNone);
  EXPECT_EQ(joined(Checksum(ChecksumKind::kCrc32, uint64_t{1}),
                   Checksum(ChecksumKind::kCrc32c, uint64_t{1}), 1),
            Checksum());
}

TEST(RunningSum, OfNoKindIsNone) {
  EXPECT_FALSE(RunningSum::can_sum(ChecksumKind::kNone));
  RunningSum sum(ChecksumKind::kNone);
  sum.extend(bytes_of(kText));
  EXPECT_EQ(sum.kind(), ChecksumKind::kNone);
  EXPECT_EQ(sum.value(), Checksum());
}

TEST(RunningSum, MovesWithWhatItHasSummed) {
  for (const Known& known : kKnown) {
    RunningSum sum(known.kind);
    sum.extend(bytes_of("1234"));
    RunningSum moved = std::move(sum);
    moved.extend(bytes_of("56789"));
    EXPECT_EQ(to_hex(moved.value()), known.hex) << to_string(known.kind);
  }
}

}  // namespace
}  // namespace headrace
