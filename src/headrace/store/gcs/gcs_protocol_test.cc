#include "headrace/store/gcs/gcs_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/format/body_shape.h"
#include "headrace/format/gcs_json.h"
#include "headrace/store/composing.h"
#include "headrace/store/copies.h"
#include "headrace/store/multipart_uploads.h"
#include "headrace/store/resumable_uploads.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const GcsProtocol kPlain("bucket", "");
const GcsProtocol kBilled("bucket", "my project");

std::string joined_body(const HttpRequest& request) {
  std::string body;
  for (const auto part : request.body) {
    body.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return body;
}

std::string read_target(std::string_view name) {
  HttpRequest request;
  kPlain.build_read(request, name, "", std::nullopt);
  return request.target;
}

TEST(GcsProtocol, PercentEncodesEveryByteOfANameThatIsNotUnreserved) {
  const std::string base = "/download/storage/v1/b/bucket/o/";
  EXPECT_EQ(read_target("a-b_c.d~9"), base + "a-b_c.d~9?alt=media");
  EXPECT_EQ(read_target("a/b"), base + "a%2Fb?alt=media");
  EXPECT_EQ(read_target("50%#1?+ x"), base + "50%25%231%3F%2B%20x?alt=media");
  EXPECT_EQ(read_target("a\nb"), base + "a%0Ab?alt=media");
  EXPECT_EQ(read_target("gr\xc3\xbc\xc3\x9f"), base + "gr%C3%BC%C3%9F?alt=media");
  EXPECT_EQ(read_target("../x"), base + "..%2Fx?alt=media");
}

TEST(GcsProtocol, ReadsConditionallyOnTheGenerationAndByRange) {
  HttpRequest request;
  kBilled.build_read(request, "n", "123", ByteRange{10, 20});
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.target,
            "/download/storage/v1/b/bucket/o/n?alt=media&ifGenerationMatch=123&userProject="
            "my%20project");
  EXPECT_EQ(request.header_lines, "Accept-Encoding: gzip\r\nRange: bytes=10-19\r\n");
  EXPECT_FALSE(request.has_body);
}

TEST(GcsProtocol, ListsWithEveryParameterEncoded) {
  HttpRequest request;
  kBilled.build_list(request, {.prefix = "a b/",
                               .delimiter = "/",
                               .page_token = "t=&",
                               .start_offset = "a b/c",
                               .end_offset = "a b/d",
                               .max_results = 7});
  EXPECT_THAT(request.target,
              AllOf(StartsWith("/storage/v1/b/bucket/o?projection=noAcl&prefix=a%20b%2F&"
                               "delimiter=%2F&pageToken=t%3D%26&startOffset=a%20b%2Fc&"
                               "endOffset=a%20b%2Fd&maxResults=7&fields="),
                    HasSubstr("crc32c"), HasSubstr("nextPageToken"),
                    EndsWith("&userProject=my%20project")));
  request.clear();
  kPlain.build_list(request, {});
  EXPECT_THAT(request.target, AllOf(Not(HasSubstr("prefix=")), Not(HasSubstr("userProject"))));
}

