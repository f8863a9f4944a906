#include "headrace/format/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace headrace {
namespace {

Crc32c sum_of(std::string_view text) { return Crc32c().extended(std::as_bytes(std::span(text))); }

std::vector<std::byte> random_bytes(size_t size_bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(Crc32c, GivesThePublishedSums) {
  EXPECT_EQ(sum_of("123456789").value(), 0xE3069283u);
  EXPECT_EQ(sum_of("").value(), 0u);
  // RFC 3720, appendix B.4.
  EXPECT_EQ(sum_of(std::string(32, '\0')).value(), 0x8A9136AAu);
  EXPECT_EQ(sum_of(std::string(32, '\xFF')).value(), 0x62A8AB43u);
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising += static_cast<char>(i);
    falling += static_cast<char>(31 - i);
  }
  EXPECT_EQ(sum_of(rising).value(), 0x46DD794Eu);
  EXPECT_EQ(sum_of(falling).value(), 0x113FDB5Cu);
}

TEST(Crc32c, IsTheSameInPieces) {
  const std::vector<std::byte> bytes = random_bytes(10'000, 1);
  const Crc32c whole = Crc32c().extended(bytes);
  for (const size_t cut : {0u, 1u, 7u, 8u, 63u, 64u, 4096u, 9'999u, 10'000u}) {
    const auto first = std::span(bytes).first(cut), rest = std::span(bytes).subspan(cut);
    EXPECT_EQ(Crc32c().extended(first).extended(rest), whole) << cut;
  }
}

TEST(Crc32c, JoinsSumsOfPiecesOfEveryLength) {
  std::mt19937 random(2);
  const std::vector<std::byte> bytes = random_bytes(70'000, 3);
  const Crc32c whole = Crc32c().extended(bytes);
  for (int round = 0; round < 200; ++round) {
    const size_t cut = random() % (bytes.size() + 1);
    const Crc32c first = Crc32c().extended(std::span(bytes).first(cut));
    const Crc32c rest = Crc32c().extended(std::span(bytes).subspan(cut));
    EXPECT_EQ(first.joined(rest, bytes.size() - cut), whole) << cut;
  }
}

TEST(Crc32c, WithoutItsLastPieceIsTheSumOfTheFirst) {
  const std::vector<std::byte> bytes = random_bytes(10'000, 4);
  const Crc32c whole = Crc32c().extended(bytes);
  for (const size_t cut : {0u, 1u, 7u, 4096u, 9'999u, 10'000u}) {
    const Crc32c first = Crc32c().extended(std::span(bytes).first(cut));
    const Crc32c rest = Crc32c().extended(std::span(bytes).subspan(cut));
    EXPECT_EQ(whole.without_last(rest, bytes.size() - cut), first) << cut;
  }
  for (const uint64_t size_bytes :
       {uint64_t{1} << 31, (uint64_t{1} << 31) - 1, uint64_t{1} << 40}) {
    EXPECT_EQ(whole.joined(sum_of("abc"), size_bytes).without_last(sum_of("abc"), size_bytes),
              whole)
        << size_bytes;
  }
}

TEST(Crc32c, JoinsAcrossLengthsThatNoMemoryHolds) {
  // The sum of 2^40 and of 2^63 zero bytes, built by doubling, agree with a single step.
  Crc32c zeros = sum_of(std::string(1, '\0'));
  uint64_t size_bytes = 1;
  for (int k = 0; k < 63; ++k) {
    zeros = zeros.joined(zeros, size_bytes);
    size_bytes *= 2;
  }
  const Crc32c start = sum_of("headrace");
  const Crc32c at_once = start.joined(zeros, size_bytes);
  Crc32c piece = sum_of(std::string(1, '\0'));
  Crc32c stepwise = start.joined(piece, 1);  // one, then 1 + 2 + 4 + ... behind it
  for (int k = 0; k < 63; ++k) {
    stepwise = stepwise.joined(piece, uint64_t{1} << k);
    piece = piece.joined(piece, uint64_t{1} << k);
  }
  EXPECT_EQ(at_once, stepwise);
}

TEST(Crc32c, JoiningNothingChangesNothing) {
  const Crc32c sum = sum_of("abc");
  EXPECT_EQ(sum.joined(Crc32c(), 0), sum);
  EXPECT_EQ(Crc32c().joined(sum, 3), sum);
}

TEST(Crc32c, ReadsAndWritesTheSpellingOfTheService) {
  EXPECT_EQ(Crc32c(0xE3069283).to_base64(), "4waSgw==");
  EXPECT_EQ(Crc32c().to_base64(), "AAAAAA==");
  EXPECT_EQ(Crc32c::from_base64("4waSgw==").value(), Crc32c(0xE3069283));
}

TEST(Crc32c, RefusesASumThatHasNotFourBytes) {
  for (const char* text :
       {"", "AAAA", "AAAAAAA=", "AAAAAA", "AAAAAB==", "????AA==", "AAAAAA==AAAA"}) {
    const Result<Crc32c> sum = Crc32c::from_base64(text);
    ASSERT_FALSE(sum.has_value()) << text;
    EXPECT_EQ(sum.error().code(), Code::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace headrace
