#include "headrace/format/ais_error.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace {

constexpr std::string_view kBucketMissing =
    R"({"tcode":"ErrBckNotFound","message":"bucket \"ais://nix\" does not exist","method":"GET",)"
    R"("url_path":"/v1/buckets/nix","remote_addr":"127.0.0.1:33712","caller":"","node":"p[kWQp8080]",)"
    R"("status":404})";

TEST(AisError, SaysTypeMessageNodeAndStatus) {
  const AisError error = parse_ais_error(kBucketMissing);
  EXPECT_EQ(error.type, "ErrBckNotFound");
  EXPECT_EQ(error.message, "bucket \"ais://nix\" does not exist");
  EXPECT_EQ(error.node, "p[kWQp8080]");
  EXPECT_EQ(error.status, 404);
  EXPECT_TRUE(is_ais_bucket_missing(error));
  EXPECT_FALSE(is_ais_bucket_missing({.type = "ErrNotFound"}));
}

TEST(AisError, ReadsTheKeyThatEarlyServersMisspell) {
  const AisError error = parse_ais_error(R"({"mssage":"no such thing","status":400})");
  EXPECT_EQ(error.message, "no such thing");
  EXPECT_EQ(parse_ais_error(R"({"message":"a","mssage":"b"})").message, "a");
}

TEST(AisError, ComesInAHeaderWhereThereIsNoBody) {
  EXPECT_EQ(parse_ais_error("", kBucketMissing).type, "ErrBckNotFound");
  EXPECT_EQ(parse_ais_error("\n", kBucketMissing).type, "ErrBckNotFound");
  EXPECT_EQ(parse_ais_error("what a gateway says", kBucketMissing).message, "what a gateway says");
}

TEST(AisError, WhatIsNoJsonIsTheMessageInOneLine) {
  EXPECT_EQ(parse_ais_error("<html>\n<b>\x01 502</b>").message, "<html> <b> 502</b>");
  EXPECT_EQ(parse_ais_error("").message, "");
  EXPECT_EQ(parse_ais_error(std::string(1000, 'x')).message.size(), 200u);
  EXPECT_EQ(parse_ais_error(R"(["message"])").message, R"(["message"])");
  const AisError odd = parse_ais_error(R"({"tcode":"ErrX","message":7,"status":"x"})");
  EXPECT_EQ(odd.message, "ErrX");
  EXPECT_EQ(odd.status, 0);
}

TEST(AisError, MeansWhatStatusAndTypeSay) {
  struct Case {
    int status;
    const char* type;
    Code code;
  };
  for (const Case& each : {
           Case{400, "", Code::kInvalidArgument},
           Case{401, "", Code::kPermissionDenied},
           Case{403, "ErrObjectAccessDenied", Code::kPermissionDenied},
           Case{404, "ErrNotFound", Code::kNotFound},
           Case{404, "ErrBckNotFound", Code::kNotFound},
           Case{408, "", Code::kTimedOut},
           Case{409, "ErrBucketAlreadyExists", Code::kPreconditionFailed},
           Case{409, "ErrBusy", Code::kUnavailable},
           Case{416, "ErrRangeNotSatisfiable", Code::kInvalidArgument},
           Case{429, "ErrTooManyRequests", Code::kThrottled},
           Case{500, "ErrBadCksum", Code::kCorrupt},
           Case{500, "ErrFailedTo", Code::kUnavailable},
           Case{501, "ErrUnsupp", Code::kInvalidArgument},
           Case{503, "", Code::kUnavailable},
           Case{503, "ErrRateLimitFrontend", Code::kThrottled},
           Case{507, "ErrCapExceeded", Code::kExhausted},
           Case{302, "", Code::kUnavailable},
       }) {
    EXPECT_EQ(to_string(ais_code_of(each.status, each.type)), to_string(each.code))
        << each.status << ' ' << each.type;
  }
}

}  // namespace
}  // namespace headrace