TEST(GcsProtocol, WritesTheRootBeforeEveryName) {
  const GcsProtocol protocol("bucket", "", Root("a b/run"));
  EXPECT_EQ(protocol.url_of("n/m"), "gs://bucket/a b/run/n/m");
  const std::string object = "/storage/v1/b/bucket/o/a%20b%2Frun%2Fn%2Fm";
  HttpRequest request;
  const auto target = [&](const auto& build) {
    request.clear();
    build();
    return request.target;
  };
  EXPECT_EQ(target([&] { protocol.build_read(request, "n/m", "", std::nullopt); }),
            "/download" + object + "?alt=media");
  EXPECT_THAT(target([&] { protocol.build_stat(request, "n/m"); }), StartsWith(object + "?"));
  EXPECT_THAT(target([&] { protocol.build_remove(request, "n/m", {}); }), StartsWith(object + "?"));
  EXPECT_THAT(target([&] {
                protocol.copies()->build_copy(request, {.source_name = "n/m", .name = "c"}, "");
              }),
              StartsWith(object + "/rewriteTo/b/bucket/o/a%20b%2Frun%2Fc?"));
  std::string scratch;
  EXPECT_THAT(target([&] {
                protocol.composing()->build_compose(
                    request, {.sources = {{.name = "s\""}}, .name = "n/m"}, scratch);
              }),
              StartsWith(object + "/compose?"));
  EXPECT_THAT(scratch, HasSubstr(R"("name":"a b/run/s\"")"));
  target([&] { protocol.build_write(request, {.name = "n/m"}, {}, Crc32c(), scratch); });
  EXPECT_THAT(scratch, HasSubstr(R"("name":"a b/run/n/m")"));
  target([&] { protocol.resumable()->build_start(request, {.name = "n/m"}, scratch); });
  EXPECT_THAT(scratch, HasSubstr(R"("name":"a b/run/n/m")"));
  EXPECT_EQ(target([&] {
              protocol.multipart()->build_start(request, {.name = "n/m"}, SumLevel::kCrc32c);
            }),
            "/bucket/a%20b%2Frun%2Fn%2Fm?uploads");
  EXPECT_EQ(target([&] { protocol.multipart()->build_list(request, "p", "q", "id"); }),
            "/bucket?uploads&prefix=a%20b%2Frun%2Fp&key-marker=a%20b%2Frun%2Fq&"
            "upload-id-marker=id");
}

TEST(GcsProtocol, ListsBelowTheRoot) {
  const GcsProtocol protocol("bucket", "", Root("run"));
  HttpRequest request;
  protocol.build_list(request, {.prefix = "p", .start_offset = "pa", .end_offset = "pb"});
  EXPECT_THAT(request.target,
              HasSubstr("&prefix=run%2Fp&startOffset=run%2Fpa&endOffset=run%2Fpb&"));
  request.clear();
  // Without bounds there are none: the root itself is no offset.
  protocol.build_list(request, {});
  EXPECT_THAT(request.target, AllOf(HasSubstr("&prefix=run%2F&"), Not(HasSubstr("Offset="))));
}

TEST(GcsProtocol, JudgesNewNamesWithTheRootBeforeThem) {
  const GcsProtocol below("bucket", "", Root("run"));
  EXPECT_TRUE(below.check_new_name(".."));
  EXPECT_FALSE(kPlain.check_new_name(".."));
  EXPECT_TRUE(below.check_new_name(std::string(1020, 'x')));
  EXPECT_FALSE(below.check_new_name(std::string(1021, 'x')));
  EXPECT_FALSE(below.check_new_name(""));
  EXPECT_TRUE(below.check_new_name(".well-known/acme-challenge/x"));
  const GcsProtocol challenges("bucket", "", Root(".well-known/acme-challenge"));
  EXPECT_FALSE(challenges.check_new_name("x"));
}

TEST(GcsProtocol, StatsAndRemoves) {
  HttpRequest request;
  kBilled.build_stat(request, "a/b");
  EXPECT_EQ(request.method, "GET");
  EXPECT_THAT(request.target, AllOf(StartsWith("/storage/v1/b/bucket/o/a%2Fb?projection=noAcl"),
                                    EndsWith("&userProject=my%20project")));
  request.clear();
  kBilled.build_remove(request, "a/b", {.generation = "9"});
  EXPECT_EQ(request.method, "DELETE");
  EXPECT_EQ(request.target,
            "/storage/v1/b/bucket/o/a%2Fb?alt=json&ifGenerationMatch=9&userProject=my%20project");
  request.clear();
  kPlain.build_remove(request, "a/b", {});
  EXPECT_EQ(request.target, "/storage/v1/b/bucket/o/a%2Fb?alt=json");
}

TEST(GcsProtocol, WritesNameChecksumAndTypesInTheFirstPartAndTheBytesInTheSecond) {
  HttpRequest request;
  std::string scratch;
  const std::string_view text = "hello";
  const auto bytes = std::as_bytes(std::span(text));
  const std::array<std::span<const std::byte>, 2> spans = {bytes.first(2), bytes.subspan(2)};
  kBilled.build_write(request,
                      {.name = "a\"b\n",
                       .content_type = "text/plain",
                       .content_encoding = "gzip",
                       .precondition = {.generation = ""}},
                      spans, Crc32c().extended(bytes), scratch);
  EXPECT_EQ(request.method, "POST");
  EXPECT_THAT(request.target,
              AllOf(StartsWith("/upload/storage/v1/b/bucket/o?uploadType=multipart"),
                    HasSubstr("&ifGenerationMatch=0"), EndsWith("&userProject=my%20project")));
  EXPECT_THAT(request.header_lines, HasSubstr("Content-Type: multipart/related; boundary="));
  EXPECT_TRUE(request.has_body);
  EXPECT_THAT(
      joined_body(request),
      AllOf(HasSubstr(R"("name":"a\"b\u000a")"),
            HasSubstr(cat(R"("crc32c":")", Crc32c().extended(bytes).to_base64(), "\"")),
            HasSubstr(R"("contentType":"text/plain")"), HasSubstr(R"("contentEncoding":"gzip")"),
            HasSubstr("Content-Type: text/plain\r\n\r\nhello\r\n--"), EndsWith("--\r\n")));
}

