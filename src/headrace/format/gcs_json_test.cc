#include "headrace/format/gcs_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kObject = R"({
  "kind": "storage#object", "id": "b/a \u00e4/1", "name": "a \u00e4", "bucket": "b",
  "generation": "1763702430123456", "metageneration": "2", "contentType": "image/jpeg",
  "contentEncoding": "gzip", "storageClass": "STANDARD", "size": "123456789012",
  "md5Hash": "JfnnlDI7RTiF9RgfG2JNCw==", "crc32c": "4waSgw==", "componentCount": 3,
  "timeCreated": "2026-11-20T01:02:03.456Z", "updated": "1994-11-06T08:49:37.500Z",
  "metadata": {"name": "not this one"}, "acl": [{"size": true}]})";

ObjectInfo expected_object() {
  ObjectInfo info;
  info.name = "a \xC3\xA4";
  info.size_bytes = 123'456'789'012;
  info.generation = "1763702430123456";
  info.checksum = Crc32c(0xE3069283);
  info.content_type = "image/jpeg";
  info.content_encoding = "gzip";
  info.updated = std::chrono::system_clock::time_point(std::chrono::milliseconds(784'111'777'500));
  info.storage_class = "STANDARD";
  info.component_count = 3;
  info.metageneration = 2;
  return info;
}

template <class T>
void expect_corrupt(const Result<T>& result, std::string_view json) {
  ASSERT_FALSE(result.has_value()) << json;
  EXPECT_EQ(result.error().code(), Code::kCorrupt) << json;
}

TEST(GcsObject, IsReadWhole) { EXPECT_EQ(parse_gcs_object(kObject).value(), expected_object()); }

TEST(GcsObject, MayHaveOnlyAName) {
  ObjectInfo info;
  info.name = "n";
  EXPECT_EQ(parse_gcs_object(R"({"name":"n"})").value(), info);
  EXPECT_EQ(
      parse_gcs_object(R"({"name":"n","size":null,"crc32c":"","updated":"0001-01-01T00:00:00Z"})")
          .value(),
      info);
}

TEST(GcsObject, TakesNumbersAsNumbersToo) {
  const ObjectInfo info =
      parse_gcs_object(R"({"name":"n","size":7,"generation":18446744073709551615})").value();
  EXPECT_EQ(info.size_bytes, 7u);
  EXPECT_EQ(info.generation, "18446744073709551615");
}

TEST(GcsObject, IsNothingIfAnyMemberIsWrong) {
  for (const char* json : {R"({})",
                           R"({"name":""})",
                           R"({"name":1})",
                           R"({"name":"n","size":"x"})",
                           R"({"name":"n","size":-1})",
                           R"({"name":"n","size":1.5})",
                           R"({"name":"n","size":"18446744073709551616"})",
                           R"({"name":"n","size":""})",
                           R"({"name":"n","size":true})",
                           R"({"name":"n","generation":"x"})",
                           R"({"name":"n","crc32c":"AAA"})",
                           R"({"name":"n","crc32c":5})",
                           R"({"name":"n","updated":"yesterday"})",
                           R"({"name":"n","componentCount":4294967296})",
                           R"([])",
                           R"("name")",
                           R"(null)",
                           "",
                           "<html>",
                           R"({"error":{"code":503}})"}) {
    expect_corrupt(parse_gcs_object(json), json);
  }
}

TEST(GcsList, HasObjectsPrefixesAndAToken) {
  const std::string json =
      cat(R"({"kind":"storage#objects","nextPageToken":"CgZ==","prefixes":["a/","b/"],"items":[)",
          kObject, R"(,{"name":"n","size":"1"}]})");
  const ColumnPage page = parse_gcs_list(json).value();
  ASSERT_EQ(page.size(), 2u);
  EXPECT_EQ(page.info(0), expected_object());
  EXPECT_EQ(page.info(1).name, "n");
  EXPECT_THAT(page.prefixes, ElementsAre("a/", "b/"));
  EXPECT_EQ(page.next_page_token, "CgZ==");
}

TEST(GcsList, MayBeEmpty) {
  for (const char* json :
       {R"({"kind":"storage#objects"})", R"({})", R"({"items":[],"prefixes":null})"}) {
    const ColumnPage page = parse_gcs_list(json).value();
    EXPECT_TRUE(page.empty());
    EXPECT_TRUE(page.prefixes.empty());
    EXPECT_EQ(page.next_page_token, "");
  }
}

TEST(GcsList, IsNeverShortBecauseItWasCut) {
  const std::string json =
      cat(R"({"nextPageToken":"t","prefixes":["a/"],"items":[)", kObject, "]}");
  for (size_t size = 0; size < json.size(); ++size) {
    expect_corrupt(parse_gcs_list(json.substr(0, size)), json.substr(0, size));
  }
}

TEST(GcsList, IsNothingIfAnyPartIsWrong) {
  for (const char* json :
       {R"({"items":{}})", R"({"items":[1]})", R"({"items":[{}]})", R"({"prefixes":"a"})",
        R"({"prefixes":[null]})", R"({"nextPageToken":5})", R"({"items":[{"name":"a"}]} x)",
        R"({"items":[{"name":"a"},]})", R"([])", R"({"error":{"code":500,"message":"x"}})",
        "{\"items\":[{\"name\":\"\xFF\"}]}"}) {
    expect_corrupt(parse_gcs_list(json), json);
  }
}

TEST(GcsList, IsRefusedIfItHasManyMoreEntriesThanTheServiceTellsAtATime) {
  const auto page = [](std::string_view member, std::string_view entry, size_t count) {
    std::string json = cat("{\"", member, "\":[", entry);
    for (size_t i = 1; i < count; ++i) json += cat(",", entry);
    return cat(json, "]}");
  };
  constexpr size_t kMost = ColumnPage::kMaxEntries;
  EXPECT_EQ(parse_gcs_list(page("items", R"({"name":"a"})", kMost)).value().size(), kMost);
  EXPECT_EQ(parse_gcs_list(page("prefixes", R"("a/")", kMost)).value().prefixes.size(), kMost);
  for (const auto& [member, entry] : {std::pair("items", "0"), std::pair("prefixes", "0")}) {
    EXPECT_THAT(parse_gcs_list(page(member, entry, kMost + 1)).error().message(),
                ::testing::HasSubstr("more than 100000 entries"));
  }
}

TEST(GcsRewrite, IsDoneWithAnObject) {
  const GcsRewrite rewrite =
      parse_gcs_rewrite(
          cat(R"({"kind":"storage#rewriteResponse","done":true,"resource":)", kObject, "}"))
          .value();
  EXPECT_TRUE(rewrite.done);
  EXPECT_EQ(rewrite.token, "");
  EXPECT_EQ(rewrite.object, expected_object());
}

TEST(GcsRewrite, GoesOnWithAToken) {
  const GcsRewrite rewrite =
      parse_gcs_rewrite(R"({"done":false,"rewriteToken":"t","totalBytesRewritten":"1"})").value();
  EXPECT_FALSE(rewrite.done);
  EXPECT_EQ(rewrite.token, "t");
}

TEST(GcsRewrite, IsOneOrTheOther) {
  for (const char* json : {R"({})", R"({"done":true})", R"({"done":false})", R"({"done":"true"})",
                           R"({"done":true,"resource":[]})", R"({"done":true,"resource":{}})"}) {
    expect_corrupt(parse_gcs_rewrite(json), json);
  }
}

TEST(GcsError, HasMessageReasonAndCode) {
  const GcsError error = parse_gcs_error(
      R"({"error":{"code":404,"message":"No such object: b/o",
          "errors":[{"message":"m","domain":"global","reason":"notFound"}]}})");
  EXPECT_EQ(error.code, 404);
  EXPECT_EQ(error.message, "No such object: b/o");
  EXPECT_EQ(error.reason, "notFound");
}

TEST(GcsError, TakesTheFormOfTokenServices) {
  const GcsError error =
      parse_gcs_error(R"({"error":"invalid_grant","error_description":"Bad\nrequest"})");
  EXPECT_EQ(error.code, 0);
  EXPECT_EQ(error.message, "Bad request");
  EXPECT_EQ(error.reason, "invalid_grant");
}

TEST(GcsError, ShowsTheBeginningOfAnyOtherBody) {
  EXPECT_EQ(parse_gcs_error("").message, "");
  EXPECT_EQ(parse_gcs_error(" Not\r\n  Found\x01\xFF ").message, "Not Found");
  EXPECT_EQ(parse_gcs_error("<?xml version='1.0'?><Error>").message,
            "<?xml version='1.0'?><Error>");
  EXPECT_EQ(parse_gcs_error(R"({"error":5})").message, R"({"error":5})");
  EXPECT_EQ(parse_gcs_error(std::string(1'000, 'x')).message.size(), 200u);
}

}  // namespace
}  // namespace headrace
