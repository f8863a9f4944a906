#include "headrace/format/amz_checksum.h"

#include <gtest/gtest.h>

#include <vector>

#include "headrace/format/running_sum.h"

namespace headrace {
namespace {

ChecksumKind kind_of_header(std::string_view name) {
  return kind_of_amz_suffix(amz_checksum_suffix(name));
}

Checksum sum(ChecksumKind kind, std::string_view text) {
  return sum_of(kind, std::as_bytes(std::span(text)));
}

TEST(AmzChecksum, NamesAreReadBack) {
  for (uint8_t i = 0; i < kChecksumKindCount; ++i) {
    const auto kind = static_cast<ChecksumKind>(i);
    const AmzNames names = amz_names(kind);
    if (names.header.empty()) continue;
    EXPECT_EQ(kind_of_header(names.header), kind);
    EXPECT_EQ(kind_of_amz_element(names.element), kind);
  }
  EXPECT_EQ(amz_names(ChecksumKind::kCrc64Nvme).algorithm, "CRC64NVME");
  EXPECT_EQ(amz_names(ChecksumKind::kMd5).header, "");
  EXPECT_EQ(kind_of_header("X-Amz-Checksum-SHA256"), ChecksumKind::kSha256);
  EXPECT_EQ(kind_of_header("x-amz-checksum-type"), ChecksumKind::kNone);
  EXPECT_EQ(kind_of_header("x-amz-checksum-"), ChecksumKind::kNone);
  EXPECT_EQ(kind_of_header("etag"), ChecksumKind::kNone);
  EXPECT_EQ(kind_of_amz_element("ChecksumType"), ChecksumKind::kNone);
}

TEST(AmzChecksum, ASumOfAllBytesIsAChecksum) {
  for (const char* type : {"", "FULL_OBJECT"}) {
    const Result<StoredChecksum> found =
        parse_amz_checksum(ChecksumKind::kCrc32c, "4waSgw==", type);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(std::get<Checksum>(*found), Checksum(ChecksumKind::kCrc32c, 0xE3069283));
    EXPECT_EQ(to_text(*found), "4waSgw==");
  }
}

TEST(AmzChecksum, ASumOfPartsIsSomethingElse) {
  for (const char* type : {"", "COMPOSITE"}) {
    const Result<StoredChecksum> found =
        parse_amz_checksum(ChecksumKind::kCrc32c, "4waSgw==-3", type);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(std::get<CompositeChecksum>(*found),
              CompositeChecksum(Checksum(ChecksumKind::kCrc32c, 0xE3069283), 3));
    EXPECT_EQ(to_text(*found), "4waSgw==-3");
  }
  // By its type alone, as in the answer that lists an object's attributes.
  const Result<StoredChecksum> found =
      parse_amz_checksum(ChecksumKind::kCrc32c, "4waSgw==", "COMPOSITE");
  EXPECT_EQ(std::get<CompositeChecksum>(found.value()).part_count(), 0u);
}

TEST(AmzChecksum, AMalformedOneIsAnErrorAndNotNone) {
  const std::pair<const char*, const char*> cases[] = {
      {"", ""},
      {"4waSgw", ""},
      {"4waSgw==-", ""},
      {"4waSgw==-0", ""},
      {"4waSgw==-03", ""},
      {"4waSgw==-10001", ""},
      {"4waSgw==-x", ""},
      {"4waSgw==-3-3", ""},
      {"4waSgw==-99999999999", ""},
      {"-3", ""},
      {"4waSgw==-3", "FULL_OBJECT"},
      {"4waSgw==", "PARTIAL"},
  };
  for (const auto& [value, type] : cases) {
    EXPECT_EQ(parse_amz_checksum(ChecksumKind::kCrc32c, value, type).error().code(), Code::kCorrupt)
        << value << " " << type;
  }
  EXPECT_FALSE(parse_amz_checksum(ChecksumKind::kNone, "", "").has_value());
}

TEST(AmzChecksum, ACompositeIsComparedWithTheSumsOfTheParts) {
  for (const ChecksumKind kind :
       {ChecksumKind::kCrc32, ChecksumKind::kCrc32c, ChecksumKind::kSha1, ChecksumKind::kSha256}) {
    const std::vector<Checksum> parts = {sum(kind, "one"), sum(kind, "two")};
    const CompositeChecksum composite = CompositeChecksum::of(parts).value();
    EXPECT_EQ(composite.part_count(), 2u);
    EXPECT_TRUE(composite.is_of(parts));
    EXPECT_TRUE(CompositeChecksum(composite.of_sums(), 0).is_of(parts));
    EXPECT_FALSE(composite.is_of(std::vector{parts[1], parts[0]}));
    EXPECT_FALSE(composite.is_of(std::vector{parts[0]}));
    EXPECT_FALSE(composite.is_of({}));
    EXPECT_FALSE(composite.is_of(std::vector{parts[0], Checksum()}));
    EXPECT_NE(composite.of_sums(), sum(kind, "onetwo"));
  }
  EXPECT_FALSE(CompositeChecksum::of({}).has_value());
  EXPECT_FALSE(CompositeChecksum::of(std::vector{Checksum()}).has_value());
  // As hashlib computes it: the SHA-256 of the parts' SHA-256s.
  EXPECT_EQ(to_text(CompositeChecksum::of(std::vector{sum(ChecksumKind::kSha256, "one"),
                                                      sum(ChecksumKind::kSha256, "two")})
                        .value()),
            "EZFMGaKKmMV9EvPM5sMreUR4T0tHgacGwk6x3ChOKFY=-2");
}

TEST(Etag, LosesItsQuotesAndGetsThemBack) {
  for (const char* etag : {"\"abc\"", "\"\"", "W/\"abc\""}) {
    EXPECT_EQ(quoted_etag(unquoted_etag(etag)), etag);
  }
  EXPECT_EQ(unquoted_etag("\"abc\""), "abc");
  EXPECT_EQ(unquoted_etag("abc"), "abc");
  EXPECT_EQ(unquoted_etag("\""), "\"");
  EXPECT_EQ(unquoted_etag(""), "");
}

TEST(Etag, IsAnMd5OnlyInItsForm) {
  const Checksum md5 = sum(ChecksumKind::kMd5, "123456789");
  EXPECT_EQ(md5_of_etag("25f9e794323b453885f5181f1b624d0b"), md5);
  EXPECT_EQ(md5_of_etag("\"25F9E794323B453885F5181F1B624D0B\""), md5);
  for (const char* etag : {"", "abc", "25f9e794323b453885f5181f1b624d0b-2",
                           "25f9e794323b453885f5181f1b624d0", "25f9e794323b453885f5181f1b624d0x"}) {
    EXPECT_FALSE(md5_of_etag(etag).has_value()) << etag;
  }
}

TEST(Etag, OfAMultipartUploadIsTheSumOfTheParts) {
  const std::vector<Checksum> parts = {sum(ChecksumKind::kMd5, "one"),
                                       sum(ChecksumKind::kMd5, "two")};
  const auto composite = composite_md5_of_etag("\"1397b7ee3222e3980d0d20f23a871b02-2\"");
  ASSERT_TRUE(composite.has_value());
  EXPECT_TRUE(composite->is_of(parts));
  for (const char* etag :
       {"25f9e794323b453885f5181f1b624d0b", "-2", "", "25f9e794323b453885f5181f1b624d0b-0"}) {
    EXPECT_FALSE(composite_md5_of_etag(etag).has_value()) << etag;
  }
}

}  // namespace
}  // namespace headrace