TEST(GcsProtocol, CopiesFromAGenerationAndGoesOnWithAToken) {
  HttpRequest request;
  kBilled.copies()->build_copy(request,
                               {.source_name = "a/b",
                                .source_generation = "5",
                                .name = "c d",
                                .precondition = {.generation = "6"}},
                               "tok/en");
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target,
            "/storage/v1/b/bucket/o/a%2Fb/rewriteTo/b/bucket/o/c%20d?projection=noAcl"
            "&ifSourceGenerationMatch=5&ifGenerationMatch=6&rewriteToken=tok%2Fen"
            "&userProject=my%20project");
  EXPECT_TRUE(request.has_body);
}

TEST(GcsProtocol, ComposesGenerationsOnCondition) {
  HttpRequest request;
  std::string scratch;
  kBilled.composing()->build_compose(
      request,
      {.sources = {{.name = "a\"b", .generation = "5"}, {.name = "c", .generation = "6"}},
       .name = "d/e",
       .precondition = {.generation = ""}},
      scratch);
  EXPECT_EQ(request.method, "POST");
  EXPECT_THAT(request.target,
              AllOf(StartsWith("/storage/v1/b/bucket/o/d%2Fe/compose?alt=json&ifGenerationMatch=0"),
                    EndsWith("&userProject=my%20project")));
  EXPECT_EQ(joined_body(request),
            R"({"sourceObjects":[{"name":"a\"b","objectPreconditions":{"ifGenerationMatch":"5"}},)"
            R"({"name":"c","objectPreconditions":{"ifGenerationMatch":"6"}}],)"
            R"("destination":{"contentType":"application/octet-stream"}})");
  EXPECT_TRUE(request.has_body);
}

ReadFacts facts_of(std::string_view text, ResponseHead& head) {
  EXPECT_TRUE(parse_response_head(text, head).has_value());
  return kPlain.read_facts(head);
}

TEST(GcsProtocol, ReadsTheFactsOfAnAnswer) {
  ResponseHead head;
  const ReadFacts facts = facts_of(
      "HTTP/1.1 200 OK\r\nX-Goog-Generation: 77\r\nx-goog-hash: crc32c=mnG7TA==,md5=abcd\r\n"
      "x-goog-stored-content-length: 5\r\nx-goog-stored-content-encoding: identity\r\n"
      "Content-Length: 5\r\n\r\n",
      head);
  EXPECT_EQ(facts.generation.view(), "77");
  EXPECT_EQ(facts.checksum, Crc32c::from_base64("mnG7TA==").value());
  EXPECT_EQ(facts.stored_bytes, 5u);
  EXPECT_FALSE(facts.stored_gzip);
  EXPECT_FALSE(facts.decompressed_by_server);
}

