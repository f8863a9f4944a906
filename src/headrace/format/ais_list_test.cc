#include "headrace/format/ais_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "headrace/format/ais_test_support.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_literals;

TEST(AisListBody, SendsTheSizeOfAPageAsANumberAndTheFlagsAsAText) {
  EXPECT_EQ(ais_list_body({.prefix = "a\"b/",
                           .page_token = "u-1 x y",
                           .props = "name,size",
                           .page_size = 100,
                           .flags = kAisListNotBelow}),
            R"({"action":"list","value":{"prefix":"a\"b/","props":"name,size","pagesize":100,)"
            R"("uuid":"u-1","continuation_token":"x y","flags":"2048","start_after":""}})");
  EXPECT_THAT(ais_list_body({.start_after = "n"}),
              HasSubstr(R"("props":"name,size,version,checksum","pagesize":0,"uuid":"",)"
                        R"("continuation_token":"","flags":"0","start_after":"n")"));
}

TEST(AisPageToken, EndsAtTheFirstBlankOfTheText) {
  const auto expect = [](std::string_view text, std::string_view uuid,
                         std::string_view continuation) {
    EXPECT_EQ(split_ais_page_token(text).uuid, uuid) << text;
    EXPECT_EQ(split_ais_page_token(text).continuation, continuation) << text;
  };
  expect("", "", "");
  expect("u a b", "u", "a b");
  expect(" a", "", "a");
  expect("a", "", "a");
}

// What 3.23 and 5.0 send, with what they leave out where it is empty.
constexpr std::string_view kPage = R"({
  "uuid":"vM2TYg", "continuation_token":"d e", "flags":0, "entries":[
    {"name":"a","checksum":"8cb841db40e6ae83","version":"3","size":"1024","flags":64},
    {"name":"empty","checksum":"ef46db3751d8e999","version":"1","flags":64},
    {"name":"d e","checksum":"e3069283","size":"12345678901","atime":"x","copies":1,
     "location":"t[x]:/mp1","custom-md":"map[]","flags":64}]})";

TEST(AisList, HasNamesSizesGenerationsAndChecksums) {
  const Result<ColumnPage> page = parse_ais_list(kPage);
  ASSERT_TRUE(page.has_value()) << page.error().message();
  EXPECT_EQ(page->next_page_token, "vM2TYg d e");
  ASSERT_EQ(page->size(), 3u);
  EXPECT_EQ(page->info(0), (ObjectInfo{.name = "a",
                                       .size_bytes = 1024,
                                       .generation = "3-8cb841db40e6ae83",
                                       .checksum = ais_listed_checksum("8cb841db40e6ae83")}));
  EXPECT_EQ(page->info(1).size_bytes, 0u);
  EXPECT_EQ(page->info(2), (ObjectInfo{.name = "d e",
                                       .size_bytes = 12345678901,
                                       .generation = "e3069283",
                                       .checksum = Crc32c(0xE3069283)}));
}

TEST(AisList, WhatACloudAloneHasComesWithAnotherChecksum) {
  const std::string_view json = R"({"entries":[
    {"name":"cold","checksum":"8cb841db40e6ae838cb841db40e6ae83","version":"x","size":"7"},
    {"name":"kept","checksum":"8cb841db40e6ae83","size":"7","flags":64}]})";
  const Result<ColumnPage> page = parse_ais_list(json, AisRows::kCloudObjects);
  ASSERT_TRUE(page.has_value()) << page.error().message();
  EXPECT_EQ(page->info(0), (ObjectInfo{.name = "cold", .size_bytes = 7}));
  EXPECT_EQ(page->info(1).generation, "8cb841db40e6ae83");
}

TEST(AisList, OfOneObjectIsTheSameInBothForms) {
  const std::vector<AisTestEntry> entries = {
      {.name = "a", .size_bytes = 1, .flags = 64},
      {.name = "dir/\xC3\xA9 \"\n", .size_bytes = INT64_MAX, .version = "12", .flags = 64},
      {.name = std::string(300, 'n'), .checksum = "8cb841db40e6ae83", .version = "2"}};
  const Result<ColumnPage> json = parse_ais_list(ais_json_page("u", "t", entries));
  const Result<ColumnPage> packed = parse_ais_list_msgpack(ais_msgpack_page("u", "t", entries));
  ASSERT_TRUE(json.has_value()) << json.error().message();
  ASSERT_TRUE(packed.has_value()) << packed.error().message();
  EXPECT_EQ(json->objects(), packed->objects());
  EXPECT_EQ(json->next_page_token, "u t");
  EXPECT_EQ(packed->next_page_token, "u t");
  EXPECT_EQ(packed->size(), 3u);
}

