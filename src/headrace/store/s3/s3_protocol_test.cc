#include "headrace/store/s3/s3_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <ctime>
#include <random>
#include <string>

#include "headrace/format/percent.h"
#include "headrace/store/condition_proof.h"
#include "headrace/store/copies.h"
#include "headrace/store/multipart_uploads.h"
#include "headrace/store/name_before.h"
#include "headrace/store/s3/s3_errors.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

S3Protocol protocol_of(const S3Options& options = {}, std::string_view root = "",
                       const std::string& endpoint = "http://127.0.0.1:9000") {
  return S3Protocol("bucket", S3Home::create("bucket", endpoint, options).value(), options,
                    Root(root));
}

TEST(S3Protocol, ReadsConditionallyOnTheEtagAndByRange) {
  HttpRequest request;
  protocol_of().build_read(request, "a b/ü+.txt", "0123-4", ByteRange{10, 20});
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.target, "/bucket/a%20b/%C3%BC%2B.txt");
  EXPECT_EQ(request.header_lines,
            "If-Match: \"0123-4\"\r\nRange: bytes=10-19\r\nx-amz-checksum-mode: ENABLED\r\n");
}

TEST(S3Protocol, NamesAreSentAsTheyAre) {
  HttpRequest request;
  protocol_of({}, "run").build_read(request, "a//b/../c%2F", "", {});
  EXPECT_EQ(request.target, "/bucket/run/a//b/../c%252F");
}

TEST(S3Protocol, ABucketInTheHostsNameIsNotInThePath) {
  HttpRequest request;
  const S3Protocol amazon = protocol_of({}, "", "");
  amazon.build_stat(request, "n");
  EXPECT_EQ(request.target, "/n");
  EXPECT_EQ(request.method, "HEAD");
  request.clear();
  amazon.build_list(request, {});
  EXPECT_THAT(request.target, StartsWith("/?list-type=2"));
}

TEST(S3Protocol, ListsWithEveryParameterEncoded) {
  HttpRequest request;
  protocol_of({}, "run").build_list(
      request, {.prefix = "a b/", .delimiter = "/", .page_token = "t=&", .max_results = 7});
  EXPECT_EQ(request.target,
            "/bucket?list-type=2&encoding-type=url&continuation-token=t%3D%26&delimiter=%2F&"
            "max-keys=7&prefix=run%2Fa%20b%2F");
  request.clear();
  protocol_of().build_list(request, {.start_offset = "b"});
  EXPECT_THAT(request.target, HasSubstr("&start-after=a%F4%8F%BF%BF"));
}

TEST(S3Protocol, WritesWithChecksumConditionAndEncryption) {
  const S3Protocol protocol =
      protocol_of({.requester_pays = true, .encryption = "aws:kms", .kms_key_id = "key-1"});
  HttpRequest request;
  std::string scratch;
  protocol.build_write(request, {.name = "n", .precondition = {.generation = ""}}, {},
                       Crc32c().extended(std::as_bytes(std::span("123456789", 9))), scratch);
  EXPECT_EQ(request.method, "PUT");
  EXPECT_THAT(
      request.header_lines,
      AllOf(HasSubstr("x-amz-checksum-crc32c: 4waSgw==\r\n"), HasSubstr("If-None-Match: *\r\n"),
            HasSubstr("x-amz-request-payer: requester\r\n"),
            HasSubstr("x-amz-server-side-encryption: aws:kms\r\n"),
            HasSubstr("x-amz-server-side-encryption-aws-kms-key-id: key-1\r\n")));
  request.clear();
  protocol.build_remove(request, "n", {.generation = "abc"});
  EXPECT_THAT(request.header_lines, HasSubstr("If-Match: \"abc\"\r\n"));
}

