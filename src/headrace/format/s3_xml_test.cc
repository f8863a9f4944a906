#include "headrace/format/s3_xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/format/http_date.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// As S3 sends it.
constexpr std::string_view kPage =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>"
    "<Prefix>a%2B/</Prefix><StartAfter>a</StartAfter>"
    "<NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken>"
    "<KeyCount>3</KeyCount><MaxKeys>3</MaxKeys><Delimiter>/</Delimiter>"
    "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
    "<Contents><Key>a%2B/b+c%20d%C3%A4%00</Key><LastModified>2026-11-21T10:00:00.000Z</"
    "LastModified>"
    "<ETag>&quot;25f9e794323b453885f5181f1b624d0b&quot;</ETag>"
    "<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>"
    "<Size>5368709121</Size><StorageClass>STANDARD</StorageClass></Contents>"
    "<Contents><Key>a%2B/e</Key><LastModified>2026-11-21T10:00:01.500Z</LastModified>"
    "<ETag>\"25f9e794323b453885f5181f1b624d0b-2\"</ETag><Size>0</Size>"
    "<Owner><ID>x</ID><DisplayName>Key</DisplayName></Owner>"
    "<StorageClass>GLACIER</StorageClass></Contents>"
    "<CommonPrefixes><Prefix>a%2B/f/</Prefix></CommonPrefixes></ListBucketResult>";

std::string with(std::string_view from, std::string_view to) {
  std::string page(kPage);
  const size_t at = page.find(from);
  EXPECT_NE(at, page.npos) << from;
  return page.replace(at, from.size(), to);
}

Result<ColumnPage> objects_of(std::string_view xml) {
  const Result<ColumnPage> page = parse_s3_list(xml);
  if (!page) return std::unexpected(page.error());
  return *page;
}

void expect_corrupt(std::string_view xml, std::string_view why) {
  const Result<ColumnPage> page = parse_s3_list(xml);
  ASSERT_FALSE(page.has_value()) << xml;
  EXPECT_EQ(page.error().code(), Code::kCorrupt);
  EXPECT_THAT(page.error().message(), HasSubstr(why));
}

TEST(S3Listing, APageHasObjectsPrefixesAndAToken) {
  const Result<ColumnPage> page = objects_of(kPage);
  ASSERT_TRUE(page.has_value()) << page.error().to_string();
  ASSERT_EQ(page->size(), 2u);
  const ObjectInfo& first = page->info(0);
  EXPECT_EQ(first.name, std::string("a+/b c d\xC3\xA4\0", 11));
  EXPECT_EQ(first.size_bytes, 5368709121u);
  EXPECT_EQ(first.generation, "25f9e794323b453885f5181f1b624d0b");
  EXPECT_EQ(first.updated, parse_rfc3339("2026-11-21T10:00:00Z").value());
  EXPECT_EQ(first.storage_class, "STANDARD");
  EXPECT_TRUE(first.checksum.empty());
  EXPECT_EQ(page->info(1).name, "a+/e");
  EXPECT_EQ(page->info(1).generation, "25f9e794323b453885f5181f1b624d0b-2");
  EXPECT_EQ(page->info(1).storage_class, "GLACIER");
  EXPECT_THAT(page->prefixes, ElementsAre("a+/f/"));
  EXPECT_EQ(page->next_page_token, "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=");
}

TEST(S3Listing, NamesAreTakenAsTheyAreWhereTheServerDoesNotEncodeThem) {
  const auto name_of = [](std::string_view key) {
    const Result<ColumnPage> page =
        objects_of(cat("<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>", key,
                       "</Key><Size>1</Size></Contents></ListBucketResult>"));
    EXPECT_TRUE(page.has_value()) << key;
    return page ? page->info(0).name : "";
  };
  EXPECT_EQ(name_of("a+b%20c"), "a+b%20c");
  EXPECT_EQ(name_of("a&amp;b&#13;&lt;"), "a&b\r<");
  EXPECT_EQ(name_of(" a "), " a ");
  EXPECT_EQ(name_of(" "), " ");
  EXPECT_EQ(name_of("<![CDATA[a<b]]>"), "a<b");
  EXPECT_EQ(name_of("//a/./../b"), "//a/./../b");
}

