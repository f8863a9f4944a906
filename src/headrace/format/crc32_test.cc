#include "headrace/format/crc32.h"

#include <string_view>

#include <gtest/gtest.h>

namespace headrace {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Crc32, IsTheSumOfZip) {
  EXPECT_EQ(Crc32().extended(bytes_of("123456789")).value(), 0xCBF43926u);
}

TEST(Crc32, OfNothingIsZero) {
  EXPECT_EQ(Crc32().value(), 0u);
  EXPECT_EQ(Crc32().extended({}), Crc32());
}

TEST(Crc32, GoesOnWhereItStopped) {
  EXPECT_EQ(Crc32().extended(bytes_of("1234")).extended(bytes_of("56789")),
            Crc32().extended(bytes_of("123456789")));
}

TEST(Crc32, JoinsSumsOfPieces) {
  const std::string_view text = "123456789";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const Crc32 first = Crc32().extended(bytes_of(text.substr(0, cut)));
    const Crc32 rest = Crc32().extended(bytes_of(text.substr(cut)));
    EXPECT_EQ(first.joined(rest, text.size() - cut).value(), 0xCBF43926u) << cut;
  }
}

}  // namespace
}  // namespace headrace
