#include "headrace/format/sigv4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

namespace headrace {
namespace {

using std::chrono::sys_days;
using std::chrono::system_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

// Those of the examples in Amazon S3's documentation ("Examples: Signature Calculations").
const AwsKeys kExampleKeys{.access_key_id = "AKIAIOSFODNN7EXAMPLE",
                           .secret_access_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
const system_clock::time_point kExampleTime = sys_days(2013y / 5 / 24);
constexpr std::string_view kExampleHost = "examplebucket.s3.amazonaws.com";

SigV4Key example_key() {
  return SigV4Key::derive(kExampleKeys, "us-east-1", "s3", kExampleTime).value();
}

std::string signed_lines(const SigV4Request& request, std::string_view payload,
                         std::string lines = "") {
  sign_headers(request, payload, example_key(), kExampleTime, lines);
  return lines;
}

TEST(SigV4, SignsTheExamplesOfTheDocumentation) {
  EXPECT_EQ(signed_lines({.target = "/?lifecycle", .authority = kExampleHost}, kEmptyPayload),
            "x-amz-content-sha256: "
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\r\n"
            "x-amz-date: 20130524T000000Z\r\n"
            "Authorization: AWS4-HMAC-SHA256 "
            "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
            "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543\r\n");
  EXPECT_THAT(
      signed_lines({.target = "/?max-keys=2&prefix=J", .authority = kExampleHost}, kEmptyPayload),
      HasSubstr("Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7\r\n"));
  const std::string_view lines =
      "Range: bytes=0-9\r\n"
      "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\r\n"
      "x-amz-date: 20130524T000000Z\r\n";
  const std::array<char, 64> exact =
      sigv4_signature({.target = "/test.txt", .authority = kExampleHost}, lines, kEmptyPayload,
                      example_key(), kExampleTime);
  EXPECT_EQ(std::string_view(exact.data(), exact.size()),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(SigV4, PresignsTheExampleOfTheDocumentation) {
  std::string target = "/test.txt";
  presign("GET", kExampleHost, "", example_key(), kExampleTime, 86400s, target);
  EXPECT_EQ(target,
            "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
            "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
            "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
            "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
}

TEST(SigV4, SignsWhatTheServiceAsksForAndNothingThatAProxyMayChange) {
  const std::string lines = signed_lines(
      {.method = "PUT", .target = "/n", .authority = kExampleHost}, kUnsignedPayload,
      "Range: bytes=0-1\r\nContent-Type: text/plain\r\nX-Amz-Meta-B: 2\r\nIf-Match: \"e\"\r\n"
      "content-md5: x\r\nx-amz-: no name\r\nx-forwarded-for: me\r\nx-amz-meta-a: 1\r\n");
  EXPECT_THAT(lines, HasSubstr("SignedHeaders=content-md5;content-type;host;x-amz-content-sha256;"
                               "x-amz-date;x-amz-meta-a;x-amz-meta-b, "));
}

TEST(SigV4, TheOrderOfHeadersAndParametersDoesNotMatter) {
  const auto signature_of = [](std::string_view target, std::string lines) {
    lines = signed_lines({.target = target, .authority = kExampleHost}, kUnsignedPayload, lines);
    return lines.substr(lines.find("Signature="));
  };
  EXPECT_EQ(signature_of("/n?b=2&a=1&a-b&a=0", "x-amz-b: 1\r\nx-amz-a:  2  3 \r\n"),
            signature_of("/n?a=0&a=1&a-b=&b=2", "X-Amz-A: 2 3\r\nRange: x\r\nX-Amz-B: 1\r\n"));
  EXPECT_EQ(signature_of("", ""), signature_of("/", ""));
  EXPECT_EQ(signature_of("/?", ""), signature_of("/", ""));
  EXPECT_NE(signature_of("/n?a=1", ""), signature_of("/n?a=2", ""));
  EXPECT_NE(signature_of("/n//m", ""), signature_of("/n/m", ""));
}

TEST(SigV4, HeadersOfOneNameAreJoinedInTheirOrder) {
  const auto signature_of = [](std::string lines) {
    lines = signed_lines({.authority = kExampleHost}, kUnsignedPayload, lines);
    return lines.substr(lines.find("SignedHeaders="));
  };
  EXPECT_EQ(signature_of("x-amz-a: 1\r\nX-Amz-A: 2\r\n"), signature_of("x-amz-a: 1,2\r\n"));
  EXPECT_NE(signature_of("x-amz-a: 2\r\nX-Amz-A: 1\r\n"), signature_of("x-amz-a: 1,2\r\n"));
}

TEST(SigV4, ASessionTokenIsSentAndSigned) {
  AwsKeys keys = kExampleKeys;
  keys.session_token = std::string(1500, 't');
  const SigV4Key key = SigV4Key::derive(keys, "us-east-1", "s3", kExampleTime).value();
  std::string lines;
  sign_headers({.authority = kExampleHost}, kUnsignedPayload, key, kExampleTime, lines);
  EXPECT_THAT(lines, AllOf(HasSubstr("x-amz-security-token: " + keys.session_token + "\r\n"),
                           HasSubstr("x-amz-date;x-amz-security-token, ")));
  std::string target = "/n?versionId=1";
  presign("GET", kExampleHost, "", key, kExampleTime, 60s, target);
  EXPECT_THAT(target, HasSubstr("/n?versionId=1&X-Amz-Algorithm="));
  EXPECT_THAT(target, HasSubstr("&X-Amz-Security-Token=" + keys.session_token + "&"));
}

TEST(SigV4, AKeyIsGoodForItsDay) {
  const SigV4Key key = example_key();
  EXPECT_TRUE(key.covers(kExampleTime));
  EXPECT_TRUE(key.covers(kExampleTime + 24h - 1ns));
  EXPECT_FALSE(key.covers(kExampleTime + 24h));
  EXPECT_FALSE(key.covers(kExampleTime - 1ns));
  EXPECT_EQ(key.scope(), "20130524/us-east-1/s3/aws4_request");
  EXPECT_EQ(key.credential(), "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request");
}

TEST(SigV4, NothingOfARequestIsLeftForTheNext) {
  AwsKeys others = kExampleKeys;
  others.secret_access_key = "another";
  const std::vector<SigV4Key> keys = {
      example_key(), SigV4Key::derive(others, "us-east-1", "s3", kExampleTime).value(),
      SigV4Key::derive(kExampleKeys, "eu-west-1", "s3", kExampleTime).value()};
  std::set<std::string> signatures;
  for (const SigV4Key& key : keys) {
    for (const auto time : {kExampleTime, kExampleTime + 1s}) {
      for (const std::string_view sent : {"", "x-amz-a: 1\r\n", "X-Amz-A: 1\r\nContent-Type: a\r\n",
                                          "x-amz-b: 1\r\nx-amz-b: 2\r\n"}) {
        std::string lines(sent);
        sign_headers({.authority = kExampleHost}, kUnsignedPayload, key, time, lines);
        signatures.insert(lines.substr(lines.find("Signature=")));
        EXPECT_THAT(
            signed_lines({.target = "/?lifecycle", .authority = kExampleHost}, kEmptyPayload),
            HasSubstr("SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature="
                      "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543\r\n"));
      }
    }
  }
  EXPECT_EQ(signatures.size(), keys.size() * 2 * 4);
}

TEST(SigV4, TimesAreWrittenInTheirFullLength) {
  const system_clock::time_point time = sys_days(2024y / 2 / 29) + 23h + 59min + 58s + 999ms;
  const SigV4Key key = SigV4Key::derive(kExampleKeys, "us-east-1", "s3", time).value();
  std::string lines;
  sign_headers({.authority = kExampleHost}, kUnsignedPayload, key, time, lines);
  EXPECT_THAT(lines, HasSubstr("x-amz-date: 20240229T235958Z\r\n"));
}

TEST(SigV4, KeysThatCannotStandInAHeaderAreRefusedWithoutBeingShown) {
  const auto error_of = [](AwsKeys keys, std::string_view region = "r") {
    return SigV4Key::derive(keys, region, "s3", kExampleTime).error();
  };
  for (const char* bad : {"", "se cret", "se\r\ncret", "secr\xC3\xA9t"}) {
    const Error error = error_of({.access_key_id = "A", .secret_access_key = bad});
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("the secret access key"));
    if (*bad != '\0') EXPECT_THAT(error.message(), Not(HasSubstr(bad)));
  }
  EXPECT_THAT(error_of({.access_key_id = "", .secret_access_key = "s"}).message(),
              HasSubstr("the access key id"));
  EXPECT_THAT(
      error_of({.access_key_id = "A", .secret_access_key = "s", .session_token = "\n"}).message(),
      HasSubstr("the session token"));
  EXPECT_THAT(error_of({.access_key_id = "A", .secret_access_key = "s"}, "").message(),
              HasSubstr("the region"));
}

TEST(SigV4, ALongSecretAndALongScopeAreSigned) {
  // Longer than HMAC's block, and than what usually suffices for the scope.
  AwsKeys keys = kExampleKeys;
  keys.secret_access_key = std::string(200, 's');
  const std::string region(300, 'r');
  const SigV4Key key = SigV4Key::derive(keys, region, "s3", kExampleTime).value();
  std::string lines;
  sign_headers({.authority = kExampleHost}, kUnsignedPayload, key, kExampleTime, lines);
  EXPECT_THAT(lines, HasSubstr(region));
  // As Python's hmac computes it.
  EXPECT_THAT(
      lines,
      HasSubstr("Signature=61a9c8c92b968c763db071424803624500e23c2efc41f3708a8a25741d4240d9\r\n"));
}

}  // namespace
}  // namespace headrace