TEST(S3Listing, AnyTextOfAPageMayComeInPieces) {
  const std::string name(100, 'n'), etag(100, 'e'), prefix(100, 'p'), token(100, 't');
  const auto in_pieces = [](std::string_view text) {
    return cat("<!-- -->", text.substr(0, 1), "<!-- --><![CDATA[", text.substr(1), "]]>");
  };
  const Result<ColumnPage> page = objects_of(cat(
      "<ListBucketResult><IsTruncated>", in_pieces("true"), "</IsTruncated><Contents><Key>",
      in_pieces(name), "</Key><Size>", in_pieces("1234"), "</Size><ETag>", in_pieces(etag),
      "</ETag><LastModified>", in_pieces("2026-11-21T10:00:00Z"), "</LastModified><StorageClass>",
      in_pieces("STANDARD"), "</StorageClass></Contents><CommonPrefixes><Prefix>",
      in_pieces(prefix), "</Prefix></CommonPrefixes><NextContinuationToken>", in_pieces(token),
      "</NextContinuationToken><KeyCount>", in_pieces("2"), "</KeyCount></ListBucketResult>"));
  ASSERT_TRUE(page.has_value()) << page.error().to_string();
  EXPECT_EQ(page->info(0).name, name);
  EXPECT_EQ(page->info(0).size_bytes, 1234u);
  EXPECT_EQ(page->info(0).generation, etag);
  EXPECT_EQ(page->info(0).updated, parse_rfc3339("2026-11-21T10:00:00Z").value());
  EXPECT_EQ(page->info(0).storage_class, "STANDARD");
  EXPECT_THAT(page->prefixes, ElementsAre(prefix));
  EXPECT_EQ(page->next_page_token, token);
}

TEST(S3Listing, HowAPageIsWrittenDoesNotMatter) {
  const Result<ColumnPage> plain = objects_of(kPage);
  const Result<ColumnPage> other = objects_of(
      "\xEF\xBB\xBF<?xml version='1.0'?>\r\n<!-- <Key>x</Key> --><s:ListBucketResult "
      "xmlns:s='x'>\r\n"
      "<s:CommonPrefixes> <s:Prefix>a%2B&#x2F;f/</s:Prefix>\n<Other/></s:CommonPrefixes>"
      "<s:Contents a=\"<b>\">text<s:Size>536870912&#49;</s:Size "
      "><s:StorageClass><![CDATA[STANDARD]]>"
      " </s:StorageClass><Owner><Key>x</Key><Size>x</Size></Owner><?p <ETag>?>"
      "<s:ETag\t>\"25f9e794323b453885f5181f1b624d0b&#34;</s:ETag>"
      "<s:Key>a%2B/b+c%20d%C3%A4%00</s:Key><s:LastModified>2026-11-21t10:00:00z</s:LastModified>"
      "</s:Contents>\n<s:Contents><s:StorageClass>GLACIER</s:StorageClass><s:Size>0</s:Size>"
      "<s:ETag>&quot;25f9e794323b453885f5181f1b624d0b-2&quot;</s:ETag>"
      "<s:LastModified>2026-11-21T11:00:01.5+01:00</s:LastModified><s:Key>a+/e</s:Key></s:Contents>"
      "<s:EncodingType><![CDATA[url]]></s:EncodingType><s:IsTruncated>true</s:IsTruncated>"
      "<s:NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=<!-- -->"
      "</s:NextContinuationToken></s:ListBucketResult>\n");
  ASSERT_TRUE(other.has_value()) << other.error().to_string();
  EXPECT_EQ(other->next_page_token, plain->next_page_token);
  EXPECT_EQ(other->prefixes, plain->prefixes);
  ASSERT_EQ(other->size(), 2u);
  EXPECT_TRUE(other->info(0) == plain->info(0));
  EXPECT_EQ(other->info(1).name, "a /e");
  EXPECT_EQ(other->info(1).generation, plain->info(1).generation);
  EXPECT_EQ(other->info(1).updated, plain->info(1).updated);
}

TEST(S3Listing, ANameInCdataMayHaveAnAmpersand) {
  const Result<ColumnPage> page = objects_of(
      "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key><![CDATA[a & b&c]]></Key>"
      "<Size>1</Size></Contents></ListBucketResult>");
  ASSERT_TRUE(page.has_value()) << page.error().to_string();
  EXPECT_EQ(page->info(0).name, "a & b&c");
}

TEST(S3Listing, ByAnotherNameItIsOneIfItSaysWhetherItGoesOn) {
  const Result<ColumnPage> page = objects_of(
      "<ListObjectsV2Result><IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>1</Size>"
      "</Contents></ListObjectsV2Result>");
  ASSERT_TRUE(page.has_value()) << page.error().to_string();
  EXPECT_EQ(page->info(0).name, "a");
  for (const char* other : {"<html><body>Log in</body></html>", "<Error><Code>A</Code></Error>"}) {
    EXPECT_EQ(objects_of(other).error().code(), Code::kCorrupt) << other;
  }
}

