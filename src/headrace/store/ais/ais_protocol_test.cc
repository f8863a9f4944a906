#include "headrace/store/ais/ais_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "headrace/format/ais_list.h"
#include "headrace/store/ais/ais_list_page.h"
#include "headrace/store/appends.h"
#include "headrace/store/multipart_uploads.h"
#include "headrace/store/placement.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

AisProtocol protocol_at(const char* url, const AisOptions& options = {}, bool tls = false) {
  const Url parsed = parse_url(url).value();
  return AisProtocol(parsed, tls, options, Root(parsed.name));
}

ResponseHead head_of(std::string_view text) {
  ResponseHead head;
  EXPECT_TRUE(parse_response_head(text, head).has_value());
  return head;
}

Refusal refused(const AisProtocol& protocol, std::string_view head, std::string_view body = "") {
  return protocol.refusal({.head = head_of(head), .body = body});
}

// ── Requests ─────────────────────────────────────────────────────────────────────────────────

TEST(AisProtocol, NamesProviderAndNamespaceInEveryRequest) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"ais://b", "/v1/objects/b/n?provider=ais"},
      {"ais+s3://b", "/v1/objects/b/n?provider=aws"},
      {"ais+gs://b", "/v1/objects/b/n?provider=gcp"},
      {"ais+az://b", "/v1/objects/b/n?provider=azure"},
      {"ais+oci://b", "/v1/objects/b/n?provider=oci"},
      {"ais+ht://b", "/v1/objects/b/n?provider=ht"},
      {"ais://#ns/b", "/v1/objects/b/n?provider=ais&namespace=%23ns"},
      {"ais+s3://@u#ns/b", "/v1/objects/b/n?provider=aws&namespace=%40u%23ns"}};
  for (const auto& [url, target] : cases) {
    const AisProtocol protocol = protocol_at(url);
    HttpRequest request;
    protocol.build_stat(request, "n");
    EXPECT_EQ(request.target, target);
    EXPECT_EQ(request.method, "HEAD");
    EXPECT_EQ(protocol.url_of("n"), cat(url, "/n"));
  }
}

TEST(AisProtocol, EncodesWhatTheServerWouldTakeForSomethingElse) {
  const AisProtocol protocol = protocol_at("ais://b/a root#");
  HttpRequest request;
  protocol.build_read(request, "q?%/é", "", ByteRange{5, 10});
  EXPECT_EQ(request.target, "/v1/objects/b/a%20root%23/q%3F%25/%C3%A9?provider=ais");
  EXPECT_EQ(request.header_lines, "Range: bytes=5-9\r\n");
  EXPECT_EQ(request.object, "q?%/é");
}

TEST(AisProtocol, RefusesNamesThatTheServerWouldTakeForOthers) {
  const AisProtocol protocol = protocol_at("ais://b");
  for (const char* name :
       {"a//b", "/a", "a/", "/", ".", "..", "a/./b", "../a", "a\nb", "tab\t", "\x7f"}) {
    EXPECT_EQ(protocol.check_new_name(name).error().code(), Code::kInvalidArgument) << name;
    HttpRequest write, read;
    std::string scratch;
    protocol.build_write(write, {.name = name}, {}, {}, scratch);
    protocol.build_read(read, name, "", {});
    ASSERT_TRUE(write.refused && read.refused) << name;
    EXPECT_EQ(write.refused->code(), Code::kInvalidArgument);
    EXPECT_EQ(read.refused->code(), Code::kNotFound);
  }
  for (const char* name : {"a", "...", "a..b", ".a", "a.", "a/..b", " ", "\\", "é"}) {
    EXPECT_TRUE(protocol.check_new_name(name).has_value()) << name;
  }
}

