// Copies of objects that are too large for one request: multipart uploads of copied parts.
#include "headrace/store/copies.h"
#include "headrace/store/fault_server_test_support.h"
#include "headrace/store/remote/http_store.h"
#include "headrace/store/writing/multipart_attempts.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class ServerCopyTest : public S3Test {
 protected:
  ServerCopyTest() {
    options_.write_limits.max_copy_bytes = 100 * kKiB;
    options_.write_limits.copied_part_bytes = 64 * kKiB;
    server_.post("uploads_config", R"({"min_part_bytes":1})");
    server_.place("in", bytes_,
                  R"({"contentType":"text/x-tape","contentEncoding":"br","cacheControl":"no-store",
                      "metadata":{"who":"me"}})");
  }
  static CopyRequest request(Precondition precondition = {}) {
    return {.source_name = "in", .name = "out/a", .precondition = std::move(precondition)};
  }
  Result<ObjectInfo> copy(Precondition precondition = {}) {
    return take(open()->copy(request(std::move(precondition))));
  }
  std::vector<std::string> kinds() {
    std::vector<std::string> kinds;
    for (const FaultServer::Entry& entry : server_.log()) kinds.push_back(entry.kind);
    return kinds;
  }
  size_t count(std::string_view kind) { return server_.log(kind).size(); }
  // Uploads that were begun, and neither completed nor aborted.
  size_t unfinished() {
    const Result<UploadsPage> page = take(open()->list_multipart("", "", ""));
    EXPECT_TRUE(page.has_value()) << page.error().to_string();
    return page ? page->uploads.size() : 0;
  }

  const std::string bytes_ = some_bytes(200 * kKiB);
};

TEST_F(ServerCopyTest, ALargeObjectIsCopiedInPartsThatArePinnedToItsGeneration) {
  const std::string generation = take(open()->stat("in"))->generation;
  const Result<ObjectInfo> copied = copy();
  ASSERT_TRUE(copied.has_value()) << copied.error().to_string();
  EXPECT_EQ(copied->name, "out/a");
  EXPECT_EQ(copied->size_bytes, bytes_.size());
  EXPECT_TRUE(server_.object("out/a") == bytes_);
  EXPECT_THAT(kinds(), UnorderedElementsAre("get", "get", "multipart_start", "multipart_part_copy",
                                            "multipart_part_copy", "multipart_part_copy",
                                            "multipart_part_copy", "multipart_complete", "get"));
  std::vector<std::string> ranges;
  for (const FaultServer::Entry& part : server_.log("multipart_part_copy")) {
    EXPECT_EQ(part.headers.at("x-amz-copy-source"), "/bucket/in");
    EXPECT_EQ(part.headers.at("x-amz-copy-source-if-match"), cat("\"", generation, "\""));
    ranges.push_back(part.headers.at("x-amz-copy-source-range"));
  }
  EXPECT_THAT(ranges, UnorderedElementsAre("bytes=0-65535", "bytes=65536-131071",
                                           "bytes=131072-196607", "bytes=196608-204799"));
  EXPECT_EQ(server_.stat("/by_kind/media"), 0u) << "nothing passes through here";
}

TEST_F(ServerCopyTest, ItKeepsWhatDescribesTheSource) {
  ASSERT_TRUE(copy().has_value());
  const Result<ObjectInfo> found = take(open()->stat("out/a"));
  EXPECT_EQ(found->content_type, "text/x-tape");
  EXPECT_EQ(found->content_encoding, "br");
  const Result<CopySource> copied =
      take(std::static_pointer_cast<HttpStore>(open())->remote()->run<CopySourceAttempt>("out/a"));
  EXPECT_THAT(
      copied->metadata,
      UnorderedElementsAre(Pair("Content-Type", "text/x-tape"), Pair("Content-Encoding", "br"),
                           Pair("Cache-Control", "no-store"), Pair("x-amz-meta-who", "me")));
}