TEST(GcsProtocol, TellsStoredGzipFromWhatTheServerDecompressed) {
  ResponseHead head;
  ReadFacts facts = facts_of(
      "HTTP/1.1 200 OK\r\nx-goog-stored-content-encoding: gzip\r\nContent-Encoding: gzip\r\n\r\n",
      head);
  EXPECT_TRUE(facts.stored_gzip);
  EXPECT_FALSE(facts.decompressed_by_server);
  facts = facts_of("HTTP/1.1 200 OK\r\nx-goog-stored-content-encoding: gzip\r\n\r\n", head);
  EXPECT_TRUE(facts.decompressed_by_server);
}

// What the protocol makes of a refusal with this status, body and other header lines.
Refusal refusal_of(int status, std::string_view body, std::string_view header_lines = "",
                   bool of_removal = false) {
  const std::string text = cat("HTTP/1.1 ", status, " No\r\n", header_lines, "\r\n");
  ResponseHead head;
  EXPECT_TRUE(parse_response_head(text, head).has_value());
  return kPlain.refusal({.head = head, .body = body, .of_removal = of_removal});
}

struct Mapping {
  int status;
  const char* reason;
  const char* message;
  Code code;
};

class GcsErrors : public ::testing::TestWithParam<Mapping> {};

TEST(GcsProtocol, AnObjectUnderRetentionOrHoldIsRefusedWithAdviceThatIsOfUse) {
  for (const char* reason : {"retentionPolicyNotMet", "objectUnderActiveHold"}) {
    const std::string body = cat(R"({"error":{"message":"Held.","errors":[{"reason":")", reason,
                                 R"(","message":"Held."}]}})");
    const Error of_write = refusal_of(403, body).error;
    EXPECT_EQ(of_write.code(), Code::kPermissionDenied);
    EXPECT_THAT(of_write.message(), EndsWith("Held.; until then it can be neither replaced nor "
                                             "deleted: write to another name"));
    EXPECT_THAT(refusal_of(403, body, "", /*of_removal=*/true).error.message(),
                EndsWith("Held.; until then it can be neither replaced nor deleted"));
  }
}

