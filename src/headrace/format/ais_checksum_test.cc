#include "headrace/format/ais_checksum.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace {

TEST(AisChecksum, KindsHaveTheNamesOfTheService) {
  for (const ChecksumKind kind :
       {ChecksumKind::kXxh64, ChecksumKind::kCrc32c, ChecksumKind::kMd5, ChecksumKind::kSha256}) {
    EXPECT_EQ(ais_checksum_kind(ais_checksum_type(kind)), kind);
  }
  EXPECT_EQ(ais_checksum_kind("xxhash2"), ChecksumKind::kXxh64);
  for (const char* type : {"none", "", "sha512", "XXHASH"}) {
    EXPECT_EQ(ais_checksum_kind(type), ChecksumKind::kNone) << type;
  }
  EXPECT_EQ(ais_checksum_type(ChecksumKind::kCrc64Nvme), "");
}

TEST(AisChecksum, IsOfNoKindUnlessTheValueFitsTheType) {
  EXPECT_EQ(ais_checksum("xxhash", "8cb841db40e6ae83"),
            Checksum(ChecksumKind::kXxh64, uint64_t{0x8CB841DB40E6AE83}));
  EXPECT_EQ(ais_checksum("crc32c", "e3069283"), Checksum(Crc32c(0xE3069283)));
  EXPECT_EQ(ais_checksum("crc32c", "8cb841db40e6ae83"), Checksum());
  EXPECT_EQ(ais_checksum("xxhash", "8cb841db40e6ae8x"), Checksum());
  EXPECT_EQ(ais_checksum("none", ""), Checksum());
}

TEST(AisChecksum, OfAListingIsToldByItsLength) {
  EXPECT_EQ(ais_listed_checksum("e3069283").kind(), ChecksumKind::kCrc32c);
  EXPECT_EQ(ais_listed_checksum("8cb841db40e6ae83").kind(), ChecksumKind::kXxh64);
  EXPECT_EQ(ais_listed_checksum(std::string(64, 'a')).kind(), ChecksumKind::kSha256);
  // An MD5, or a cloud's word for an encrypted object.
  EXPECT_EQ(ais_listed_checksum("25f9e794323b453885f5181f1b624d0b"), Checksum());
  EXPECT_EQ(ais_listed_checksum("25f9e794323b453885f5181f1b624d0b-17"), Checksum());
  EXPECT_EQ(ais_listed_checksum("e306928-"), Checksum());
  EXPECT_EQ(ais_listed_checksum(""), Checksum());
}

TEST(AisGeneration, IsVersionAndChecksum) {
  EXPECT_EQ(ais_generation("3", "e3069283"), "3-e3069283");
  EXPECT_EQ(ais_generation("", "e3069283"), "e3069283");
  EXPECT_EQ(ais_generation("3", ""), "");
  EXPECT_EQ(ais_generation("", ""), "");
}

}  // namespace
}  // namespace headrace
