#include "headrace/store/s3/s3_home.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<S3Home> home(std::string_view bucket, const std::string& endpoint = "",
                             const S3Options& options = {}) {
  Result<std::shared_ptr<S3Home>> made = S3Home::create(bucket, endpoint, options);
  EXPECT_TRUE(made) << made.error().to_string();
  return made ? *made : nullptr;
}

TEST(S3Home, AmazonsEndpointsFollowRegionAndOptions) {
  const auto host = [](std::string_view bucket, const S3Options& options) {
    return home(bucket, "", options)->first_endpoint().host;
  };
  EXPECT_EQ(host("bucket", {}), "bucket.s3.us-east-1.amazonaws.com");
  EXPECT_EQ(host("bucket", {.region = "eu-west-1"}), "bucket.s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(host("bucket", {.region = "cn-north-1"}), "bucket.s3.cn-north-1.amazonaws.com.cn");
  EXPECT_EQ(host("bucket", {.region = "eusc-de-east-1"}), "bucket.s3.eusc-de-east-1.amazonaws.eu");
  EXPECT_EQ(host("bucket", {.region = "us-iso-east-1"}), "bucket.s3.us-iso-east-1.c2s.ic.gov");
  EXPECT_EQ(host("bucket", {.region = "us-isob-east-1"}), "bucket.s3.us-isob-east-1.sc2s.sgov.gov");
  EXPECT_EQ(host("bucket", {.region = "eu-west-1", .dual_stack = true}),
            "bucket.s3.dualstack.eu-west-1.amazonaws.com");
  EXPECT_EQ(host("bucket", {.region = "us-east-1", .dual_stack = true, .fips = true}),
            "bucket.s3-fips.dualstack.us-east-1.amazonaws.com");
  EXPECT_EQ(host("bucket", {.region = "eu-west-1", .addressing = S3Addressing::kPath}),
            "s3.eu-west-1.amazonaws.com");
}

TEST(S3Home, ABucketWhoseNameHasDotsStaysInThePathSinceNoCertificateCoversIt) {
  const std::shared_ptr<S3Home> dotted = home("my.bucket");
  EXPECT_TRUE(dotted->in_path());
  EXPECT_EQ(dotted->first_endpoint().host, "s3.us-east-1.amazonaws.com");
  EXPECT_FALSE(home("my-bucket")->in_path());
  EXPECT_FALSE(S3Home::create("my.bucket", "", {.addressing = S3Addressing::kVirtual}));
}

TEST(S3Home, AnEndpointOfOthersHasTheBucketInThePathUnlessItIsToldOtherwise) {
  EXPECT_TRUE(home("bucket", "http://127.0.0.1:9000")->in_path());
  const std::shared_ptr<S3Home> virtual_host =
      home("bucket", "http://storage:9000", {.addressing = S3Addressing::kVirtual});
  EXPECT_EQ(virtual_host->first_endpoint().host, "bucket.storage");
  EXPECT_EQ(virtual_host->first_endpoint().port, 9000);
}

TEST(S3Home, ARegionThatAResponseNamesMovesABucketOfAmazonsToItsEndpoint) {
  const std::shared_ptr<S3Home> bucket = home("bucket");
  EXPECT_EQ(bucket->moved_to(), nullptr);
  const uint64_t before = bucket->version();
  EXPECT_TRUE(bucket->learn("ap-south-1", ""));
  EXPECT_EQ(bucket->region(), "ap-south-1");
  ASSERT_NE(bucket->moved_to(), nullptr);
  EXPECT_EQ(bucket->moved_to()->host, "bucket.s3.ap-south-1.amazonaws.com");
  EXPECT_NE(bucket->version(), before);
  // A second response that says the same tells nothing new, and yet where to go.
  const uint64_t after = bucket->version();
  EXPECT_TRUE(bucket->learn("ap-south-1", ""));
  EXPECT_EQ(bucket->version(), after);
}

TEST(S3Home, OnlyAmazonIsFollowedToAnotherHost) {
  const std::shared_ptr<S3Home> bucket = home("bucket");
  EXPECT_FALSE(bucket->learn("", "bucket.s3.evil.example"));
  EXPECT_FALSE(bucket->learn("", "http://bucket.s3.eu-west-1.amazonaws.com"));
  EXPECT_EQ(bucket->moved_to(), nullptr);
  EXPECT_TRUE(bucket->learn("", "bucket.s3.eu-west-1.amazonaws.com"));
  EXPECT_EQ(bucket->moved_to()->host, "bucket.s3.eu-west-1.amazonaws.com");
  const std::shared_ptr<S3Home> elsewhere = home("bucket", "http://127.0.0.1:9000");
  EXPECT_FALSE(elsewhere->learn("", "bucket.s3.eu-west-1.amazonaws.com"));
  EXPECT_TRUE(elsewhere->learn("eu-west-1", ""));
  EXPECT_EQ(elsewhere->region(), "eu-west-1");
  EXPECT_EQ(elsewhere->moved_to(), nullptr);
  EXPECT_FALSE(elsewhere->learn("a\r\nb", ""));
}

TEST(S3Home, OptionsThatCannotWorkAreRefused) {
  const auto refusal = [](std::string_view bucket, const std::string& endpoint,
                          const S3Options& options) {
    const Result<std::shared_ptr<S3Home>> made = S3Home::create(bucket, endpoint, options);
    EXPECT_FALSE(made);
    return made ? std::string() : std::string(made.error().message());
  };
  EXPECT_THAT(refusal("b", "", {.region = "eu west"}), HasSubstr("region"));
  EXPECT_THAT(refusal("b--use1-az4--x-s3", "", {}), HasSubstr("Express"));
  EXPECT_THAT(refusal("b", "http://minio", {.fips = true}), HasSubstr("fips"));
  EXPECT_THAT(refusal("b", "", {.expected_bucket_owner = "a\r\nb"}),
              HasSubstr("expected_bucket_owner"));
  EXPECT_THAT(refusal("b", "", {.kms_key_id = "a\nb"}), HasSubstr("kms_key_id"));
  EXPECT_THAT(refusal("b", "", {.customer_key = std::vector<std::byte>(31)}), HasSubstr("32"));
}

}  // namespace
}  // namespace headrace
