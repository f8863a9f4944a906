// Writing, deleting, copying and composing: once, whatever becomes of the answer.
#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

const Precondition kCreateOnly = {.generation = ""};

class WriteTest : public StoreTest {
 protected:
  Result<ObjectInfo> write(std::string_view bytes, Precondition precondition = {}) {
    return take(open()->write({.name = "out/a",
                               .content_type = "text/plain",
                               .content_encoding = "",
                               .precondition = std::move(precondition)},
                              bytes_of(bytes)));
  }
  uint64_t uploads() { return server_.stat("/by_kind/upload"); }
  // Uploads that the server carried out: a lost answer has no status, a refusal has one.
  uint64_t uploads_done() {
    uint64_t count = 0;
    for (const FaultServer::Entry& entry : server_.log("upload")) {
      if (entry.status == 200 || entry.end == "lost") ++count;
    }
    return count;
  }

  const std::string bytes_ = some_bytes(20'000);
  const std::string others_ = some_bytes(20'000, 2);
};

constexpr const char* kLoseUpload =
    R"([{"match":{"kind":"upload"},"count":1,"action":"lost_answer"}])";

TEST_F(WriteTest, TellsWhatWasStored) {
  const Result<ObjectInfo> written = write(bytes_);
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_EQ(written->name, "out/a");
  EXPECT_EQ(written->size_bytes, bytes_.size());
  EXPECT_EQ(written->crc32c(), Crc32c().extended(bytes_of(bytes_)));
  EXPECT_EQ(written->content_type, "text/plain");
  EXPECT_EQ(server_.object("out/a"), bytes_);
  EXPECT_THAT(read(*open(), listed(*written)), Gives(bytes_));
}

TEST_F(WriteTest, AnObjectWithoutBytesAndOneOfEightMebibytes) {
  EXPECT_EQ(write("")->size_bytes, 0u);
  EXPECT_EQ(server_.object("out/a"), "");
  const std::string large = some_bytes(8 * kMiB);
  EXPECT_EQ(write(large)->size_bytes, large.size());
  EXPECT_TRUE(server_.object("out/a") == large);
}

TEST_F(WriteTest, ALostAnswerIsSettledByLookingAndNotBySendingAgain) {
  server_.faults(kLoseUpload);
  const Result<ObjectInfo> written = write(bytes_);
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_EQ(server_.object("out/a"), bytes_);
  EXPECT_EQ(uploads(), 1u);
  EXPECT_EQ(server_.stat("/by_kind/get"), 1u);
  EXPECT_EQ(take(open()->stat("out/a"))->generation, written->generation);
}

TEST_F(WriteTest, ALostAnswerToCreateOnlyIsASuccess) {
  server_.faults(kLoseUpload);
  const Result<ObjectInfo> written = write(bytes_, kCreateOnly);
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_EQ(uploads(), 1u);
  EXPECT_EQ(server_.object("out/a"), bytes_);
}

TEST_F(WriteTest, ALostAnswerToAConditionalOverwriteIsASuccess) {
  const ObjectInfo before = server_.put("out/a", others_);
  server_.faults(kLoseUpload);
  const Result<ObjectInfo> written = write(bytes_, {.generation = before.generation});
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_NE(written->generation, before.generation);
  EXPECT_EQ(uploads(), 1u);
}

TEST_F(WriteTest, ALostRequestIsSentAgain) {
  for (const Precondition& precondition : {Precondition{}, kCreateOnly}) {
    server_.reset();
    server_.faults(R"([{"match":{"kind":"upload"},"count":2,"action":"reset"}])");
    EXPECT_EQ(write(bytes_, precondition)->size_bytes, bytes_.size());
    EXPECT_EQ(server_.object("out/a"), bytes_);
  }
}

TEST_F(WriteTest, ALostOverwriteIsSentAgainOnTopOfWhatWasThere) {
  server_.put("out/a", others_);
  server_.faults(R"([{"match":{"kind":"upload"},"count":1,"action":"reset"}])");
  ASSERT_TRUE(write(bytes_).has_value());
  EXPECT_EQ(server_.object("out/a"), bytes_);
  EXPECT_EQ(uploads(), 2u);
  EXPECT_EQ(uploads_done(), 1u);
}

TEST_F(WriteTest, CreateOnlyOverAnExistingObjectIsRefused) {
  server_.put("out/a", others_);
  EXPECT_THAT(write(bytes_, kCreateOnly),
              FailsWith(Code::kPreconditionFailed, HasSubstr("gs://bucket/out/a: exists already")));
  EXPECT_EQ(server_.object("out/a"), others_);
}

TEST_F(WriteTest, AnOverwriteOfAnotherWritersNewerObjectIsRefused) {
  const ObjectInfo before = server_.put("out/a", others_);
  const std::string newer = some_bytes(10, 3);
  server_.put("out/a", newer);
  EXPECT_THAT(write(bytes_, {.generation = before.generation}),
              FailsWith(Code::kPreconditionFailed, HasSubstr(before.generation)));
  EXPECT_EQ(server_.object("out/a"), newer);
}

TEST_F(WriteTest, AnOverwriteWithALostRequestDoesNotClobberAnotherWritersNewerObject) {
  const ObjectInfo before = server_.put("out/a", others_);
  const std::string newer = some_bytes(10, 3);
  server_.put("out/a", newer);
  server_.faults(R"([{"match":{"kind":"upload"},"count":1,"action":"reset"}])");
  EXPECT_THAT(write(bytes_, {.generation = before.generation}),
              FailsWith(Code::kPreconditionFailed, HasSubstr("out/a")));
  EXPECT_EQ(server_.object("out/a"), newer);
}

TEST_F(WriteTest, ALostAnswerToCreateOnlyOverAnotherWritersObjectIsRefused) {
  server_.put("out/a", others_);
  server_.faults(kLoseUpload);
  EXPECT_THAT(write(bytes_, kCreateOnly), FailsWith(Code::kPreconditionFailed, HasSubstr("out/a")));
  EXPECT_EQ(server_.object("out/a"), others_);
}

// A service that tells no CRC32C of what it has: an object of equal size may be anybody's.
class WriteWithoutSums : public WriteTest {
 protected:
  // The first upload fares as `action` says.
  void first_upload(std::string_view action) {
    server_.faults(cat(R"([{"match":{"kind":"get"},"action":"no_hash"},
                           {"match":{"kind":"upload"},"count":1,"action":)",
                       action, "}]"));
  }
  uint64_t stats() { return server_.stat("/by_kind/get"); }
};

TEST_F(WriteWithoutSums, AWriteWithoutAConditionIsSentAgainWhateverIsThere) {
  for (const char* action : {R"("lost_answer")", R"("reset")"}) {
    server_.reset();
    const ObjectInfo before = server_.put("out/a", others_);
    first_upload(action);
    const Result<ObjectInfo> written = write(bytes_);
    ASSERT_TRUE(written.has_value()) << written.error().to_string();
    EXPECT_EQ(server_.object("out/a"), bytes_);
    EXPECT_NE(written->generation, before.generation);
    EXPECT_EQ(uploads(), 2u);
    EXPECT_EQ(stats(), 1u);
  }
}

TEST_F(WriteWithoutSums, WhetherAConditionalWriteWasDoneIsUnknown) {
  const auto expect_unknown = [this](const Precondition& precondition, const std::string& there) {
    EXPECT_THAT(
        write(bytes_, precondition),
        FailsWith(Code::kUnavailable, AllOf(HasSubstr("gs://bucket/out/a"), HasSubstr("no CRC32C"),
                                            HasSubstr("is unknown"))));
    EXPECT_EQ(server_.object("out/a"), there);
    EXPECT_EQ(uploads(), 1u);
    EXPECT_EQ(stats(), 1u);
    server_.reset();
  };
  first_upload(R"("lost_answer")");
  expect_unknown(kCreateOnly, bytes_);
  server_.put("out/a", others_);
  first_upload(R"("lost_answer")");
  expect_unknown(kCreateOnly, others_);
  const ObjectInfo before = server_.put("out/a", some_bytes(5));
  first_upload(R"("lost_answer")");
  expect_unknown({.generation = before.generation}, bytes_);
}

TEST_F(WriteWithoutSums, AConditionalOverwriteThatDidNotArriveIsSentAgain) {
  const ObjectInfo before = server_.put("out/a", others_);
  first_upload(R"("reset")");
  const Result<ObjectInfo> written = write(bytes_, {.generation = before.generation});
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_EQ(server_.object("out/a"), bytes_);
  EXPECT_EQ(uploads(), 2u);
}

TEST_F(WriteWithoutSums, AnObjectWithoutBytesNeedsNone) {
  first_upload(R"("lost_answer")");
  EXPECT_TRUE(write("", kCreateOnly).has_value());
  EXPECT_EQ(uploads(), 1u);
}

TEST_F(WriteWithoutSums, AnObjectOfAnotherSizeIsAnotherWriters) {
  server_.put("out/a", some_bytes(5));
  first_upload(R"("lost_answer")");
  EXPECT_THAT(write(bytes_, kCreateOnly),
              FailsWith(Code::kPreconditionFailed, HasSubstr("exists already")));
}

TEST_F(WriteWithoutSums, AnAnswerThatDoesArriveIsBelieved) {
  server_.faults(R"([{"match":{"kind":"upload"},"action":"no_hash"}])");
  const Result<ObjectInfo> written = write(bytes_, kCreateOnly);
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_EQ(written->crc32c(), std::nullopt);
  EXPECT_EQ(server_.stat("/requests"), 1u);
}

TEST_F(WriteTest, ALostRequestIsSentAgainAlsoWhenAnotherWriterComesBetween) {
  server_.put("out/a", others_);
  server_.faults(R"([{"match":{"kind":"upload"},"count":1,"action":"reset"},
                     {"match":{"kind":"get"},"count":1,"action":"old_generation_then_new"}])");
  ASSERT_TRUE(write(bytes_).has_value());
  EXPECT_EQ(server_.object("out/a"), bytes_);
  EXPECT_EQ(uploads_done(), 1u);
}

TEST_F(WriteTest, BytesThatArriveDamagedAreRefusedByTheServerAndSaidSo) {
  // The server answers so when the sum in the metadata is not that of the bytes.
  server_.faults(R"([{"match":{"kind":"upload"},"action":{"status":400,"reason":"invalid",
      "message":"Provided CRC32C \"AAAAAA==\" doesn't match calculated CRC32C \"BBBBBB==\"."}}])");
  EXPECT_THAT(write(bytes_), FailsWith(Code::kCorrupt, HasSubstr("CRC32C")));
  EXPECT_EQ(uploads(), 2u);
}