// JSON cannot carry them.
TEST(AisList, NamesOfAnyBytesComeInMessagePack) {
  const Result<ColumnPage> page =
      parse_ais_list_msgpack(ais_msgpack_page("", "", {{.name = "\xFF\0z"s}}));
  ASSERT_TRUE(page.has_value());
  EXPECT_EQ(page->name(0), "\xFF\0z"s);
}

TEST(AisList, AnEmptyPageHasNoEntries) {
  for (const char* json :
       {R"({"uuid":"u","continuation_token":"","entries":null,"flags":0})", R"({"entries":[]})"}) {
    const Result<ColumnPage> page = parse_ais_list(json);
    ASSERT_TRUE(page.has_value()) << page.error().message();
    EXPECT_TRUE(page->empty());
    EXPECT_EQ(page->next_page_token, "");
  }
  const Result<ColumnPage> packed = parse_ais_list_msgpack(
      "\x81\xA7"
      "Entries\xC0");
  ASSERT_TRUE(packed.has_value());
  EXPECT_TRUE(packed->empty());
}

TEST(AisList, DirectoriesArePrefixesWithOneSlash) {
  const std::vector<AisTestEntry> entries = {
      {.name = "dir", .flags = 256}, {.name = "new/", .flags = 256}, {.name = "object"}};
  for (const Result<ColumnPage>& page :
       {parse_ais_list(ais_json_page("", "", entries)),
        parse_ais_list_msgpack(ais_msgpack_page("", "", entries))}) {
    ASSERT_TRUE(page.has_value());
    EXPECT_THAT(page->prefixes, ElementsAre("dir/", "new/"));
    EXPECT_EQ(page->size(), 1u);
  }
}

TEST(AisList, MembersAreTakenOnlyWhereTheyAreWanted) {
  // As 3.23 (704) and 5.0 (192) mark them; the shard itself is listed, too.
  const std::string json = ais_json_page("", "",
                                         {{.name = "s.tar", .size_bytes = 10240, .flags = 64 | 512},
                                          {.name = "s.tar/a.jpg", .size_bytes = 5, .flags = 704},
                                          {.name = "s.tar/b.jpg", .size_bytes = 6, .flags = 192}});
  const Result<ColumnPage> objects = parse_ais_list(json);
  const Result<ColumnPage> members = parse_ais_list(json, AisRows::kMembers);
  ASSERT_TRUE(objects && members);
  ASSERT_EQ(objects->size(), 1u);
  EXPECT_EQ(objects->name(0), "s.tar");
  ASSERT_EQ(members->size(), 2u);
  EXPECT_EQ(members->name(0), "s.tar/a.jpg");
  EXPECT_EQ(members->row(1).size_bytes, 6u);
}

TEST(AisList, AnObjectOutOfItsPlaceIsAnErrorAndAReplicaIsNone) {
  for (const uint64_t status : {1u, 2u, 4u, 31u}) {
    const Result<ColumnPage> page =
        parse_ais_list(ais_json_page("", "", {{.name = "a", .flags = 64 | status}}));
    ASSERT_FALSE(page.has_value()) << status;
    EXPECT_EQ(page.error().code(), Code::kUnavailable);
    EXPECT_THAT(page.error().message(), HasSubstr("'a' in a wrong place"));
  }
  const Result<ColumnPage> page = parse_ais_list(
      ais_json_page("", "", {{.name = "a", .flags = 64}, {.name = "a", .flags = 64 | 3}}));
  ASSERT_TRUE(page.has_value());
  EXPECT_EQ(page->size(), 1u);
}