TEST(S3Protocol, ACallersKeyGoesWithReadsPartsAndCopies) {
  const S3Protocol protocol = protocol_of({.customer_key = std::vector<std::byte>(32)});
  const std::string algorithm = "x-amz-server-side-encryption-customer-algorithm: AES256\r\n";
  HttpRequest request;
  protocol.build_read(request, "n", "", {});
  EXPECT_THAT(request.header_lines,
              AllOf(HasSubstr(algorithm),
                    HasSubstr("customer-key: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n"),
                    HasSubstr("customer-key-MD5: cLyPS3KoaSFGi/joRB3OUQ==\r\n")));
  request.clear();
  protocol.multipart()->build_part(request, "n", "id", 1, {}, Crc32c());
  EXPECT_THAT(request.header_lines, HasSubstr(algorithm));
  request.clear();
  protocol.copies()->build_copy(request, {.source_name = "a b", .name = "c"}, "");
  EXPECT_THAT(request.header_lines,
              AllOf(HasSubstr(algorithm), HasSubstr("x-amz-copy-source: /bucket/a%20b\r\n"),
                    HasSubstr("x-amz-copy-source-server-side-encryption-customer-algorithm")));
}

TEST(S3Protocol, OnlyServicesOutsideOfAmazonAreAskedWhetherTheyKeepToConditions) {
  EXPECT_EQ(protocol_of({}, "", "").condition_proof(), nullptr);
  const S3Protocol other = protocol_of({.encryption = "AES256"}, "run");
  ASSERT_NE(other.condition_proof(), nullptr);
  HttpRequest request;
  other.condition_proof()->build_write(request, "headrace-uploads/7/c", {.generation = ""}, true);
  EXPECT_EQ(request.target, "/bucket/headrace-uploads/7/c") << "outside of the root";
  EXPECT_THAT(request.header_lines, AllOf(HasSubstr("If-None-Match: *\r\n"),
                                          HasSubstr("Content-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==\r\n"),
                                          HasSubstr("x-amz-server-side-encryption: AES256\r\n")));
}

TEST(S3Protocol, WhereTargetsAreLookedAtFirstNoChangeCarriesACondition) {
  const S3Protocol protocol = protocol_of({.conditional_writes = ConditionalWrites::kLook});
  EXPECT_TRUE(protocol.looks_before_writes());
  EXPECT_EQ(protocol.condition_proof(), nullptr);
  HttpRequest request;
  std::string scratch;
  protocol.build_write(request, {.name = "n", .precondition = {.generation = ""}}, {}, {}, scratch);
  protocol.copies()->build_copy(request, {.source_name = "m", .name = "n", .precondition = {"e"}},
                                "");
  protocol.build_remove(request, "n", {.generation = "e"});
  protocol.multipart()->build_complete(
      request, {.name = "n", .upload_id = "u", .parts = {}, .precondition = {"e"}}, scratch);
  EXPECT_THAT(request.header_lines,
              AllOf(Not(HasSubstr("\nIf-Match")), Not(HasSubstr("If-None-Match"))));
}

Checksum told(const S3Protocol& protocol, std::string_view lines,
              std::string_view status = "200 OK",
              std::string_view etag = "0cc175b9c0f1b6a831c399e269772661") {
  ResponseHead head;
  const std::string text = cat("HTTP/1.1 ", status, "\r\nETag: \"", etag, "\"\r\n", lines, "\r\n");
  EXPECT_TRUE(parse_response_head(text, head));
  return protocol.read_facts(head).checksum;
}

TEST(S3Protocol, ASumOfPartsIsNotTakenForThatOfTheWhole) {
  const S3Protocol protocol = protocol_of();
  const Checksum sum = Crc32c(0xE3069283);
  EXPECT_EQ(told(protocol, "x-amz-checksum-crc32c: 4waSgw==\r\n"), sum);
  EXPECT_EQ(
      told(protocol, "X-Amz-Checksum-Crc32c: 4waSgw==\r\nx-amz-checksum-type: FULL_OBJECT\r\n"),
      sum);
  for (const char* lines :
       {"x-amz-checksum-crc32c: 4waSgw==-3\r\nx-amz-checksum-type: COMPOSITE\r\n",
        "x-amz-checksum-crc32c: 4waSgw==\r\nx-amz-checksum-type: COMPOSITE\r\n",
        "x-amz-checksum-crc32c: AAAA\r\n", "x-amz-checksum-sha1: AAAA\r\n",
        "x-amz-checksum-other: 4waSgw==\r\n", "x-amz-checksum-: 4waSgw==\r\n", ""}) {
    EXPECT_TRUE(told(protocol, lines).empty()) << lines;
  }
  // That of a range may be that of a part.
  EXPECT_TRUE(told(protocol, "x-amz-checksum-crc32c: 4waSgw==\r\n", "206 Partial").empty());
}

