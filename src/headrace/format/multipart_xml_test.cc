#include "headrace/format/multipart_xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(MultipartXml, TheIdOfAnUpload) {
  const Result<std::string> id = parse_upload_id(
      "<?xml version='1.0' encoding='UTF-8'?>\n"
      "<InitiateMultipartUploadResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>\n"
      "  <Bucket>b</Bucket><Key>a&amp;b</Key><UploadId> VXBsb2FkIElE&lt; </UploadId>\n"
      "</InitiateMultipartUploadResult>");
  ASSERT_TRUE(id.has_value()) << id.error().to_string();
  EXPECT_EQ(*id, "VXBsb2FkIElE<");
  EXPECT_EQ(*parse_upload_id("<s3:InitiateMultipartUploadResult xmlns:s3='x'><s3:UploadId>i"
                             "</s3:UploadId></s3:InitiateMultipartUploadResult>"),
            "i");
}

TEST(MultipartXml, WhatCountsIsInsideWhateverTheRootIsCalled) {
  EXPECT_EQ(*parse_upload_id("<InitiateMultipartUpload><Key>a</Key><UploadId>i</UploadId>"
                             "</InitiateMultipartUpload>"),
            "i");
  EXPECT_EQ(*parse_upload_id("<r><UploadId><![CDATA[a&b]]></UploadId></r>"), "a&b");
  EXPECT_EQ(completed_upload("<CompleteMultipartUpload><ETag>\"x-2\"</ETag>"
                             "</CompleteMultipartUpload>")
                ->generation,
            "x-2");
  EXPECT_EQ(parse_uploads("<Uploads><IsTruncated>false</IsTruncated><Upload><Key>a</Key>"
                          "<UploadId>X</UploadId></Upload></Uploads>")
                ->uploads.size(),
            1u);
  // A page of something else is no list without uploads.
  for (const char* page : {"<html><body>Log in</body></html>", "<r/>"}) {
    EXPECT_EQ(completed_upload(page).error().code(), Code::kCorrupt) << page;
    EXPECT_EQ(parse_uploads(page).error().code(), Code::kCorrupt) << page;
  }
}

TEST(MultipartXml, AnIdThatWasToldIsTakenWhateverIsWrongBehindIt) {
  for (const char* rest :
       {"", "</Init", "<Key>a & b</Key></Initiate>", "</Other>", "<\x01>", " text"}) {
    EXPECT_EQ(*parse_upload_id(cat("<Initiate><Bucket>b</Bucket><UploadId>i</UploadId>", rest)),
              "i")
        << rest;
  }
}

TEST(MultipartXml, WhatIsNoUploadIdIsRefused) {
  for (const char* xml :
       {"", "text", "{\"json\": 1}", "<html>", "<Error><Code>A</Code></Error>",
        "<InitiateMultipartUploadResult/>",
        "<InitiateMultipartUploadResult><UploadId></UploadId></InitiateMultipartUploadResult>",
        "<InitiateMultipartUploadResult><UploadId>a", "<r><UploadId>a</Upload",
        "<r><UploadId>a</r>", "<r><Inner><UploadId>a</UploadId></Inner></r>",
        "<r><UploadId><b/>a</UploadId></r>"}) {
    EXPECT_EQ(parse_upload_id(xml).error().code(), Code::kCorrupt) << xml;
  }
}

TEST(MultipartXml, APartIsNamedWithItsQuotesEscaped) {
  const std::vector<SentPart> parts = {{1, "\"abc\""}, {2, "<&>"}};
  EXPECT_EQ(completion_xml(parts),
            "<CompleteMultipartUpload>"
            "<Part><PartNumber>1</PartNumber><ETag>&quot;abc&quot;</ETag></Part>"
            "<Part><PartNumber>2</PartNumber><ETag>&lt;&amp;&gt;</ETag></Part>"
            "</CompleteMultipartUpload>");
}

TEST(MultipartXml, ACompletionMayBeAnErrorBehindAGoodStatus) {
  EXPECT_TRUE(
      completed_upload("<CompleteMultipartUploadResult><ETag>x</ETag>"
                       "</CompleteMultipartUploadResult>"));
  const Result<CompletedUpload> failed =
      completed_upload("<Error><Code>InternalError</Code><Message>again</Message></Error>");
  EXPECT_EQ(failed.error().code(), Code::kUnavailable);
  EXPECT_THAT(failed.error().message(), HasSubstr("InternalError: again"));
  EXPECT_EQ(completed_upload("<Complete").error().code(), Code::kCorrupt);
  EXPECT_EQ(completed_upload("").error().code(), Code::kCorrupt);
}