TEST_P(GcsErrors, MapToOneCode) {
  const Mapping& given = GetParam();
  const std::string body =
      cat(R"({"error":{"code":)", given.status, R"(,"message":")", given.message,
          R"(","errors":[{"reason":")", given.reason, R"(","message":")", given.message, "\"}]}}");
  const Refusal refusal =
      refusal_of(given.status, body, "Retry-After: 7\r\nX-GUploader-UploadID: id-1\r\n");
  EXPECT_EQ(refusal.stale_credentials, given.status == 401);
  const Error& error = refusal.error;
  EXPECT_EQ(error.code(), given.code) << error.to_string();
  EXPECT_EQ(error.http_status(), given.status);
  EXPECT_EQ(error.request_id(), "id-1");
  EXPECT_EQ(error.retry_after(), std::chrono::seconds(7));
  EXPECT_THAT(error.message(), HasSubstr(given.message));
}

INSTANTIATE_TEST_SUITE_P(
    Table, GcsErrors,
    ::testing::Values(Mapping{400, "invalid", "Bad request.", Code::kInvalidArgument},
                      Mapping{400, "invalid",
                              "Provided CRC32C 'a' doesn't match calculated CRC32C 'b'.",
                              Code::kCorrupt},
                      Mapping{401, "authError", "Invalid Credentials", Code::kPermissionDenied},
                      Mapping{403, "forbidden", "No access.", Code::kPermissionDenied},
                      Mapping{403, "rateLimitExceeded", "Slow.", Code::kThrottled},
                      Mapping{403, "userRateLimitExceeded", "Slow.", Code::kThrottled},
                      Mapping{404, "notFound", "No such object.", Code::kNotFound},
                      Mapping{408, "timeout", "Request timeout.", Code::kTimedOut},
                      Mapping{409, "conflict", "Being changed.", Code::kUnavailable},
                      Mapping{410, "gone", "Gone.", Code::kNotFound},
                      Mapping{412, "conditionNotMet", "Condition.", Code::kPreconditionFailed},
                      Mapping{304, "notModified", "Condition.", Code::kPreconditionFailed},
                      Mapping{413, "uploadTooLarge", "Too large.", Code::kInvalidArgument},
                      Mapping{429, "rateLimitExceeded", "Too fast.", Code::kThrottled},
                      Mapping{500, "backendError", "Internal.", Code::kUnavailable},
                      Mapping{502, "backendError", "Bad gateway.", Code::kUnavailable},
                      Mapping{503, "backendError", "Unavailable.", Code::kUnavailable},
                      Mapping{503, "rateLimitExceeded", "Too fast.", Code::kThrottled},
                      Mapping{503, "backendError", "SlowDown, please.", Code::kThrottled},
                      Mapping{504, "backendError", "Gateway timeout.", Code::kUnavailable}),
    [](const auto& info) {
      return cat(info.param.status, "_", info.param.reason, "_", info.index);
    });

TEST(GcsProtocol, AnErrorWithAGoodStatusIsARefusal) {
  ResponseHead head;
  ASSERT_TRUE(parse_response_head("HTTP/1.1 200 OK\r\n\r\n", head));
  const auto late = [&](std::string_view body) {
    return kPlain.late_refusal({.head = head, .body = body});
  };
  EXPECT_EQ(late(R"({ "error": {"code": 403, "message": "no"}})")->error.code(),
            Code::kPermissionDenied);
  EXPECT_EQ(late(R"({"error":"x"})")->error.code(), Code::kUnavailable);
  for (const char* body :
       {"", "{}", R"({"kind":"storage#object","error":1})", "<html>", "\"error\""}) {
    EXPECT_FALSE(late(body)) << body;
  }
  EXPECT_FALSE(kPlain.may_send(BodyShape::kHtml));
  EXPECT_TRUE(kPlain.may_send(shape_of("null\n"))) << "of fake-gcs-server, to a delete";
}

std::string throttled(std::string_view reason, std::string_view message) {
  const std::string body = cat(R"({"error":{"code":429,"message":")", message,
                               R"(","errors":[{"reason":")", reason, R"("}]}})");
  return refusal_of(429, body).error.message();
}

TEST(GcsErrors, ThrottlingTellsRequestRateFromBandwidth) {
  const std::string rate = throttled("rateLimitExceeded", "The rate of requests is too high.");
  EXPECT_THAT(rate, AllOf(HasSubstr("request-rate limit"), Not(HasSubstr("egress quota"))));
  const std::string bandwidth = throttled("rateLimitExceeded", "Egress bandwidth limit exceeded.");
  EXPECT_THAT(bandwidth, AllOf(HasSubstr("egress quota"), Not(HasSubstr("request-rate"))));
}

TEST(GcsErrors, ABodyThatIsNotJsonStillMakesAnError) {
  const Error error = refusal_of(502, "<html>proxy", "Retry-After: soon\r\n").error;
  EXPECT_EQ(error.code(), Code::kUnavailable);
  EXPECT_FALSE(error.message().empty());
  EXPECT_EQ(error.retry_after(), std::nullopt);
}

TEST(GcsProtocol, UrlsAreWrittenAsUsersWriteThem) {
  EXPECT_EQ(kPlain.url_of("a b/50%#1"), "gs://bucket/a b/50%#1");
}

}  // namespace
}  // namespace headrace