TEST(AisProtocol, ATransformationIsAskedForByReadsAlone) {
  const AisProtocol protocol =
      protocol_at("ais://b", {.etl_name = "up per", .etl_args = "{\"a\":1}"});
  HttpRequest read, stat;
  protocol.build_read(read, "n", "", ByteRange{0, 10});
  EXPECT_EQ(read.target,
            "/v1/objects/b/n?provider=ais&etl_name=up%20per&etl_args=%7B%22a%22%3A1%7D");
  EXPECT_EQ(read.header_lines, "") << "what is transformed has no ranges";
  protocol.build_stat(stat, "n");
  EXPECT_EQ(stat.target, "/v1/objects/b/n?provider=ais");
  EXPECT_TRUE(protocol.transforms());
  const ReadFacts facts =
      protocol.read_facts(head_of("HTTP/1.1 200 OK\r\nAis-Version: 1\r\nAis-Checksum-Type: md5\r\n"
                                  "Ais-Checksum-Value: 00\r\n\r\n"));
  EXPECT_TRUE(facts.generation.empty());
  EXPECT_TRUE(facts.checksum.empty());
}

TEST(AisProtocol, AMemberOfAShardIsNamedBesideIt) {
  HttpRequest request;
  protocol_at("ais://b").build_member_read(request, "s.tar", "a/b c.jpg");
  EXPECT_EQ(request.target, "/v1/objects/b/s.tar?provider=ais&archpath=a%2Fb%20c.jpg");
}

TEST(AisProtocol, AWriteCarriesItsSumAndWaitsToBeAskedForItsBody) {
  HttpRequest request;
  std::string scratch;
  const std::string text = "123456789";
  const auto bytes = std::as_bytes(std::span(text));
  const std::vector<std::span<const std::byte>> spans = {bytes};
  protocol_at("ais://b").build_write(
      request, {.name = "n", .content_type = "text/plain", .content_encoding = "br"}, spans,
      Crc32c().extended(bytes), scratch);
  EXPECT_EQ(request.method, "PUT");
  EXPECT_EQ(request.header_lines,
            "ais-checksum-type: crc32c\r\nais-checksum-value: e3069283\r\n"
            "ais-custom-md: headrace-content-type=text/plain\r\n"
            "ais-custom-md: headrace-content-encoding=br\r\n");
  EXPECT_TRUE(request.waits_for_continue);
  EXPECT_EQ(request.body_bytes(), 9u);
}

// ── Answers ──────────────────────────────────────────────────────────────────────────────────

constexpr std::string_view kHead =
    "HTTP/1.1 200 OK\r\nAis-Atime: 1795507992021430389\r\nAis-Checksum-Type: xxhash\r\n"
    "Ais-Checksum-Value: 26c7827d889f6da3\r\nAis-Version: 7\r\n"
    "Ais-Custom-Md: headrace-content-encoding=gzip, headrace-content-type=a/b; c=d\r\n"
    "Content-Length: 5\r\n\r\n";

TEST(AisProtocol, AGenerationIsTheVersionAndTheChecksum) {
  const AisProtocol protocol = protocol_at("ais://b/root");
  const ResponseHead head = head_of(kHead);
  const ReadFacts facts = protocol.read_facts(head);
  EXPECT_EQ(facts.generation.view(), "7-26c7827d889f6da3");
  EXPECT_EQ(facts.checksum, Checksum(ChecksumKind::kXxh64, 0x26c7827d889f6da3));
  EXPECT_TRUE(facts.stored_gzip);
  const ObjectInfo info = protocol.parse_stat({.head = head, .body = ""}, "n").value();
  EXPECT_EQ(info.name, "root/n");
  EXPECT_EQ(info.size_bytes, 5u);
  EXPECT_EQ(info.generation, facts.generation.view());
  EXPECT_EQ(info.checksum, facts.checksum);
  EXPECT_EQ(info.content_type, "a/b; c=d");
  EXPECT_EQ(info.content_encoding, "gzip");
}