TEST(S3Listing, AnErrorIsNone) {
  EXPECT_EQ(
      objects_of("<Error><Code>A</Code><IsTruncated>false</IsTruncated></Error>").error().code(),
      Code::kCorrupt);
}

TEST(S3Listing, AReferenceInCdataIsText) {
  const Result<ColumnPage> page = objects_of(
      "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>1</Size>"
      "<ETag><![CDATA[&quot;e&quot;]]></ETag></Contents></ListBucketResult>");
  ASSERT_TRUE(page.has_value());
  EXPECT_EQ(page->info(0).generation, "&quot;e&quot;");
}

TEST(S3Listing, WhetherNamesAreEncodedMayBeSaidBehindThem) {
  const Result<ColumnPage> page = objects_of(
      "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a+b</Key><Size>1</Size>"
      "</Contents><EncodingType>url</EncodingType></ListBucketResult>");
  ASSERT_TRUE(page.has_value());
  EXPECT_EQ(page->info(0).name, "a b");
  EXPECT_EQ(page->info(0).generation, "");
}

TEST(S3Listing, AnEmptyPageIsAPage) {
  const Result<ColumnPage> page = objects_of(
      "<ListBucketResult><Name>b</Name><Prefix/><KeyCount>0</KeyCount>"
      "<IsTruncated>false</IsTruncated></ListBucketResult>");
  ASSERT_TRUE(page.has_value());
  EXPECT_THAT(page->objects(), IsEmpty());
  EXPECT_EQ(page->next_page_token, "");
}

TEST(S3Listing, NoBeginningOfAPageIsAPage) {
  for (size_t size = 0; size < kPage.size(); ++size) {
    ASSERT_FALSE(parse_s3_list(kPage.substr(0, size)).has_value()) << size;
  }
}

TEST(S3Listing, APageThatContradictsItselfIsRefused) {
  expect_corrupt(with("<IsTruncated>true</IsTruncated>", ""), "whether it is truncated");
  expect_corrupt(with(">true<", ">yes<"), "whether it is truncated");
  expect_corrupt(with("<NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=",
                      "<NextContinuationToken>"),
                 "without a NextContinuationToken");
  expect_corrupt(with(">true<", ">false<"), "complete listing with a NextContinuationToken");
  expect_corrupt(with("<KeyCount>3<", "<KeyCount>4<"), "KeyCount of 4");
  expect_corrupt(with("<KeyCount>3<", "<KeyCount>x<"), "KeyCount of x");
  expect_corrupt(with("<IsTruncated>", "<IsTruncated>false</IsTruncated><IsTruncated>"),
                 "two 'IsTruncated'");
  expect_corrupt(with("<Size>0<", "<Size>0</Size><Size>1<"), "two 'Size'");
  // Ceph does not count prefixes.
  EXPECT_TRUE(parse_s3_list(with("<KeyCount>3<", "<KeyCount>2<")).has_value());
}

TEST(S3Listing, AMalformedObjectIsRefused) {
  expect_corrupt(with("<Key>a%2B/e</Key>", ""), "'Key'");
  expect_corrupt(with("<Key>a%2B/e</Key>", "<Key></Key>"), "'Key'");
  expect_corrupt(with("<Key>a%2B/e<", "<Key>a%2/e<"), "'Key'");
  expect_corrupt(with("<Key>a%2B/e<", "<Key>a%2<"), "'Key'");
  expect_corrupt(with("<Key>a%2B/e<", "<Key>a<b/>e<"), "'Key'");
  expect_corrupt(with("<Key>a%2B/e<", "<Key>a<b/>e<"), "'Key'");
  expect_corrupt(with("<Key>a%2B/e<", "<Key>a&#0;e<"), "no XML");
  expect_corrupt(with("<Key>a%2B/e<", "<Key>a&e;<"), "no XML");
  expect_corrupt(with("<Size>0</Size>", ""), "'Size'");
  expect_corrupt(with("<Size>0<", "<Size>-1<"), "'Size'");
  expect_corrupt(with("<Size>0<", "<Size>18446744073709551616<"), "'Size'");
  expect_corrupt(with("10:00:01.500Z", "25:00:00Z"), "'LastModified'");
  expect_corrupt(with("<EncodingType>url<", "<EncodingType>base64<"), "EncodingType");
  expect_corrupt(with("<Prefix>a%2B/f/<", "<Prefix><"), "'Prefix'");
}

