#include "headrace/format/ais_batch.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace {
namespace {

TEST(AisBatchTest, TheBodyNamesEachEntryInItsOrder) {
  const std::vector<AisBatchEntry> entries = {
      {.name = "a/b.jpg"},
      {.name = "shard.tar", .member = "x/0.cls"},
      {.name = "\"quoted\"\n", .range = ByteRange{3, 10}},
      {.name = "shard.tar", .member = "1.jpg", .range = ByteRange{0, 5}}};
  EXPECT_EQ(ais_batch_body(entries),
            R"({"mime":".tar","in":[{"objname":"a/b.jpg"},)"
            R"({"objname":"shard.tar","archpath":"x/0.cls"},)"
            R"({"objname":"\"quoted\"\u000a","start":3,"length":7},)"
            R"({"objname":"shard.tar","archpath":"1.jpg","start":0,"length":5}],)"
            R"("coer":true,"onob":true,"strm":true})");
}

TEST(AisBatchTest, MembersAreNamedAfterTheirObjects) {
  EXPECT_EQ(ais_batch_member_name({.name = "a/b"}), "a/b");
  EXPECT_EQ(ais_batch_member_name({.name = "s.tar", .member = "x"}), "s.tar/x");
  EXPECT_EQ(ais_batch_member_name({.name = "s.tar", .member = "/x"}), "s.tar/x");
  EXPECT_EQ(ais_batch_missing_name({.name = "a/b"}), "__404__/a/b");
  EXPECT_EQ(ais_batch_missing_name({.name = "s.tar", .member = "x"}), "__404__/s.tar/x");
}

TEST(AisBatchTest, ARedirectHasAPathOfItsOwn) {
  EXPECT_EQ(ais_batch_redirect_path("http://h:1/v1/ml/moss/b/xid/wid/3?provider=ais&pid=p&utm=1"),
            "/v1/ml/moss/b/xid/wid/3");
  EXPECT_EQ(ais_batch_redirect_path("http://h:1/v1/ml/moss/b/xid/wid/3"),
            "/v1/ml/moss/b/xid/wid/3");
  for (const char* other : {"", "http://h", "http://h:1/v1/objects/v1/ml/moss/b?pid=p",
                            "http://h/v1/ml/moss", "/v1/ml/moss/b"}) {
    EXPECT_EQ(ais_batch_redirect_path(other), "") << other;
  }
}

TEST(AisBatchTest, OnlyAPathThatIsNotKnownMeansThatThereIsNoSuchRequest) {
  EXPECT_TRUE(is_ais_batch_unknown(400, "invalid request URI '/v1/ml/moss/b'"));
  EXPECT_TRUE(is_ais_batch_unknown(404, "p[x]: Invalid request URI"));
  EXPECT_FALSE(is_ais_batch_unknown(404, "bucket \"ais://b\" does not exist"));
  EXPECT_FALSE(is_ais_batch_unknown(500, "invalid request URI"));
  EXPECT_FALSE(is_ais_batch_unknown(400, "empty input"));
}

}  // namespace
}  // namespace headrace