TEST_F(WriteTest, AnAnswerThatTellsAnotherSumIsNoSuccess) {
  server_.faults(R"([{"match":{"kind":"upload"},"action":"wrong_checksum"}])");
  EXPECT_THAT(write(bytes_), FailsWith(Code::kCorrupt, HasSubstr("gs://bucket/out/a")));
}

TEST_F(WriteTest, AServerInTroubleIsAskedAgain) {
  server_.faults(R"([{"match":{"kind":"upload"},"count":3,"action":{"status":503}}])");
  ASSERT_TRUE(write(bytes_).has_value());
  EXPECT_EQ(uploads_done(), 1u);
  EXPECT_EQ(server_.object("out/a"), bytes_);
}

TEST_F(WriteTest, ASessionCutInTheMiddleOfTheRequestIsSentAgainWhole) {
  const std::string large = some_bytes(4 * kMiB);
  server_.faults(R"([{"match":{"kind":"upload"},"count":1,
                      "action":{"cut_request_after_bytes":1000000}}])");
  ASSERT_TRUE(write(large).has_value());
  EXPECT_TRUE(server_.object("out/a") == large);
}

// ── Delete ───────────────────────────────────────────────────────────────────────────────────

TEST_F(WriteTest, DeletesOnce) {
  server_.put("out/a", bytes_);
  EXPECT_TRUE(take(open()->remove("out/a", {})).has_value());
  EXPECT_EQ(server_.object("out/a"), std::nullopt);
  EXPECT_THAT(take(open()->remove("out/a", {})),
              FailsWith(Code::kNotFound, HasSubstr("gs://bucket/out/a")));
}