TEST(MultipartXml, UploadsThatAreUnderWay) {
  const Result<UploadsPage> page = parse_uploads(
      "<ListMultipartUploadsResult><Bucket>b</Bucket>"
      "<Upload><Key>a/1</Key><UploadId>X</UploadId><Initiated>2026-11-21T10:00:00Z</Initiated>"
      "</Upload><Upload><Key>a/2</Key><UploadId>Y</UploadId></Upload>"
      "<IsTruncated>true</IsTruncated><NextKeyMarker>a/2</NextKeyMarker>"
      "<NextUploadIdMarker>Y</NextUploadIdMarker></ListMultipartUploadsResult>");
  ASSERT_TRUE(page.has_value()) << page.error().to_string();
  EXPECT_THAT(page->uploads, ElementsAre(UnfinishedUpload{"a/1", "X", "2026-11-21T10:00:00Z"},
                                         UnfinishedUpload{"a/2", "Y", ""}));
  EXPECT_EQ(page->next_name, "a/2");
  EXPECT_EQ(page->next_upload_id, "Y");
  const Result<UploadsPage> none = parse_uploads(
      "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>"
      "</ListMultipartUploadsResult>");
  ASSERT_TRUE(none.has_value());
  EXPECT_THAT(none->uploads, IsEmpty());
  EXPECT_EQ(none->next_name, "");
}

TEST(MultipartXml, AListThatCannotBeWorkedOffIsRefused) {
  for (const char* xml :
       {"", "<ListBucketResult/>",
        "<ListMultipartUploadsResult><Upload><Key>a</Key></Upload></ListMultipartUploadsResult>",
        "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
        "</ListMultipartUploadsResult>",
        "<ListMultipartUploadsResult><Upload><Key>a</Key><UploadId>X</UploadId>"
        "<Initiated>yesterday</Initiated></Upload></ListMultipartUploadsResult>",
        "<ListMultipartUploadsResult><EncodingType>url</EncodingType><Upload><Key>a%</Key>"
        "<UploadId>X</UploadId></Upload></ListMultipartUploadsResult>",
        "<ListMultipartUploadsResult><EncodingType>base64</EncodingType>"
        "</ListMultipartUploadsResult>"}) {
    EXPECT_EQ(parse_uploads(xml).error().code(), Code::kCorrupt) << xml;
  }
}

TEST(MultipartXml, APartMayBeNamedWithItsChecksum) {
  const SentPart part{1, "\"abc\"", Checksum(ChecksumKind::kCrc32c, 0xE3069283)};
  EXPECT_EQ(completion_xml(std::span(&part, 1)),
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber>"
            "<ETag>&quot;abc&quot;</ETag><ChecksumCRC32C>4waSgw==</ChecksumCRC32C></Part>"
            "</CompleteMultipartUpload>");
}

TEST(MultipartXml, ACompletionSaysWhatTheServerKeeps) {
  const Result<CompletedUpload> answer = completed_upload(
      "<?xml version='1.0'?>\n  \n<CompleteMultipartUploadResult><Location>http://b/k</Location>"
      "<Bucket>b</Bucket><Key>k</Key><ETag>&quot;abc-2&quot;</ETag>"
      "<ChecksumCRC32C>4waSgw==-2</ChecksumCRC32C><ChecksumType>COMPOSITE</ChecksumType>"
      "</CompleteMultipartUploadResult>");
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->generation, "abc-2");
  EXPECT_EQ(std::get<CompositeChecksum>(answer->checksums.at(0)),
            CompositeChecksum(Checksum(ChecksumKind::kCrc32c, 0xE3069283), 2));
  const Result<CompletedUpload> unreadable = completed_upload(
      "<CompleteMultipartUploadResult><ChecksumSHA1>x</ChecksumSHA1>"
      "</CompleteMultipartUploadResult>");
  ASSERT_TRUE(unreadable.has_value());
  EXPECT_TRUE(unreadable->checksums.empty());
}

TEST(MultipartXml, NamesOfUploadsKeepTheirBlanksAndAreDecoded) {
  const Result<UploadsPage> plain = parse_uploads(
      "<ListMultipartUploadsResult><Upload><Key> a+ </Key><UploadId>X</UploadId></Upload>"
      "</ListMultipartUploadsResult>");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->uploads.at(0).name, " a+ ");
  const Result<UploadsPage> encoded = parse_uploads(
      "<ListMultipartUploadsResult><EncodingType>url</EncodingType><Upload><Key>a+%2B%01</Key>"
      "<UploadId>X</UploadId></Upload><IsTruncated>true</IsTruncated>"
      "<NextKeyMarker>a+%2B%01</NextKeyMarker></ListMultipartUploadsResult>");
  ASSERT_TRUE(encoded.has_value()) << encoded.error().to_string();
  EXPECT_EQ(encoded->uploads.at(0).name, "a +\x01");
  EXPECT_EQ(encoded->next_name, "a +\x01");
}

}  // namespace
}  // namespace headrace
