#include "headrace/format/checksum.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(Checksum, IsReadBackFromBase64AndHexadecimal) {
  const Checksum crc32c(ChecksumKind::kCrc32c, 0xE3069283);
  EXPECT_EQ(to_base64(crc32c), "4waSgw==");
  EXPECT_EQ(to_hex(crc32c), "e3069283");
  for (uint8_t i = 1; i < kChecksumKindCount; ++i) {
    const auto kind = static_cast<ChecksumKind>(i);
    std::array<std::byte, Checksum::kMostBytes> bytes;
    for (size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<std::byte>(251 * (k + i));
    const Checksum sum(kind, bytes);
    EXPECT_EQ(checksum_from_base64(kind, to_base64(sum)).value(), sum) << to_string(kind);
    EXPECT_EQ(checksum_from_hex(kind, to_hex(sum)).value(), sum) << to_string(kind);
  }
  EXPECT_EQ(checksum_from_hex(ChecksumKind::kCrc32c, "E3069283").value(), crc32c);
}

TEST(Checksum, ATextOfAnotherSizeOrAlphabetIsRefused) {
  for (const char* text : {"", "4waSgw", "4waSgw=", "AAAA", "4waSgwAA", "????AA==", "4waSgw==-3"}) {
    EXPECT_EQ(checksum_from_base64(ChecksumKind::kCrc32c, text).error().code(),
              Code::kInvalidArgument)
        << text;
  }
  for (const char* text : {"", "e306928", "e30692833", "e306928g", "0xe30692"}) {
    EXPECT_EQ(checksum_from_hex(ChecksumKind::kCrc32c, text).error().code(), Code::kInvalidArgument)
        << text;
  }
  // As long as the longest sum, and longer.
  EXPECT_FALSE(checksum_from_base64(ChecksumKind::kSha256, std::string(44, 'A')).has_value());
  EXPECT_FALSE(checksum_from_base64(ChecksumKind::kSha256, std::string(4000, 'A')).has_value());
}

}  // namespace
}  // namespace headrace