TEST(S3Protocol, SumsOfEveryKindAreTold) {
  const S3Protocol protocol = protocol_of();
  EXPECT_EQ(told(protocol, "x-amz-checksum-crc32: y/Q5Jg==\r\n"),
            Checksum(ChecksumKind::kCrc32, 0xCBF43926));
  EXPECT_EQ(told(protocol, "x-amz-checksum-crc64nvme: rosUhgp5lIg=\r\n"),
            Checksum(ChecksumKind::kCrc64Nvme, 0xAE8B14860A799488));
  EXPECT_EQ(told(protocol, "x-amz-checksum-sha1: 2jmj7l5rSw0yVb/vlWAYkK/YBwk=\r\n").kind(),
            ChecksumKind::kSha1);
  // Of two, the one that costs nothing.
  for (const char* lines :
       {"x-amz-checksum-sha1: 2jmj7l5rSw0yVb/vlWAYkK/YBwk=\r\nx-amz-checksum-crc32: y/Q5Jg==\r\n",
        "x-amz-checksum-crc32: y/Q5Jg==\r\nx-amz-checksum-sha1: "
        "2jmj7l5rSw0yVb/vlWAYkK/YBwk=\r\n"}) {
    EXPECT_EQ(told(protocol, lines).kind(), ChecksumKind::kCrc32) << lines;
  }
}

TEST(S3Protocol, OfSeveralSumsTheBestIsTakenThatIsOfTheWholeObject) {
  const S3Protocol protocol = protocol_of();
  const Checksum crc32c = Crc32c(0xE3069283);
  const Checksum crc64(ChecksumKind::kCrc64Nvme, 0xAE8B14860A799488);
  constexpr const char* kCrc32c = "x-amz-checksum-crc32c: 4waSgw==\r\n";
  constexpr const char* kCrc64 = "x-amz-checksum-crc64nvme: rosUhgp5lIg=\r\n";
  constexpr const char* kSha1 = "x-amz-checksum-sha1: 2jmj7l5rSw0yVb/vlWAYkK/YBwk=\r\n";
  EXPECT_EQ(told(protocol, cat(kCrc32c, kCrc64)), crc32c);
  EXPECT_EQ(told(protocol, cat(kCrc64, kSha1, kCrc32c)), crc32c);
  // What is malformed, or of parts, hides no other one.
  EXPECT_EQ(told(protocol, cat("x-amz-checksum-crc32c: 4waSgw==-3\r\n", kCrc64)), crc64);
  EXPECT_EQ(told(protocol, cat("x-amz-checksum-crc32c: x\r\n", kCrc64)), crc64);
  EXPECT_EQ(told(protocol, cat("x-amz-checksum-crc32c: x\r\n", kSha1)).kind(), ChecksumKind::kSha1);
  EXPECT_EQ(told(protocol, cat(kCrc64, kCrc64)), crc64);
  // Which of them the type is about is not known.
  EXPECT_TRUE(told(protocol, cat(kCrc32c, kCrc64, "x-amz-checksum-type: COMPOSITE\r\n")).empty());
}

TEST(S3Protocol, TwoSumsOfOneKindContradictEachOther) {
  const S3Protocol protocol = protocol_of();
  ResponseHead head;
  ASSERT_TRUE(
      parse_response_head("HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 1\r\n"
                          "x-amz-checksum-crc32c: 4waSgw==\r\n"
                          "x-amz-checksum-crc32c: AAAAAA==\r\n\r\n",
                          head));
  EXPECT_TRUE(protocol.read_facts(head).sums_differ);
  EXPECT_TRUE(protocol.parse_stat({.head = head, .body = ""}, "n")->checksum.empty());
  EXPECT_EQ(protocol.parse_written({.head = head, .body = ""}, {.name = "n"}, 1).error().code(),
            Code::kCorrupt);
}