TEST_F(ServerCopyTest, ASmallerObjectIsCopiedByOneRequest) {
  options_.write_limits.max_copy_bytes = bytes_.size();
  ASSERT_TRUE(copy().has_value());
  EXPECT_THAT(kinds(), UnorderedElementsAre("get", "copy", "get"));
  EXPECT_TRUE(server_.object("out/a") == bytes_);
}

TEST_F(ServerCopyTest, PartsAreLargerWhereThereWouldBeTooMany) {
  const std::string large = some_bytes(3 * kMiB);
  server_.place("in", large);
  options_.write_limits.max_multipart_parts = 2;
  ASSERT_TRUE(copy().has_value());
  EXPECT_EQ(count("multipart_part_copy"), 2u);
  EXPECT_TRUE(server_.object("out/a") == large);
}

TEST_F(ServerCopyTest, ASourceThatIsLargerThanAllPartsTogetherIsRefused) {
  options_.write_limits.max_multipart_parts = 0;
  EXPECT_THAT(copy(), FailsWith(Code::kInvalidArgument, HasSubstr("it has 204800 bytes")));
  EXPECT_EQ(count("multipart_start"), 0u);
}

TEST_F(ServerCopyTest, ASourceThatChangesMeanwhileIsToldAndNothingIsLeft) {
  server_.faults(R"([{"match":{"kind":"multipart_part_copy"},"from":3,"action":{"status":412}}])");
  EXPECT_THAT(copy(),
              FailsWith(Code::kPreconditionFailed,
                        AllOf(HasSubstr("s3://bucket/out/a"),
                              HasSubstr("s3://bucket/in has changed while it was copied"))));
  EXPECT_FALSE(server_.object("out/a").has_value());
  EXPECT_EQ(count("multipart_complete"), 0u);
  EXPECT_EQ(unfinished(), 0u);
}

TEST_F(ServerCopyTest, ASourceThatIsNoLongerTheListedOneIsRefusedBeforeAnythingBegins) {
  CopyRequest older = request();
  older.source_generation = "0123456789abcdef0123456789abcdef";
  EXPECT_THAT(take(open()->copy(older)),
              FailsWith(Code::kPreconditionFailed, HasSubstr("s3://bucket/in")));
  EXPECT_EQ(count("multipart_start"), 0u);
}

TEST_F(ServerCopyTest, APartThatFailsEndsItAndTheUploadIsAborted) {
  server_.faults(
      R"([{"match":{"kind":"multipart_part_copy"},"from":2,"count":1,"action":{"status":403}}])");
  EXPECT_THAT(copy(), FailsWith(Code::kPermissionDenied, HasSubstr("its part ")));
  EXPECT_EQ(count("multipart_abort"), 1u);
  EXPECT_EQ(unfinished(), 0u);
}

TEST_F(ServerCopyTest, AnAbortThatFailsIsToldWithTheErrorThatItFollowed) {
  server_.faults(R"([{"match":{"kind":"multipart_part_copy"},"action":{"status":403}},
                     {"match":{"kind":"multipart_abort"},"action":{"status":403}}])");
  EXPECT_THAT(copy(), FailsWith(Code::kPermissionDenied, HasSubstr("could not be aborted")));
  EXPECT_EQ(unfinished(), 1u);
}

TEST_F(ServerCopyTest, APartThatFailsInAGoodStatusIsCopiedAgain) {
  server_.faults(R"([{"match":{"kind":"multipart_part_copy"},"count":1,
                      "action":{"status":200,"reason":"InternalError"}}])");
  const Result<ObjectInfo> copied = copy();
  ASSERT_TRUE(copied.has_value()) << copied.error().to_string();
  EXPECT_EQ(count("multipart_part_copy"), 5u);
  EXPECT_TRUE(server_.object("out/a") == bytes_);
}

TEST_F(ServerCopyTest, ALostCompletionIsSettledByLookingEvenWhereThereAreNoChecksums) {
  server_.post("bucket", R"({"name":"bucket","checksums":false})");
  server_.faults(R"([{"match":{"kind":"multipart_complete"},"count":1,"action":"lost_answer"}])");
  const Result<ObjectInfo> copied = copy({.generation = ""});
  ASSERT_TRUE(copied.has_value()) << copied.error().to_string();
  EXPECT_EQ(count("multipart_complete"), 1u);
  EXPECT_TRUE(server_.object("out/a") == bytes_);
}

