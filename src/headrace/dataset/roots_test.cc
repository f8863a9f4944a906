#include "headrace/dataset/roots.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace headrace {
namespace {

TEST(Roots, AreWrittenInOneWay) {
  for (const auto& [given, expected] :
       std::vector<std::pair<std::string, std::string>>{{"gs://a", "gs://a"},
                                                        {"gs://a/", "gs://a"},
                                                        {"gcs://a/b/", "gs://a/b"},
                                                        {"gs://a/b//", "gs://a/b"},
                                                        {"gs://a//", "gs://a"},
                                                        {"/data/", "file:///data"},
                                                        {"file:///", "file:///"},
                                                        {"data/train/", "data/train"}}) {
    EXPECT_EQ(normal_root(given).value(), expected);
  }
  EXPECT_FALSE(normal_root("ftp://x").has_value());
  EXPECT_EQ(url_below("gs://a", "n"), "gs://a/n");
  EXPECT_EQ(url_below("file:///", "n"), "file:///n");
  EXPECT_EQ(url_below("", "n"), "n");
  EXPECT_EQ(name_below("gs://a/b", "gs://a/b/c"), "c");
  EXPECT_EQ(name_below("gs://a/b", "gs://a/bc"), std::nullopt);
  EXPECT_EQ(name_below("file:///", "file:///c/d"), "c/d");
  EXPECT_EQ(bucket_of("gs://a/b/c"), "gs://a");
  EXPECT_EQ(bucket_of("gs://a"), "gs://a");
  EXPECT_EQ(bucket_of("ais+s3://@c#n/a/b"), "ais+s3://@c#n/a");
  EXPECT_EQ(bucket_of("ais://#n/a"), "ais://#n/a");
  EXPECT_EQ(bucket_of("file:///a/b"), "file:///");
  EXPECT_EQ(bucket_of("data"), ".");
}

}  // namespace
}  // namespace headrace