TEST(S3Protocol, WhatIsMalformedOrOfPartsContradictsNoSum) {
  const S3Protocol protocol = protocol_of();
  for (const char* other : {"", "x", "\"4waSgw==\"", "AAAAAA==-3"}) {
    for (const bool is_first : {false, true}) {
      ResponseHead head;
      const std::string good = "x-amz-checksum-crc32c: 4waSgw==\r\n";
      const std::string line = cat("x-amz-checksum-crc32c: ", other, "\r\n");
      const std::string text = cat("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n",
                                   is_first ? line + good : good + line, "\r\n");
      ASSERT_TRUE(parse_response_head(text, head));
      EXPECT_FALSE(protocol.read_facts(head).sums_differ) << other;
      EXPECT_EQ(protocol.parse_stat({.head = head, .body = ""}, "n")->checksum,
                Checksum(ChecksumKind::kCrc32c, 0xE3069283))
          << other;
    }
  }
}

TEST(S3Protocol, ARefusalInWordsThatNobodyKnowsMayBeAboutAnything) {
  const S3Protocol protocol = protocol_of();
  ResponseHead head;
  ASSERT_TRUE(parse_response_head("HTTP/1.1 400 Bad Request\r\n\r\n", head));
  const auto blames = [&](std::string_view code, std::string_view message = "m") {
    const std::string body =
        cat("<Error><Code>", code, "</Code><Message>", message, "</Message></Error>");
    const Refusal refusal = protocol.refusal({.head = head, .body = body});
    EXPECT_TRUE(refusal.blames_headers || !refusal.blames_taken);
    return refusal.blames_taken     ? "what was taken"
           : refusal.blames_headers ? "what is new"
                                    : "no header";
  };
  EXPECT_STREQ(blames("Wrong"), "what was taken");
  EXPECT_STREQ(blames("BadRequest"), "what was taken");
  EXPECT_STREQ(blames("InvalidArgument", "X-Amz-Checksum-Crc32c is not supported"),
               "what was taken");
  EXPECT_STREQ(blames("InvalidArgument"), "what is new");
  EXPECT_STREQ(blames("InvalidArgument", "x-amz-storage-class"), "what is new");
  EXPECT_STREQ(blames("EntityTooSmall"), "no header");
  EXPECT_STREQ(blames("InvalidDigest"), "no header");
  EXPECT_STREQ(blames("Wrong", "the checksum does not match"), "no header");
  EXPECT_TRUE(protocol.refusal({.head = head, .body = "<html>"}).blames_taken);
}

TEST(S3Protocol, ASumOfAPartThatIsNoneIsNotTold) {
  const S3Protocol protocol = protocol_of();
  for (const char* told : {"", "x", "AAAAAA==-3", "\"4waSgw==\""}) {
    ResponseHead head;
    const std::string line = cat("x-amz-checksum-crc32c: ", told, "\r\n");
    const std::string alone = cat("HTTP/1.1 200 OK\r\n", line, "\r\n");
    ASSERT_TRUE(parse_response_head(alone, head));
    EXPECT_TRUE(protocol.told_sum(head, ChecksumKind::kCrc32c).empty()) << told;
    const std::string both =
        cat("HTTP/1.1 200 OK\r\n", line, "x-amz-checksum-crc32c: 4waSgw==\r\n\r\n");
    ASSERT_TRUE(parse_response_head(both, head));
    EXPECT_EQ(protocol.told_sum(head, ChecksumKind::kCrc32c),
              Checksum(ChecksumKind::kCrc32c, 0xE3069283));
    EXPECT_TRUE(protocol.told_sum(head, ChecksumKind::kNone).empty());
  }
}

TEST(S3Protocol, AnErrorThatCannotBeReadIsARefusalToo) {
  const S3Protocol protocol = protocol_of();
  ResponseHead head;
  ASSERT_TRUE(parse_response_head("HTTP/1.1 200 OK\r\n\r\n", head));
  for (const char* body : {"<Error>", "<Error><Message>m</Message></Error>", "<Error/>x"}) {
    EXPECT_EQ(protocol.late_refusal({.head = head, .body = body})->error.code(), Code::kUnavailable)
        << body;
  }
}