TEST_F(ServerCopyTest, ALostCompletionOverAnotherWritersObjectOfEqualSizeIsNotTakenForOurs) {
  const std::string others = some_bytes(bytes_.size(), 2);
  server_.post("bucket", R"({"name":"bucket","checksums":false})");
  server_.place("out/a", others);
  server_.faults(R"([{"match":{"kind":"multipart_complete"},"count":1,"action":"lost_answer"}])");
  const Result<ObjectInfo> copied = copy({.generation = ""});
  EXPECT_FALSE(copied.has_value());
  EXPECT_TRUE(server_.object("out/a") == others);
}

TEST_F(ServerCopyTest, TheConditionIsThatOfTheCompletion) {
  server_.place("out/a", "others");
  EXPECT_THAT(copy({.generation = ""}),
              FailsWith(Code::kPreconditionFailed, HasSubstr("s3://bucket/out/a: exists already")));
  EXPECT_EQ(server_.object("out/a"), "others");
  EXPECT_EQ(unfinished(), 0u);
  const std::string generation = take(open()->stat("out/a"))->generation;
  EXPECT_TRUE(copy({.generation = generation}).has_value());
  EXPECT_TRUE(server_.object("out/a") == bytes_);
}

TEST_F(ServerCopyTest, CancelledItAbortsTheUploadBeforeItEnds) {
  server_.faults(R"([{"match":{"kind":"multipart_part_copy"},"action":"stall_head"}])");
  const std::shared_ptr<Pending<ObjectInfo>> pending = open()->copy(request());
  server_.wait_for("/by_kind/multipart_part_copy", 1);
  pending->cancel();
  EXPECT_THAT(take(pending), FailsWith(Code::kCancelled, HasSubstr("s3://bucket/out/a")));
  EXPECT_EQ(count("multipart_abort"), 1u);
  EXPECT_EQ(unfinished(), 0u);
}

TEST_F(ServerCopyTest, TheEndOfTheEngineAbortsTheUpload) {
  server_.faults(R"([{"match":{"kind":"multipart_part_copy"},"action":"stall_head"}])");
  std::shared_ptr<Pending<ObjectInfo>> pending;
  {
    Engine engine({.io_threads = 1, .memory_budget_bytes = 64 * kMiB});
    pending = open(engine)->copy(request());
    server_.wait_for("/by_kind/multipart_part_copy", 1);
  }
  EXPECT_THAT(take(pending), FailsWith(Code::kCancelled, HasSubstr("s3://bucket/out/a")));
  EXPECT_EQ(unfinished(), 0u);
}

TEST_F(ServerCopyTest, ACopyWithAnotherSumThanItsSourceIsTold) {
  server_.post("bucket", R"({"name":"bucket","default_checksum":"CRC32C"})");
  server_.place("in", bytes_, R"({"checksumAlgorithm":"CRC32C"})");
  const Result<ObjectInfo> copied = copy();
  ASSERT_TRUE(copied.has_value()) << copied.error().to_string();
  EXPECT_EQ(copied->crc32c(), Crc32c().extended(bytes_of(bytes_)));
  server_.faults(R"([{"match":{"kind":"get","path_contains":"out/a"},"action":"wrong_checksum"}])");
  EXPECT_THAT(copy(), FailsWith(Code::kCorrupt, HasSubstr("not equal to its source")));
}

TEST_F(ServerCopyTest, NoRequestOfACopyNamesAChecksumThatSomeServersWouldAskOfEveryPart) {
  ASSERT_TRUE(copy().has_value());
  for (const FaultServer::Entry& entry : server_.log("multipart_start")) {
    EXPECT_FALSE(entry.headers.contains("x-amz-checksum-algorithm"));
  }
  for (const FaultServer::Entry& entry : server_.log("multipart_complete")) {
    EXPECT_FALSE(entry.headers.contains("x-amz-checksum-crc32c"));
  }
}

}  // namespace
}  // namespace headrace