TEST_F(WriteTest, ALostAnswerToADeleteIsASuccess) {
  for (const bool conditional : {false, true}) {
    const ObjectInfo before = server_.put("out/a", bytes_);
    server_.faults(R"([{"match":{"kind":"delete"},"count":1,"action":"lost_answer"}])");
    Precondition precondition;
    if (conditional) precondition.generation = before.generation;
    const Result<bool> removed = take(open()->remove("out/a", precondition));
    EXPECT_TRUE(removed.has_value()) << removed.error().to_string();
    EXPECT_EQ(server_.object("out/a"), std::nullopt);
  }
}

TEST_F(WriteTest, ADeleteOfAnotherGenerationIsRefused) {
  const ObjectInfo before = server_.put("out/a", bytes_);
  server_.put("out/a", others_);
  EXPECT_THAT(take(open()->remove("out/a", {.generation = before.generation})),
              FailsWith(Code::kPreconditionFailed, HasSubstr("out/a")));
  EXPECT_EQ(server_.object("out/a"), others_);
}

// ── Copy ─────────────────────────────────────────────────────────────────────────────────────

class CopyTest : public WriteTest {
 protected:
  Result<ObjectInfo> copy(Precondition precondition = {}, std::string generation = "") {
    return take(open()->copy({.source_name = "in",
                              .source_generation = std::move(generation),
                              .name = "out/a",
                              .precondition = std::move(precondition)}));
  }
  const ObjectInfo source_ = server_.put("in", bytes_);
};

