#include "headrace/format/crc64nvme.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace headrace {
namespace {

using Way = Crc64Nvme::Way;

std::vector<std::byte> random_bytes(size_t size_bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Crc64Nvme bit_by_bit(std::span<const std::byte> bytes) {
  uint64_t state = ~uint64_t{0};
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<uint64_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      state = (state >> 1) ^ ((state & 1) ? 0x9A6C9329AC4BC9B5 : 0);
    }
  }
  return Crc64Nvme(~state);
}

TEST(Crc64Nvme, GivesThePublishedSums) {
  // NVM Express NVM Command Set Specification 1.0d, table "64b CRC Test Cases".
  const std::string_view digits = "123456789";
  EXPECT_EQ(Crc64Nvme().extended(std::as_bytes(std::span(digits))).value(), 0xAE8B14860A799888);
  const std::vector<std::byte> zeros(4096), ones(4096, std::byte{0xFF});
  EXPECT_EQ(Crc64Nvme().extended(zeros).value(), 0x6482D367EB22B64E);
  EXPECT_EQ(Crc64Nvme().extended(ones).value(), 0xC0DDBA7302ECA3AC);
  EXPECT_EQ(Crc64Nvme().value(), 0u);
}

TEST(Crc64Nvme, IsTheSameInEveryWayThatTheProcessorHas) {
  const std::vector<std::byte> bytes = random_bytes(5000, 1);
  for (const Way way : {Way::kTables, Way::kMultiply, Way::kMultiplyWide}) {
    if (!Crc64Nvme().extended({}, way)) continue;
    Crc64Nvme expected;  // of the first `size` bytes
    for (size_t size = 0; size <= 1100; ++size) {
      ASSERT_EQ(Crc64Nvme().extended(std::span(bytes).first(size), way), expected)
          << size << " bytes, way " << static_cast<int>(way);
      const uint64_t byte = std::to_integer<uint64_t>(bytes[size]);
      uint64_t state = ~expected.value() ^ byte;
      for (int bit = 0; bit < 8; ++bit) {
        state = (state >> 1) ^ ((state & 1) ? 0x9A6C9329AC4BC9B5 : 0);
      }
      expected = Crc64Nvme(~state);
    }
    // Goes on where it stopped, and does not ask for aligned memory.
    for (const size_t cut : {1u, 7u, 255u, 256u, 257u, 3000u}) {
      const auto first = std::span(bytes).first(cut), rest = std::span(bytes).subspan(cut);
      EXPECT_EQ(*Crc64Nvme().extended(first, way)->extended(rest, way), bit_by_bit(bytes)) << cut;
    }
  }
}

TEST(Crc64Nvme, TablesAreThereOnEveryProcessor) {
  EXPECT_EQ(Crc64Nvme().extended({}, Way::kTables), Crc64Nvme());
}

TEST(Crc64Nvme, JoinsSumsOfPiecesOfEveryLength) {
  std::mt19937 random(2);
  const std::vector<std::byte> bytes = random_bytes(70'000, 3);
  const Crc64Nvme whole = Crc64Nvme().extended(bytes);
  for (int round = 0; round < 200; ++round) {
    const size_t cut = random() % (bytes.size() + 1);
    const Crc64Nvme first = Crc64Nvme().extended(std::span(bytes).first(cut));
    const Crc64Nvme rest = Crc64Nvme().extended(std::span(bytes).subspan(cut));
    EXPECT_EQ(first.joined(rest, bytes.size() - cut), whole) << cut;
  }
  EXPECT_EQ(whole.joined(Crc64Nvme(), 0), whole);
  EXPECT_EQ(Crc64Nvme().joined(whole, bytes.size()), whole);
}

}  // namespace
}  // namespace headrace