TEST(AisProtocol, WhatHasNoHeaderOfItsOwnIsAnotherServices) {
  const ResponseHead head = head_of("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
  const ResponseHead own =
      head_of("HTTP/1.1 200 OK\r\nais-atime: 1795507992021430389\r\nContent-Length: 5\r\n\r\n");
  const AisProtocol protocol = protocol_at("ais://b");
  const Result<ObjectInfo> stat = protocol.parse_stat({.head = head, .body = ""}, "n");
  ASSERT_FALSE(stat.has_value());
  EXPECT_EQ(stat.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(stat.error().message(), HasSubstr("is the endpoint an AIStore proxy?"));
  EXPECT_THAT(protocol.read_facts(head).foreign, HasSubstr("an AIStore proxy?"));
  EXPECT_FALSE(protocol.tells_written(head));
  EXPECT_TRUE(protocol.parse_stat({.head = own, .body = ""}, "n").has_value());
  EXPECT_EQ(protocol.read_facts(own).foreign, "");
  EXPECT_TRUE(protocol.tells_written(own));
  // What a cold object or a transformer has is not known.
  EXPECT_EQ(protocol_at("ais+s3://b").read_facts(head).foreign, "");
  EXPECT_EQ(protocol_at("ais://b", {.etl_name = "e"}).read_facts(head).foreign, "");
}

TEST(AisProtocol, ATargetInPlaceOfAProxyIsNamed) {
  for (const char* said :
       {"t[t1]: expected INTRA-CONTROL request", "t[t1]: PUT(obj) is expected to be redirected"}) {
    const Refusal refusal =
        refused(protocol_at("ais://b"), "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
                cat(R"({"message":")", said, R"(","status":400})"));
    EXPECT_THAT(refusal.error.message(), AllOf(HasSubstr(said), HasSubstr("must be a proxy")));
  }
}

TEST(AisProtocol, OnlyAnUnknownActionMeansThatThereAreNoMultipartUploads) {
  const AisProtocol protocol = protocol_at("ais://b");
  const auto lacks = [&](const char* line, const char* said) {
    return protocol.appends()->lacks_multipart(
        refused(protocol, cat("HTTP/1.1 ", line, "\r\nContent-Length: 0\r\n\r\n"),
                cat(R"({"message":")", said, R"("})"))
            .error);
  };
  const char* unknown = R"(invalid action \"mpt-upload\")";
  EXPECT_TRUE(lacks("400 Bad Request", unknown));
  EXPECT_FALSE(lacks("404 Not Found", unknown));
  EXPECT_FALSE(lacks("400 Bad Request", "bucket quota is odd"));
  EXPECT_FALSE(lacks("501 Not Implemented", "no"));
}

TEST(AisProtocol, AVersionAloneIsNoGeneration) {
  const ResponseHead head =
      head_of("HTTP/1.1 200 OK\r\nAis-Version: 7\r\nContent-Length: 5\r\n\r\n");
  const AisProtocol protocol = protocol_at("ais://b");
  EXPECT_TRUE(protocol.read_facts(head).generation.empty());
  EXPECT_EQ(protocol.parse_stat({.head = head, .body = ""}, "n")->generation, "");
}

TEST(AisProtocol, ARedirectGivesTheTargetAndItsQueryAndNothingOfItsPath) {
  const AisProtocol protocol = protocol_at("ais://b");
  // As servers before 3.28 write it: the name is decoded, and cuts the URL off.
  const Refusal refusal = refused(
      protocol,
      "HTTP/1.1 301 Moved\r\nLocation: http://10.0.0.7:51081/v1/objects/b/q?q#h?provider=ais&pid=p&"
      "utm=17\r\nContent-Length: 0\r\n\r\n");
  ASSERT_NE(refusal.elsewhere, nullptr);
  EXPECT_EQ(refusal.elsewhere->endpoint.authority(), "10.0.0.7:51081");
  EXPECT_FALSE(refusal.elsewhere->endpoint.tls);
  EXPECT_EQ(refusal.elsewhere->target, "");
  EXPECT_EQ(refusal.elsewhere->query, "provider=ais&pid=p&utm=17");
  EXPECT_THAT(refusal.error.message(), HasSubstr("10.0.0.7:51081"));
}

TEST(AisProtocol, ABatchGoesToThePathThatItIsTold) {
  const Refusal refusal =
      refused(protocol_at("ais://b"),
              "HTTP/1.1 307 Go\r\nLocation: "
              "http://t:1/v1/ml/moss/b/UUID?tid=x&pid=p\r\nContent-Length: 0\r\n\r\n");
  ASSERT_NE(refusal.elsewhere, nullptr);
  EXPECT_EQ(refusal.elsewhere->target, "/v1/ml/moss/b/UUID?tid=x&pid=p");
}

TEST(AisProtocol, NoRedirectLeavesTheClusterOrTls) {
  for (const char* location : {"https://login.test/?next=/v1/objects/b/n", "/elsewhere", ""}) {
    const Refusal refusal =
        refused(protocol_at("ais://b"),
                cat("HTTP/1.1 307 Go\r\nLocation: ", location, "\r\nContent-Length: 0\r\n\r\n"));
    EXPECT_EQ(refusal.elsewhere, nullptr) << location;
    EXPECT_EQ(refusal.error.http_status(), 307);
  }
  const Refusal plain = refused(protocol_at("ais://b", {}, /*tls=*/true),
                                "HTTP/1.1 307 Go\r\nLocation: http://t:1/v1/objects/b/n?pid=p\r\n"
                                "Content-Length: 0\r\n\r\n");
  EXPECT_EQ(plain.elsewhere, nullptr);
  EXPECT_THAT(plain.error.message(), HasSubstr("TLS"));
}

// Two proxies, the second of which is the primary, one that is being decommissioned, and a target.
std::shared_ptr<const HostMap> map_of(const AisProtocol& protocol, std::string_view scheme) {
  const auto node = [&](std::string_view id, std::string_view host, int flags) {
    return cat("{\"daemon_id\":\"", id, "\",\"flags\":", flags,
               ",\"public_net\":{\"direct_url\":\"", scheme, host, "\"}}");
  };
  const std::string primary = node("p2", "second:1", 0);
  const std::string body =
      cat("{\"pmap\":{\"p1\":", node("p1", "first:1", 2), ",\"p2\":", primary,
          ",\"p3\":", node("p3", "third:1", 8), "},\"proxy_si\":", primary,
          ",\"tmap\":{\"t1\":", node("t1", "target:1", 0), "},\"uuid\":\"u\",\"version\":\"1\"}");
  const ResponseHead head = head_of("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  return protocol.placement()->parse_map({.head = head, .body = body}).value();
}

std::vector<std::string> entrances_of(const HostMap& map) {
  std::vector<std::string> found;
  for (const Endpoint& each : map.entrances) found.push_back(each.authority());
  return found;
}

TEST(AisProtocol, RequestsMayEnterByAnyProxyThatStaysAndThePrimaryFirst) {
  const AisProtocol protocol = protocol_at("ais://b");
  EXPECT_THAT(entrances_of(*map_of(protocol, "http://")), ElementsAre("second:1", "first:1"));
}

TEST(AisProtocol, WhatComesByTlsIsSentToNoNodeOfTheMapWithoutIt) {
  HttpRequest request;
  request.method = "GET";
  request.object = "n";
  const AisProtocol protocol = protocol_at("ais://b", {}, /*tls=*/true);
  const auto plain = map_of(protocol, "http://");
  EXPECT_THAT(entrances_of(*plain), ElementsAre());
  EXPECT_EQ(protocol.placement()->owner(*plain, "n"), 0u);
  EXPECT_EQ(protocol.placement()->send_to(*plain, request), std::nullopt);
  const auto secret = map_of(protocol, "https://");
  EXPECT_THAT(entrances_of(*secret), ElementsAre("second:1", "first:1"));
  EXPECT_EQ(protocol.placement()->send_to(*secret, request), 0u);
}

TEST(AisProtocol, AnErrorSaysWhoSaidWhat) {
  const AisProtocol protocol = protocol_at("ais://b");
  const Refusal object = refused(
      protocol, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
      R"({"tcode":"ErrNotFound","message":"ais://b/n does not exist","node":"t[tar1]","status":404})");
  EXPECT_EQ(object.error.code(), Code::kNotFound);
  EXPECT_EQ(object.error.message(), "ais://b/n does not exist [t[tar1]]");
  const Refusal bucket = refused(
      protocol,
      "HTTP/1.1 404 Not Found\r\nHdr-Error: {\"tcode\":\"ErrBckNotFound\",\"message\":\"bucket "
      "\\\"ais://b\\\" does not exist\",\"node\":\"p[1]\"}\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(bucket.error.code(), Code::kNotFound);
  EXPECT_THAT(bucket.error.message(),
              AllOf(HasSubstr("there is no such bucket"), HasSubstr("p[1]")));
  EXPECT_TRUE(refused(protocol, "HTTP/1.1 401 Who\r\nContent-Length: 0\r\n\r\n").stale_credentials);
  EXPECT_EQ(refused(protocol, "HTTP/1.1 500 Bad\r\nContent-Length: 0\r\n\r\n",
                    R"({"tcode":"ErrBadCksum","message":"wrong"})")
                .error.code(),
            Code::kCorrupt);
}

// ── Listings ─────────────────────────────────────────────────────────────────────────────────

ColumnPage page_of(const AisProtocol& protocol, const std::vector<std::string>& names,
                   const ListRequest& list, std::string token = "") {
  std::string json = cat(R"({"uuid":"u","continuation_token":")", token, R"(","entries":[)");
  for (const std::string& name : names) {
    json +=
        cat(json.ends_with('[') ? "" : ",", R"({"name":")", name, R"(","size":"1","flags":64})");
  }
  json += R"(],"flags":0})";
  const ResponseHead head = head_of("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n");
  return protocol.parse_list({.head = head, .body = json}, list).value();
}

std::vector<std::string> names_of(const ColumnPage& page) {
  std::vector<std::string> names;
  names.reserve(page.size());
  for (size_t i = 0; i < page.size(); ++i) names.emplace_back(page.name(i));
  return names;
}

TEST(AisProtocol, AListingIsAGetWithABody) {
  HttpRequest request;
  protocol_at("ais+s3://b/root").build_list(request, {.prefix = "p", .max_results = 7});
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.target, "/v1/buckets/b?provider=aws");
  EXPECT_THAT(request.body_text,
              AllOf(HasSubstr(R"("prefix":"root/p")"), HasSubstr(R"("pagesize":7)")));
  EXPECT_TRUE(request.has_body);
  EXPECT_EQ(request.object, "") << "it is for the proxy";
}

TEST(AisProtocol, PagesOfItsOwnBucketsAreLargeAndEachIsAListingOfItsOwn) {
  HttpRequest request;
  const AisProtocol protocol = protocol_at("ais://b");
  protocol.build_list(request, {.page_token = "uuid a b"});
  EXPECT_THAT(request.body_text, AllOf(HasSubstr(R"("pagesize":100000)"), HasSubstr(R"("uuid":"")"),
                                       HasSubstr(R"("continuation_token":"a b")")));
}

TEST(AisProtocol, NamesCanBeMissingBesideTheFoldersAroundTheEndOfAPage) {
  using Folders = std::vector<std::string_view>;
  EXPECT_EQ(ais_folders_to_look_beside("a/b-c", ""), (Folders{"a", "a/b"}));
  EXPECT_EQ(ais_folders_to_look_beside("a/b-c", "a/"), Folders{"a/b"});
  EXPECT_EQ(ais_folders_to_look_beside("a/b-c", "a"), (Folders{"a", "a/b"}));
  EXPECT_EQ(ais_folders_to_look_beside("a/b-c", "a.x"), Folders{"a"});
  EXPECT_EQ(ais_folders_to_look_beside("a/b-c", "b"), Folders{});
  EXPECT_EQ(ais_folders_to_look_beside("img0001", ""), Folders{});
}

TEST(AisProtocol, FoldersThatNoServerTakesAreNotAskedFor) {
  const AisProtocol protocol = protocol_at("ais://b");
  const ResponseHead head = head_of("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n");
  // The end of a page, and the folder that is looked for first.
  for (const auto& [name, folder] :
       {std::pair("a...1", "a./"), std::pair("b..-", "b./"), std::pair("tmp~1-2", "tmp~1/"),
        std::pair("tmp~-b", ""), std::pair("~-b", ""), std::pair("..-b", ""),
        std::pair(".-b", "")}) {
    const std::unique_ptr<LongPage> page = protocol.long_page({.max_results = 1});
    const std::string json = cat(R"({"uuid":"u","continuation_token":"x","entries":[{"name":")",
                                 name, R"(","size":"1","flags":64}],"flags":0})");
    const auto taken = page->take({.head = head, .body = json});
    ASSERT_TRUE(taken.has_value());
    EXPECT_EQ(taken->has_value(), std::string_view(folder).empty()) << name;
    if (taken->has_value()) continue;
    HttpRequest request;
    page->build_next(request, 1 << 20);
    EXPECT_THAT(request.body_text, HasSubstr(cat(R"("prefix":")", folder, R"(")")));
  }
}