TEST_F(CopyTest, CopiesOnTheServer) {
  const Result<ObjectInfo> copied = copy();
  ASSERT_TRUE(copied.has_value()) << copied.error().to_string();
  EXPECT_EQ(copied->crc32c(), source_.crc32c());
  EXPECT_EQ(server_.object("out/a"), bytes_);
  EXPECT_EQ(server_.stat("/by_kind/media"), 0u);
}

TEST_F(CopyTest, ALostAnswerIsSettledByLooking) {
  for (const Precondition& precondition : {Precondition{}, kCreateOnly}) {
    server_.reset();
    server_.put("in", bytes_);
    server_.faults(R"([{"match":{"kind":"rewrite"},"count":1,"action":"lost_answer"}])");
    const Result<ObjectInfo> copied = copy(precondition);
    EXPECT_TRUE(copied.has_value()) << copied.error().to_string();
    EXPECT_EQ(server_.object("out/a"), bytes_);
    EXPECT_EQ(server_.stat("/by_kind/rewrite"), 1u);
  }
}

TEST_F(CopyTest, BeginsAnewOnAnotherConditionIfAnAnswerIsLostAmidALongCopy) {
  server_.faults(R"([{"match":{"kind":"rewrite"},"count":1,"action":{"status":200,
                      "body":"{\"done\":false,\"rewriteToken\":\"TOKEN\"}"}},
                     {"match":{"kind":"rewrite"},"count":1,"action":"reset"}])");
  const Result<ObjectInfo> copied = copy();
  ASSERT_TRUE(copied.has_value()) << copied.error().to_string();
  const std::vector<FaultServer::Entry> log = server_.log("rewrite");
  ASSERT_EQ(log.size(), 3u);
  EXPECT_THAT(log[1].target, HasSubstr("rewriteToken=TOKEN"));
  EXPECT_THAT(log[2].target, AllOf(HasSubstr("ifGenerationMatch=0"), Not(HasSubstr("TOKEN"))));
}

TEST_F(CopyTest, WithoutASumOfWhatIsThereALostCopyIsRepeatedOrItsOutcomeUnknown) {
  constexpr const char* kLoseCopy =
      R"([{"match":{"kind":"rewrite"},"count":1,"action":"lost_answer"},
          {"match":{"kind":"get"},"from":2,"action":"no_hash"}])";
  server_.faults(kLoseCopy);
  EXPECT_TRUE(copy().has_value());
  EXPECT_EQ(server_.stat("/by_kind/rewrite"), 2u);
  ASSERT_TRUE(take(open()->remove("out/a", {})).has_value());
  server_.faults(kLoseCopy);
  EXPECT_THAT(copy(kCreateOnly), FailsWith(Code::kUnavailable, HasSubstr("is unknown")));
  EXPECT_EQ(server_.stat("/by_kind/rewrite"), 3u);
}

TEST_F(CopyTest, CreateOnlyOverAnExistingObjectIsRefused) {
  server_.put("out/a", others_);
  EXPECT_THAT(copy(kCreateOnly), FailsWith(Code::kPreconditionFailed, HasSubstr("out/a")));
  EXPECT_EQ(server_.object("out/a"), others_);
}

TEST_F(CopyTest, ASourceThatHasChangedIsRefused) {
  server_.put("in", others_);
  EXPECT_THAT(copy({}, source_.generation), FailsWith(Code::kPreconditionFailed, HasSubstr("in")));
  EXPECT_EQ(server_.object("out/a"), std::nullopt);
}

TEST_F(CopyTest, AMissingSourceIsNotFound) {
  server_.reset();
  EXPECT_THAT(copy(), FailsWith(Code::kNotFound, HasSubstr("gs://bucket/")));
}

// ── Compose ──────────────────────────────────────────────────────────────────────────────────

class ComposeTest : public WriteTest {
 protected:
  static ComposeSource source_of(const ObjectInfo& info) {
    return {.name = info.name,
            .generation = info.generation,
            .size_bytes = info.size_bytes,
            .crc32c = info.crc32c().value()};
  }
  Result<ObjectInfo> compose(Precondition precondition = {}) {
    return take(open()->compose({.sources = {source_of(first_), source_of(second_)},
                                 .name = "out/a",
                                 .content_type = "text/plain",
                                 .precondition = std::move(precondition)}));
  }
  const ObjectInfo first_ = server_.put("in/1", bytes_);
  const ObjectInfo second_ = server_.put("in/2", others_);
};