TEST(S3Listing, ManyMoreEntriesThanServicesTellAtATimeAreRefused) {
  const auto page = [](size_t count, std::string_view entry) {
    std::string xml = "<ListBucketResult><IsTruncated>false</IsTruncated>";
    for (size_t i = 0; i < count; ++i) xml += entry;
    return cat(xml, "</ListBucketResult>");
  };
  constexpr size_t kMost = ColumnPage::kMaxEntries;
  constexpr std::string_view kObject = "<Contents><Key>a</Key><Size>1</Size></Contents>";
  constexpr std::string_view kPrefix = "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>";
  EXPECT_EQ(parse_s3_list(page(kMost, kObject)).value().size(), kMost);
  EXPECT_EQ(parse_s3_list(page(kMost, kPrefix)).value().prefixes.size(), kMost);
  EXPECT_THAT(parse_s3_list(page(kMost + 1, kObject)).error().message(),
              HasSubstr("more than 100000 entries"));
  EXPECT_THAT(parse_s3_list(page(kMost + 1, kPrefix)).error().message(),
              HasSubstr("more than 100000 entries"));
}

TEST(S3Listing, AnotherDocumentIsRefused) {
  for (const char* xml : {"", "{}", "<html></html>", "<ListBucketResult/><ListBucketResult/>",
                          "<Error><Code>InternalError</Code></Error>"}) {
    EXPECT_EQ(parse_s3_list(xml).error().code(), Code::kCorrupt) << xml;
  }
}

TEST(S3Copy, HasTheGenerationAndTheChecksum) {
  const Result<CopiedObject> copied = parse_copied(
      "<CopyObjectResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
      "<LastModified>2026-11-21T10:00:00.000Z</LastModified><ETag>&quot;abc&quot;</ETag>"
      "<ChecksumType>FULL_OBJECT</ChecksumType><ChecksumCRC32C>4waSgw==</ChecksumCRC32C>"
      "</CopyObjectResult>");
  ASSERT_TRUE(copied.has_value()) << copied.error().to_string();
  EXPECT_EQ(copied->generation, "abc");
  EXPECT_EQ(std::get<Checksum>(copied->checksums.at(0)),
            Checksum(ChecksumKind::kCrc32c, 0xE3069283));
  EXPECT_EQ(parse_copied("<CopyPartResult><ETag>x</ETag></CopyPartResult>")->generation, "x");
  EXPECT_EQ(parse_copied("<CopyObject><ETag>x</ETag></CopyObject>")->generation, "x");
}

TEST(S3Copy, AMalformedSumIsNone) {
  const Result<CopiedObject> copied = parse_copied(
      "<CopyObjectResult><ETag>a</ETag><ChecksumCRC32>x</ChecksumCRC32></CopyObjectResult>");
  ASSERT_TRUE(copied.has_value()) << copied.error().to_string();
  EXPECT_THAT(copied->checksums, testing::IsEmpty());
}

TEST(S3Copy, MayEndInAnErrorBehindAGoodStatus) {
  const XmlError error = *parse_late_xml_error(
      "<?xml version='1.0'?>\n   \n<!-- <x> --><Error><Code>SlowDown</Code><Message>later</Message>"
      "<RequestId>R</RequestId></Error>");
  EXPECT_EQ(error.code, "SlowDown");
  EXPECT_EQ(error.request_id, "R");
  const auto code = [](const char* xml) { return parse_late_xml_error(xml)->code; };
  EXPECT_EQ(code("<s3:Error xmlns:s3='x'><s3:Code>A</s3:Code></s3:Error>"), "A");
  EXPECT_EQ(code("<ErrorResponse><Error><Code>A</Code></Error></ErrorResponse>"), "A");
  for (const char* xml : {"<Error", "<Error/>", "<Error><Code>A</Code></Error>x",
                          "<Error><Message>m</Message></Error>", "<ErrorResponse/>"}) {
    EXPECT_EQ(code(xml), "") << xml;
  }
  for (const char* xml :
       {"", "Error", "<", "<!--", "<?", "<!", "<x><Error><Code>A</Code></Error></x>",
        "<DeleteResult><Error><Code>A</Code></Error></DeleteResult>",
        "<Errors><Code>A</Code></Errors>"}) {
    EXPECT_FALSE(parse_late_xml_error(xml)) << xml;
  }
}

TEST(S3Copy, WhatIsNeitherIsRefused) {
  for (const char* xml :
       {"", "<html/>", "<Error/>", "<CopyObjectResult/>", "<CopyObjectResult><ETag>a</ETag>"}) {
    EXPECT_EQ(parse_copied(xml).error().code(), Code::kCorrupt) << xml;
  }
}

}  // namespace
}  // namespace headrace