TEST(AisProtocol, APrefixInItsOwnBucketsIsAPlaceInAFolder) {
  HttpRequest request;
  const AisProtocol protocol = protocol_at("ais://b/root");
  protocol.build_list(request, {.prefix = "d/p"});
  EXPECT_THAT(request.body_text,
              AllOf(HasSubstr(R"("prefix":"root/d/")"), HasSubstr(R"("start_after":"root/d/o)")));
  request.clear();
  protocol.build_list(request, {.prefix = "d/"});
  EXPECT_THAT(request.body_text,
              AllOf(HasSubstr(R"("prefix":"root/d/")"), HasSubstr(R"("start_after":"")")));
  // What lies outside is dropped, and ends the listing.
  const ColumnPage page =
      page_of(protocol, {"root/d/o", "root/d/p1", "root/d/q"}, {.prefix = "d/p"}, "root/d/q");
  EXPECT_THAT(names_of(page), ElementsAre("root/d/p1"));
  EXPECT_EQ(page.next_page_token, "");
}

TEST(AisProtocol, AShortPageIsCutFromALongOne) {
  const AisProtocol protocol = protocol_at("ais://b");
  const ListRequest list = {.delimiter = "/", .max_results = 2};
  const ColumnPage page = page_of(protocol, {"a", "d/1", "d/2", "e"}, list);
  EXPECT_THAT(names_of(page), ElementsAre("a"));
  EXPECT_THAT(page.prefixes, ElementsAre("d/"));
  EXPECT_EQ(page.next_page_token, " d/\xF4\x8F\xBF\xBF");
  const ColumnPage flat = page_of(protocol, {"a", "b", "c"}, {.max_results = 2}, "c");
  EXPECT_THAT(names_of(flat), ElementsAre("a", "b"));
  EXPECT_EQ(flat.next_page_token, " b");
}

TEST(AisProtocol, APageOfACloudThatIsCutGoesOnWithinIt) {
  const AisProtocol protocol = protocol_at("ais+s3://b");
  ListRequest list = {.delimiter = "/", .page_token = "u this", .max_results = 2};
  const std::vector<std::string> names = {"a", "d/1", "d/2", "e", "f/1"};
  const ColumnPage page = page_of(protocol, names, list, "next");
  EXPECT_THAT(names_of(page), ElementsAre("a"));
  EXPECT_THAT(page.prefixes, ElementsAre("d/"));
  EXPECT_EQ(page.next_page_token, "u this\nd/\xF4\x8F\xBF\xBF");
  list.page_token = page.next_page_token;
  HttpRequest request;
  protocol.build_list(request, list);
  EXPECT_THAT(request.body_text, AllOf(HasSubstr(R"("uuid":"u")"), HasSubstr(R"("pagesize":0)"),
                                       HasSubstr(R"("continuation_token":"this")")));
  const ColumnPage rest = page_of(protocol, names, list, "next");
  EXPECT_THAT(names_of(rest), ElementsAre("e"));
  EXPECT_THAT(rest.prefixes, ElementsAre("f/"));
  EXPECT_EQ(rest.next_page_token, "u next\nf/\xF4\x8F\xBF\xBF");
  list.page_token = rest.next_page_token;
  const ColumnPage none = page_of(protocol, {"f/1", "f/2"}, list, "later");
  EXPECT_TRUE(none.empty() && none.prefixes.empty());
  EXPECT_EQ(none.next_page_token, "u later\nf/\xF4\x8F\xBF\xBF");
  const ColumnPage last = page_of(protocol, {"f/2", "g"}, list);
  EXPECT_THAT(names_of(last), ElementsAre("g"));
  EXPECT_TRUE(last.prefixes.empty());
  EXPECT_EQ(last.next_page_token, "");
}

TEST(AisProtocol, OnlyItsOwnBucketsAreListedFromAName) {
  for (const auto& [url, has_it] : {std::pair("ais://b", true), std::pair("ais+s3://b", false)}) {
    HttpRequest request;
    protocol_at(url).build_list(request, {.start_offset = "b"});
    EXPECT_EQ(request.body_text.contains("a\xF4\x8F\xBF\xBF"), has_it);
  }
}

TEST(AisProtocol, OnlyWhatComesFromANameOnMakesPrefixes) {
  for (const char* url : {"ais://b/r", "ais+s3://b/r"}) {
    ListRequest list = {.delimiter = "/", .start_offset = "c/2"};
    const ColumnPage page = page_of(protocol_at(url), {"r/a/1", "r/b", "r/c/1", "r/c/2"}, list);
    EXPECT_THAT(page.prefixes, ElementsAre("r/c/")) << url;
    EXPECT_TRUE(page.empty()) << url;
    list.max_results = 1;
    list.start_offset = "c/3";
    const ColumnPage cut = page_of(protocol_at(url), {"r/a/1", "r/c/1", "r/d"}, list);
    EXPECT_TRUE(cut.prefixes.empty()) << url;
    EXPECT_THAT(names_of(cut), ElementsAre("r/d")) << url;
    EXPECT_EQ(cut.next_page_token, "") << url;
  }
}

TEST(AisProtocol, NamesWithTheDelimiterBecomePrefixes) {
  const AisProtocol protocol = protocol_at("ais://b/r");
  const ListRequest list = {.prefix = "p", .delimiter = "/"};
  const ColumnPage page = page_of(protocol, {"r/p", "r/p/1", "r/p/2/3", "r/pa", "r/pb/1"}, list);
  EXPECT_THAT(names_of(page), ElementsAre("r/p", "r/pa"));
  EXPECT_THAT(page.prefixes, ElementsAre("r/p/", "r/pb/"));
  EXPECT_EQ(page.next_page_token, "");
}

TEST(AisProtocol, ThePageAfterAPrefixBeginsBehindAllOfItsNames) {
  const AisProtocol protocol = protocol_at("ais://b");
  ListRequest list = {.delimiter = "/"};
  const ColumnPage first = page_of(protocol, {"a", "d/1", "d/2"}, list, "d/2");
  EXPECT_THAT(first.prefixes, ElementsAre("d/"));
  list.page_token = first.next_page_token;
  const AisPageToken token = split_ais_page_token(list.page_token);
  EXPECT_EQ(token.uuid, "");
  EXPECT_EQ(token.continuation, "d/\xF4\x8F\xBF\xBF");
  // A name that comes even after that belongs to a prefix that was told already.
  const ColumnPage second = page_of(protocol, {"d/\xF4\x8F\xBF\xBF\x21", "e/1", "f"}, list);
  EXPECT_THAT(second.prefixes, ElementsAre("e/"));
  EXPECT_THAT(names_of(second), ElementsAre("f"));
}

TEST(AisProtocol, APageThatEndsWithANameGoesOnWithTheServersToken) {
  const AisProtocol protocol = protocol_at("ais://b");
  const ColumnPage page = page_of(protocol, {"d/1", "e"}, {.delimiter = "/"}, "e");
  EXPECT_EQ(page.next_page_token, "u e");
}

// ── Large objects ────────────────────────────────────────────────────────────────────────────

TEST(AisProtocol, SpeaksOfPartsAsItsOwnClientsDo) {
  const AisProtocol protocol = protocol_at("ais://b/r");
  const MultipartUploads& uploads = *protocol.multipart();
  HttpRequest request;
  uploads.build_start(request, {.name = "n"}, SumLevel::kCrc32c);
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.body_text, R"({"action":"mpt-upload"})");
  request.clear();
  uploads.build_part(request, "n", "id", 3, {}, {});
  EXPECT_EQ(request.target, "/v1/objects/b/r/n?provider=ais&uploadId=id&partNumber=3");
  EXPECT_TRUE(request.waits_for_continue);
  request.clear();
  const std::vector<SentPart> parts = {{.part_number = 1}, {.part_number = 2}};
  std::string scratch;
  uploads.build_complete(request, {.name = "n", .upload_id = "id", .parts = parts}, scratch);
  EXPECT_EQ(request.body_text, R"({"action":"mpt-complete","value":[{"part-number":1,"etag":""},)"
                               R"({"part-number":2,"etag":""}]})");
  request.clear();
  uploads.build_abort(request, "n", "id");
  EXPECT_EQ(request.method, "DELETE");
}

TEST(AisProtocol, APieceOfAStreamIsSentOnceAndByTheProxy) {
  const AisProtocol protocol = protocol_at("ais://b/r");
  HttpRequest request;
  protocol.appends()->build_append(request, "n", "t1|/a b|xxhash|AA==", {});
  EXPECT_EQ(request.target,
            "/v1/objects/b/r/n?provider=ais&append_type=append&append_handle="
            "t1%7C%2Fa%20b%7Cxxhash%7CAA%3D%3D");
  EXPECT_TRUE(request.on_new_connection && request.waits_for_continue);
  EXPECT_EQ(request.object, "");
  request.clear();
  protocol.appends()->build_rename(request, "n", "\"m\"");
  EXPECT_EQ(request.body_text, R"({"action":"rename-obj","name":"r/\"m\""})");
}