TEST_F(ComposeTest, JoinsOnTheServer) {
  const Result<ObjectInfo> composed = compose();
  ASSERT_TRUE(composed.has_value()) << composed.error().to_string();
  EXPECT_EQ(server_.object("out/a"), bytes_ + others_);
  EXPECT_EQ(composed->component_count, 2u);
  EXPECT_EQ(composed->content_type, "text/plain");
  EXPECT_EQ(server_.stat("/by_kind/media"), 0u);
}

TEST_F(ComposeTest, ALostAnswerIsSettledByLooking) {
  for (const Precondition& precondition : {Precondition{}, kCreateOnly}) {
    ASSERT_TRUE(!server_.object("out/a") || take(open()->remove("out/a", {})));
    const uint64_t before = server_.stat("/by_kind/compose");
    server_.faults(R"([{"match":{"kind":"compose"},"count":1,"action":"lost_answer"}])");
    const Result<ObjectInfo> composed = compose(precondition);
    EXPECT_TRUE(composed.has_value()) << composed.error().to_string();
    EXPECT_EQ(server_.object("out/a"), bytes_ + others_);
    EXPECT_EQ(server_.stat("/by_kind/compose"), before + 1);
  }
}

TEST_F(ComposeTest, WithoutASumOfWhatIsThereALostComposeIsRepeatedOrItsOutcomeUnknown) {
  constexpr const char* kLoseCompose =
      R"([{"match":{"kind":"compose"},"count":1,"action":"lost_answer"},
          {"match":{"kind":"get"},"action":"no_hash"}])";
  server_.put("out/a", some_bytes(bytes_.size() + others_.size(), 7));
  server_.faults(kLoseCompose);
  EXPECT_TRUE(compose().has_value());
  EXPECT_EQ(server_.object("out/a"), bytes_ + others_);
  EXPECT_EQ(server_.stat("/by_kind/compose"), 2u);

  const std::string someone_elses = some_bytes(bytes_.size() + others_.size(), 8);
  server_.put("out/a", someone_elses);
  server_.faults(kLoseCompose);
  EXPECT_THAT(compose(kCreateOnly), FailsWith(Code::kUnavailable, HasSubstr("is unknown")));
  EXPECT_EQ(server_.object("out/a"), someone_elses);
  EXPECT_EQ(server_.stat("/by_kind/compose"), 3u);
}

TEST_F(ComposeTest, AnAnswerThatTellsNoSumIsNoSuccess) {
  server_.faults(R"([{"match":{"kind":"compose"},"action":"no_hash"}])");
  EXPECT_THAT(compose(), FailsWith(Code::kCorrupt, HasSubstr("40000 bytes with no CRC32C told")));
}

TEST_F(ComposeTest, ASourceThatHasChangedIsRefused) {
  server_.put("in/2", bytes_);
  EXPECT_THAT(compose(), FailsWith(Code::kPreconditionFailed, HasSubstr("objects to be composed")));
  EXPECT_EQ(server_.object("out/a"), std::nullopt);
}

TEST_F(ComposeTest, CreateOnlyOverAnExistingObjectIsRefused) {
  server_.put("out/a", others_);
  EXPECT_THAT(compose(kCreateOnly), FailsWith(Code::kPreconditionFailed, HasSubstr("out/a")));
  EXPECT_EQ(server_.object("out/a"), others_);
}

TEST_F(ComposeTest, AnAnswerThatTellsAnotherSumIsNoSuccess) {
  server_.faults(R"([{"match":{"kind":"compose"},"action":"wrong_checksum"}])");
  EXPECT_THAT(compose(), FailsWith(Code::kCorrupt, HasSubstr("gs://bucket/out/a")));
}

TEST_F(ComposeTest, NothingAndTooMuchIsRefusedWithoutARequest) {
  const uint64_t before = server_.stat("/requests");
  const std::vector<ComposeSource> too_many(33, source_of(first_));
  for (const auto& sources : {std::vector<ComposeSource>{}, too_many}) {
    EXPECT_THAT(take(open()->compose({.sources = sources, .name = "out/a"})),
                FailsWith(Code::kInvalidArgument, HasSubstr("1 to 32")));
  }
  EXPECT_EQ(server_.stat("/requests"), before);
}

}  // namespace
}  // namespace headrace