TEST(S3Protocol, ARefusalThatCameWithAGoodStatusIsOneLikeAnother) {
  const S3Protocol protocol = protocol_of();
  ResponseHead head;
  ASSERT_TRUE(parse_response_head("HTTP/1.1 200 OK\r\nx-amz-request-id: R\r\n\r\n", head));
  const auto refusal = [&](std::string_view code, std::string_view message = "m") {
    const std::string body =
        cat("<Error><Code>", code, "</Code><Message>", message, "</Message></Error>");
    return protocol.late_refusal({.head = head, .body = body});
  };
  EXPECT_FALSE(protocol.late_refusal({.head = head, .body = "<CopyObjectResult/>"}));
  EXPECT_TRUE(refusal("NotImplemented")->blames_headers);
  EXPECT_EQ(refusal("NotImplemented")->error.http_status(), 501);
  EXPECT_TRUE(refusal("InvalidArgument")->blames_headers);
  EXPECT_FALSE(refusal("InternalError")->blames_headers);
  EXPECT_TRUE(refusal("ExpiredToken")->stale_credentials);
  EXPECT_EQ(refusal("SlowDown")->error.code(), Code::kThrottled);
  EXPECT_EQ(refusal("SlowDown")->error.request_id(), "R");
}

TEST(S3Protocol, AnETagIsAnMd5OnlyWhereItIsAskedForAndNothingHidesIt) {
  const auto home = S3Home::create("bucket", "http://127.0.0.1:9000", {}).value();
  const S3Protocol all("bucket", home, {}, Root(), Verify::kAll);
  EXPECT_EQ(told(all, ""),
            checksum_from_hex(ChecksumKind::kMd5, "0cc175b9c0f1b6a831c399e269772661").value());
  EXPECT_EQ(told(all, "x-amz-server-side-encryption: AES256\r\n").kind(), ChecksumKind::kMd5);
  EXPECT_EQ(told(all, "x-amz-checksum-crc32: y/Q5Jg==\r\n").kind(), ChecksumKind::kCrc32);
  for (const char* lines : {"x-amz-server-side-encryption: aws:kms\r\n",
                            "x-amz-server-side-encryption: aws:kms:dsse\r\n",
                            "x-amz-server-side-encryption-customer-algorithm: AES256\r\n"}) {
    EXPECT_TRUE(told(all, lines).empty()) << lines;
  }
  EXPECT_TRUE(told(all, "", "200 OK", "0cc175b9c0f1b6a831c399e269772661-2").empty());
  EXPECT_TRUE(told(protocol_of(), "").empty());
}

struct Mapping {
  int status;
  const char* code;
  Code ours;
  bool stale = false;
};

class S3Errors : public ::testing::TestWithParam<Mapping> {};

Refusal refusal_of(const S3Protocol& protocol, int status, std::string_view body,
                   std::string_view lines = "") {
  const std::string text = cat("HTTP/1.1 ", status, " No\r\n", lines, "\r\n");
  ResponseHead head;
  EXPECT_TRUE(parse_response_head(text, head).has_value());
  return protocol.refusal({.head = head, .body = body});
}

TEST_P(S3Errors, MapToOneCode) {
  const Mapping& given = GetParam();
  const Refusal refusal =
      refusal_of(protocol_of(), given.status,
                 cat("<Error><Code>", given.code, "</Code><Message>said so</Message></Error>"),
                 "x-amz-request-id: id-1\r\nRetry-After: 7\r\n");
  EXPECT_EQ(refusal.error.code(), given.ours) << refusal.error.to_string();
  EXPECT_EQ(refusal.stale_credentials, given.stale);
  EXPECT_EQ(refusal.error.request_id(), "id-1");
  EXPECT_EQ(refusal.error.retry_after(), std::chrono::seconds(7));
  EXPECT_THAT(refusal.error.message(), HasSubstr("said so"));
  EXPECT_FALSE(refusal.moved);
}