TEST(AisProtocol, TellsTypeAndEncodingWhatIsThereAlreadyAndForgetsThoseOfBefore) {
  const AisProtocol protocol = protocol_at("ais://b/r");
  HttpRequest request;
  protocol.describing()->build_describe(request, "n", {.name = "m", .content_type = "text/\"x\""});
  EXPECT_EQ(request.method, "PATCH");
  EXPECT_EQ(request.target, "/v1/objects/b/r/n?provider=ais");
  EXPECT_EQ(request.object, "n") << "a redirect of it tells where the object is";
  EXPECT_EQ(request.body_text, R"({"value":{"headrace-content-type":"text/\"x\"",)"
                               R"("headrace-content-encoding":""}})");
}

TEST(AisProtocol, AWriteThatDescribesNothingForgetsWhatDescribedTheObjectBefore) {
  HttpRequest request;
  std::string scratch;
  protocol_at("ais://b").build_write(request, {.name = "n"}, {}, Crc32c(), scratch);
  EXPECT_THAT(request.header_lines, HasSubstr("ais-custom-md: headrace-content-type=\r\n"
                                              "ais-custom-md: headrace-content-encoding=\r\n"));
}

TEST(AisProtocol, ValuesThatLookLikeSeveralComeBackAsTheyWere) {
  const AisProtocol protocol = protocol_at("ais://b");
  for (const std::string value :
       {"gzip, br", "a=b, headrace-content-encoding=x", "100%, %2C", "a|b\"c\"; d='e' *", ""}) {
    const std::string custom = ais_custom_value(value);
    EXPECT_EQ(custom.find_first_of(",|"), std::string::npos);
    const std::string text =
        "HTTP/1.1 200 OK\r\nAis-Version: 1\r\nContent-Length: 5\r\n"
        "Ais-Custom-Md: headrace-content-type=" +
        custom + ", headrace-content-encoding=" + custom + "\r\n\r\n";
    const ResponseHead head = head_of(text);
    const ObjectInfo info = protocol.parse_stat({.head = head, .body = ""}, "n").value();
    EXPECT_EQ(info.content_type, value);
    EXPECT_EQ(info.content_encoding, value);
  }
  EXPECT_EQ(ais_custom_value("text/plain; a=b"), "text/plain; a=b") << "read by others, too";
  EXPECT_EQ(ais_plain_value("100%"), "100%") << "what others have written is given as it is";
}

TEST(AisProvider, NeedsAnEndpointAndARootThatCanBe) {
  const auto error = [](const char* url, const char* endpoint) {
    const Result<Provider> made = ais_provider(parse_url(url).value(), {.endpoint = endpoint});
    return made ? "" : made.error().message();
  };
  EXPECT_THAT(error("ais://b", ""), AllOf(HasSubstr("AIS_ENDPOINT"), HasSubstr("endpoint=")));
  EXPECT_THAT(error("ais://b/a//b", "http://h:1"), HasSubstr("ais://b/a//b"));
  EXPECT_EQ(error("ais://b/a/", "http://h:1"), "");
}

}  // namespace
}  // namespace headrace
