// Renames where no request renames: a look, a copy, and a removal. (tests/ais has the others.)
#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ServerRenameTest : public StoreTest {
 protected:
  ServerRenameTest() { server_.put("in", bytes_); }
  Result<ObjectInfo> rename(std::string generation = "") {
    return take(open()->rename({.source_name = "in",
                                .source_generation = std::move(generation),
                                .name = "out/a",
                                .precondition = {}}));
  }
  std::vector<std::string> kinds() {
    std::vector<std::string> kinds;
    for (const FaultServer::Entry& entry : server_.log()) kinds.push_back(entry.kind);
    return kinds;
  }
  const std::string bytes_ = some_bytes(200 * kKiB);
};

TEST_F(ServerRenameTest, TheCopyAndTheRemovalAreOfTheGenerationThatWasSeen) {
  const std::string generation = take(open()->stat("in"))->generation;
  const Result<ObjectInfo> moved = rename();
  ASSERT_TRUE(moved.has_value()) << moved.error().to_string();
  EXPECT_EQ(moved->name, "out/a");
  EXPECT_THAT(kinds(), ElementsAre("get", "get", "rewrite", "delete"));
  EXPECT_THAT(server_.log("rewrite")[0].target, HasSubstr("ifSourceGenerationMatch=" + generation));
  EXPECT_THAT(server_.log("delete")[0].target, HasSubstr("ifGenerationMatch=" + generation));
  EXPECT_TRUE(server_.object("out/a") == bytes_);
  EXPECT_FALSE(server_.object("in").has_value());
}

TEST_F(ServerRenameTest, AnotherGenerationIsRefusedBeforeAnythingBegins) {
  EXPECT_THAT(rename("1"), FailsWith(Code::kPreconditionFailed, HasSubstr("gs://bucket/in")));
  EXPECT_THAT(kinds(), ElementsAre("get"));
}

TEST_F(ServerRenameTest, IfTheRemovalFailsTheErrorSaysThatBothAreThere) {
  server_.faults(R"([{"match":{"kind":"delete"},"action":{"status":403}}])");
  EXPECT_THAT(rename(), FailsWith(Code::kPermissionDenied,
                                  AllOf(HasSubstr("gs://bucket/in: "), HasSubstr("both are there"),
                                        HasSubstr("gs://bucket/out/a"))));
  EXPECT_TRUE(server_.object("out/a") == bytes_);
  EXPECT_TRUE(server_.object("in") == bytes_);
}

TEST_F(ServerRenameTest, CancelledBetweenTheCopyAndTheRemovalItDoesNotSayThatBothAreThere) {
  server_.faults(R"([{"match":{"kind":"delete"},"action":"stall_head"}])");
  const std::shared_ptr<Pending<ObjectInfo>> pending = open()->rename(
      {.source_name = "in", .source_generation = {}, .name = "out/a", .precondition = {}});
  server_.wait_for("/by_kind/delete", 1);
  pending->cancel();
  EXPECT_THAT(take(pending),
              FailsWith(Code::kCancelled, HasSubstr("whether it was removed then is unknown")));
  EXPECT_TRUE(server_.object("out/a") == bytes_);
  EXPECT_TRUE(server_.object("in") == bytes_);
}

TEST_F(ServerRenameTest, CancelledBeforeItRemovesNothing) {
  server_.faults(R"([{"match":{"kind":"rewrite"},"action":"stall_head"}])");
  const std::shared_ptr<Pending<ObjectInfo>> pending = open()->rename(
      {.source_name = "in", .source_generation = {}, .name = "out/a", .precondition = {}});
  server_.wait_for("/by_kind/rewrite", 1);
  pending->cancel();
  EXPECT_EQ(take(pending).error().code(), Code::kCancelled);
  EXPECT_TRUE(server_.object("in") == bytes_);
  EXPECT_EQ(server_.stat("/by_kind/delete"), 0u);
}

class RenameOnS3Test : public S3Test {};

TEST_F(RenameOnS3Test, AnObjectOfAnySizeIsRenamedAndLookedAtOnceBeforeItsParts) {
  const std::string bytes = some_bytes(200 * kKiB);
  options_.write_limits.max_copy_bytes = 100 * kKiB;
  options_.write_limits.copied_part_bytes = 64 * kKiB;
  server_.post("uploads_config", R"({"min_part_bytes":1})");
  server_.place("in", bytes, R"({"contentType":"text/x-tape","metadata":{"who":"me"}})");
  const Result<ObjectInfo> moved = take(open()->rename(
      {.source_name = "in", .source_generation = {}, .name = "out/a", .precondition = {}}));
  ASSERT_TRUE(moved.has_value()) << moved.error().to_string();
  EXPECT_TRUE(server_.object("out/a") == bytes);
  EXPECT_FALSE(server_.object("in").has_value());
  EXPECT_EQ(take(open()->stat("out/a"))->content_type, "text/x-tape");
  EXPECT_EQ(server_.log("multipart_part_copy").size(), 4u);
  EXPECT_EQ(server_.stat("/by_kind/media"), 0u);
}

}  // namespace
}  // namespace headrace