INSTANTIATE_TEST_SUITE_P(
    Table, S3Errors,
    ::testing::Values(
        Mapping{400, "InvalidArgument", Code::kInvalidArgument},
        Mapping{400, "ExpiredToken", Code::kPermissionDenied, true},
        Mapping{400, "InvalidToken", Code::kPermissionDenied, true},
        Mapping{400, "BadDigest", Code::kCorrupt}, Mapping{400, "RequestTimeout", Code::kTimedOut},
        Mapping{403, "AccessDenied", Code::kPermissionDenied},
        Mapping{403, "InvalidAccessKeyId", Code::kPermissionDenied, true},
        Mapping{403, "RequestTimeTooSkewed", Code::kPermissionDenied, true},
        Mapping{403, "SignatureDoesNotMatch", Code::kPermissionDenied},
        Mapping{404, "NoSuchKey", Code::kNotFound}, Mapping{404, "NoSuchBucket", Code::kNotFound},
        Mapping{404, "NoSuchUpload", Code::kNotFound},
        Mapping{409, "ConditionalRequestConflict", Code::kUnavailable},
        Mapping{409, "OperationAborted", Code::kUnavailable}, Mapping{409, "", Code::kUnavailable},
        Mapping{409, "ObjectParentIsFile", Code::kInvalidArgument},
        Mapping{412, "PreconditionFailed", Code::kPreconditionFailed},
        Mapping{429, "TooManyRequests", Code::kThrottled},
        Mapping{500, "InternalError", Code::kUnavailable},
        Mapping{501, "NotImplemented", Code::kInvalidArgument},
        Mapping{503, "SlowDown", Code::kThrottled},
        Mapping{503, "ServiceUnavailable", Code::kUnavailable}),
    [](const auto& info) { return cat(info.param.status, "_", info.param.code); });

TEST(S3Errors, ASkewedClockLearnsTheServersTime) {
  const Refusal refusal =
      refusal_of(protocol_of(), 403,
                 "<Error><Code>RequestTimeTooSkewed</Code><Message>off</Message>"
                 "<ServerTime>2026-11-22T10:00:00Z</ServerTime></Error>");
  ASSERT_TRUE(refusal.server_time);
  EXPECT_EQ(*refusal.server_time,
            std::chrono::sys_days(std::chrono::year(2026) / 11 / 22) + std::chrono::hours(10));
}

TEST(S3Errors, AHeadThatIsRefusedShowsAWrongClockByItsDate) {
  const auto denied_at = [](std::chrono::system_clock::time_point time) {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    std::array<char, 64> text{};
    std::strftime(text.data(), text.size(), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts);
    return refusal_of(protocol_of(), 403, "", text.data());
  };
  const auto now = std::chrono::system_clock::now();
  const Refusal denied = denied_at(now);
  EXPECT_FALSE(denied.stale_credentials);
  EXPECT_FALSE(denied.server_time);
  for (const std::chrono::hours off : {std::chrono::hours(-1), std::chrono::hours(1)}) {
    const Refusal skewed = denied_at(now + off);
    EXPECT_TRUE(skewed.stale_credentials);
    ASSERT_TRUE(skewed.server_time);
    EXPECT_LE(std::chrono::abs(*skewed.server_time - (now + off)), std::chrono::seconds(1));
  }
}

TEST(S3Errors, AHeadThatIsBadIsSentOnceMoreSinceAnExpiredTokenLooksLikeThat) {
  EXPECT_TRUE(refusal_of(protocol_of(), 400, "").stale_credentials);
  EXPECT_FALSE(refusal_of(protocol_of(), 404, "").stale_credentials);
}

TEST(S3Errors, ABucketOfAnotherRegionIsLearnedAlsoFromAHeadWithoutBody) {
  const S3Protocol amazon = protocol_of({}, "", "");
  const Refusal refusal = refusal_of(amazon, 301, "", "x-amz-bucket-region: eu-west-1\r\n");
  EXPECT_TRUE(refusal.moved);
  ASSERT_NE(amazon.moved_to(), nullptr);
  EXPECT_EQ(amazon.moved_to()->host, "bucket.s3.eu-west-1.amazonaws.com");
  const S3Protocol other = protocol_of();
  const Refusal malformed = refusal_of(
      other, 400,
      "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region is wrong</Message>"
      "<Region>eu-north-1</Region></Error>");
  EXPECT_TRUE(malformed.moved);
  EXPECT_EQ(other.moved_to(), nullptr);
  // Elsewhere a host that is not Amazon's is named, and not followed.
  const Refusal away = refusal_of(other, 307,
                                  "<Error><Code>TemporaryRedirect</Code><Message>go</Message>"
                                  "<Endpoint>other.example</Endpoint></Error>");
  EXPECT_FALSE(away.moved);
  EXPECT_THAT(away.error.message(), HasSubstr("other.example"));
}

