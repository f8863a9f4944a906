#include "headrace/format/xml_error.h"

#include <gtest/gtest.h>

#include "headrace/format/http_date.h"

namespace headrace {
namespace {

TEST(XmlError, SaysWhereTheBucketIs) {
  const XmlError error = parse_xml_error(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>PermanentRedirect</Code>"
      "<Message>The bucket you are attempting to access must be addressed using the specified "
      "endpoint.</Message><Endpoint>b.s3.eu-west-3.amazonaws.com</Endpoint><Bucket>b</Bucket>"
      "<Region>eu-west-3</Region><RequestId>R</RequestId><HostId>h</HostId></Error>");
  EXPECT_EQ(error.code, "PermanentRedirect");
  EXPECT_EQ(error.endpoint, "b.s3.eu-west-3.amazonaws.com");
  EXPECT_EQ(error.bucket, "b");
  EXPECT_EQ(error.region, "eu-west-3");
  EXPECT_EQ(error.request_id, "R");
  EXPECT_FALSE(error.server_time.has_value());
}

TEST(XmlError, SaysWhatTimeItIsThere) {
  const XmlError error = parse_xml_error(
      "<Error><Code>RequestTimeTooSkewed</Code><RequestTime>20261122T080000Z</RequestTime>"
      "<ServerTime>2026-11-22T09:00:01Z</ServerTime></Error>");
  EXPECT_EQ(error.server_time, parse_rfc3339("2026-11-22T09:00:01Z").value());
  EXPECT_FALSE(
      parse_xml_error("<Error><Code>A</Code><ServerTime>now</ServerTime></Error>").server_time);
}

TEST(XmlError, IsFoundInItsWrapping) {
  const XmlError error = parse_xml_error(
      "<ErrorResponse><Error><Code>ExpiredToken</Code></Error><RequestId>R</RequestId>"
      "</ErrorResponse>");
  EXPECT_EQ(error.code, "ExpiredToken");
  EXPECT_EQ(error.request_id, "R");
}

TEST(XmlError, IsOneLine) {
  const XmlError error = parse_xml_error(cat("<Error><Code>A</Code><Message>two\nlines\x1B[31m",
                                             std::string(500, 'x'), "</Message></Error>"));
  EXPECT_TRUE(error.message.starts_with("two lines[31mxx")) << error.message;
  EXPECT_EQ(error.message.size(), 200u);
}

TEST(XmlError, NothingIsExpandedOrFetched) {
  EXPECT_EQ(parse_xml_error("<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>"
                            "<Error><Code>&x;</Code></Error>")
                .code,
            "");
}

TEST(XmlError, OfAnythingElseHasNoCode) {
  for (const char* body : {"", "{}", "<html><Code>A</Code></html>", "<Error><Code>A</Code>",
                           "<Error/>", "<ErrorResponse/>"}) {
    EXPECT_EQ(parse_xml_error(body).code, "") << body;
  }
}

}  // namespace
}  // namespace headrace