TEST(AisList, HalfAPageIsNoPage) {
  const std::vector<AisTestEntry> entries = {
      {.name = "a", .size_bytes = 70000, .checksum = "e3069283", .version = "1", .flags = 64},
      {.name = "b"}};
  const std::string json = ais_json_page("u", "t", entries);
  const std::string packed = ais_msgpack_page("u", "t", entries);
  for (size_t size = 0; size < json.size(); ++size) {
    EXPECT_FALSE(parse_ais_list(std::string_view(json).substr(0, size)).has_value()) << size;
  }
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_FALSE(parse_ais_list_msgpack(std::string_view(packed).substr(0, size)).has_value());
  }
  EXPECT_FALSE(parse_ais_list_msgpack(packed + "\xC0").has_value());
}

TEST(AisList, WhatIsMissingOrMalformedIsNamed) {
  for (const auto& [json, what] : {
           std::pair(R"({"tcode":"ErrX","message":"no","status":500})", "without 'entries'"),
           std::pair(R"([])", "not an object"),
           std::pair(R"({"entries":{}})", "'entries'"),
           std::pair(R"({"entries":[],"entries":[]})", "'entries'"),
           std::pair(R"({"entries":[],"uuid":7})", "'uuid'"),
           std::pair(R"({"entries":[],"uuid":"a b","continuation_token":"t"})", "uuid"),
           std::pair(R"({"entries":[7]})", "not an object"),
           std::pair(R"({"entries":[null]})", "not an object"),
           std::pair(R"({"entries":[{}]})", "without a name"),
           std::pair(R"({"entries":[{"name":"a","name":"b"}]})", "'name'"),
           std::pair(R"({"entries":[{"name":"a","size":"-1"}]})", "'size'"),
           std::pair(R"({"entries":[{"name":"a","size":""}]})", "'size'"),
           std::pair(R"({"entries":[{"name":"a","size":"9223372036854775808"}]})", "'size'"),
           std::pair(R"({"entries":[{"name":"a","flags":true}]})", "'flags'"),
           std::pair(R"({"entries":[{"name":"///","flags":256}]})", "directory without a name"),
       }) {
    const Result<ColumnPage> page = parse_ais_list(json);
    ASSERT_FALSE(page.has_value()) << json;
    EXPECT_EQ(page.error().code(), Code::kCorrupt);
    EXPECT_THAT(page.error().message(), HasSubstr(what)) << json;
  }
  for (const auto& [bytes, what] : {
           std::pair("\x90", "no MessagePack map"),
           std::pair("\x81\xA1x\xC0", "without 'Entries'"),
           std::pair("\x81\xC0\xC0", "malformed key"),
           std::pair("\x81\xA7"
                     "Entries\x81\xC0\xC0",
                     "no array"),
           std::pair("\x82\xA7"
                     "Entries\x90\xA7"
                     "Entries\x90",
                     "'Entries'"),
           std::pair("\x82\xA7"
                     "Entries\x90\xA4UUID\x01",
                     "'UUID'"),
           std::pair("\x81\xA7"
                     "Entries\x91\x01",
                     "not a map"),
           std::pair("\x81\xA7"
                     "Entries\x91\x80",
                     "without a name"),
           std::pair("\x81\xA7"
                     "Entries\x91\x82\xA1n\xA1"
                     "a\xA1n\xA1"
                     "b",
                     "'n'"),
           std::pair("\x81\xA7"
                     "Entries\x91\x82\xA1n\xA1"
                     "a\xA1s\xFF",
                     "'s'"),
           std::pair("\x81\xA7"
                     "Entries\x91\x82\xA1n\xA1"
                     "a\xA1s\xCF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
                     "'size'"),
       }) {
    const Result<ColumnPage> page = parse_ais_list_msgpack(bytes);
    ASSERT_FALSE(page.has_value()) << what;
    EXPECT_EQ(page.error().code(), Code::kCorrupt);
    EXPECT_THAT(page.error().message(), HasSubstr(what));
  }
}

TEST(AisList, OfTooManyEntriesIsRefused) {
  const std::vector<AisTestEntry> entries(ColumnPage::kMaxEntries + 1, {.name = "a"});
  EXPECT_THAT(parse_ais_list(ais_json_page("", "", entries)).error().message(),
              HasSubstr("more than"));
  EXPECT_THAT(parse_ais_list_msgpack(ais_msgpack_page("", "", entries)).error().message(),
              HasSubstr("more than"));
}

}  // namespace
}  // namespace headrace