TEST(S3Names, TheNameBeforeIsBelowEveryNameFromThereOn) {
  EXPECT_EQ(name_before("b"), "a\xF4\x8F\xBF\xBF");
  EXPECT_EQ(name_before(std::string("a\0", 2)), "a");
  EXPECT_EQ(name_before("a\xEE\x80\x80"), "a\xED\x9F\xBF\xF4\x8F\xBF\xBF");  // U+E000
  EXPECT_EQ(name_before(""), "");
  std::mt19937 rng(7);
  const std::vector<std::string> characters = {std::string(1, '\0'),
                                               "\x01",
                                               " ",
                                               "/",
                                               "0",
                                               "z",
                                               "~",
                                               "\x7F",
                                               "\xC2\x80",
                                               "\xDF\xBF",
                                               "\xE0\xA0\x80",
                                               "\xED\x9F\xBF",
                                               "\xEE\x80\x80",
                                               "\xEF\xBF\xBF",
                                               "\xF0\x90\x80\x80",
                                               "\xF4\x8F\xBF\xBF"};
  for (int round = 0; round < 2000; ++round) {
    std::string name;
    for (size_t i = 0; i < 1 + rng() % 4; ++i) name += characters[rng() % characters.size()];
    const std::string before = name_before(name);
    EXPECT_LT(before, name);
    EXPECT_TRUE(percent_decode(percent_encode(before)));
  }
}

TEST(S3LateError, MeansWhatItMeansWithItsStatus) {
  struct Mapping {
    const char* code;
    Code meaning;
  };
  for (const Mapping& each : {Mapping{"InternalError", Code::kUnavailable},
                              Mapping{"SomethingNew", Code::kUnavailable},
                              Mapping{"", Code::kUnavailable},
                              Mapping{"SlowDown", Code::kThrottled},
                              Mapping{"RequestTimeout", Code::kTimedOut},
                              Mapping{"BadDigest", Code::kCorrupt},
                              Mapping{"AccessDenied", Code::kPermissionDenied},
                              Mapping{"NoSuchUpload", Code::kNotFound},
                              Mapping{"NoSuchKey", Code::kNotFound},
                              Mapping{"ExpiredToken", Code::kPermissionDenied},
                              Mapping{"PreconditionFailed", Code::kPreconditionFailed},
                              Mapping{"NotImplemented", Code::kInvalidArgument},
                              Mapping{"UnsupportedHeader", Code::kInvalidArgument},
                              Mapping{"RequestTimeTooSkewed", Code::kPermissionDenied},
                              Mapping{"InvalidPart", Code::kInvalidArgument},
                              Mapping{"EntityTooSmall", Code::kInvalidArgument},
                              Mapping{"BadRequest", Code::kInvalidArgument},
                              Mapping{"KeyTooLong", Code::kInvalidArgument},
                              Mapping{"KeyTooLongError", Code::kInvalidArgument},
                              Mapping{"QuotaExceeded", Code::kPermissionDenied},
                              Mapping{"ContentMD5Mismatch", Code::kCorrupt},
                              Mapping{"MethodNotAllowed", Code::kInvalidArgument},
                              Mapping{"OperationAborted", Code::kUnavailable},
                              Mapping{"XMinioStorageFull", Code::kExhausted},
                              Mapping{"MalformedXML", Code::kInvalidArgument}}) {
    EXPECT_EQ(s3_code_of(s3_status_of(each.code).value_or(500), each.code), each.meaning)
        << each.code;
  }
  EXPECT_EQ(s3_code_of(507, ""), Code::kExhausted);
}

}  // namespace
}  // namespace headrace
