// Objects written as streams: whole and verified, or not there; and nothing left on the way.
#include "headrace/store/object_writer.h"
#include "headrace/store/temporary_names.h"

#include <atomic>
#include <thread>

#include "headrace/store/fault_server_test_support.h"
#include "headrace/store/writing/part_objects.h"

#pragma clang diagnostic ignored "-Wmissing-designated-field-initializers"

namespace headrace {
namespace {

using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const MayBlock kMayBlock = MayBlock::on_this_thread();
constexpr uint64_t kPartBytes = 64 * kKiB;

class ObjectWriterTest : public StoreTest {
 protected:
  ObjectWriterTest() { options_.write_limits.min_multipart_part_bytes = 1; }
  std::shared_ptr<ObjectWriter> writer(WriterOptions options = {}) {
    options.object.name = "out/a";
    options.part_bytes = part_bytes_;
    if (method_ == UploadMethod::kMultipart)
      server_.post("uploads_config", R"({"min_part_bytes":1})");
    options.method = method_;
    Result<std::shared_ptr<ObjectWriter>> opened = open()->open_writer(std::move(options));
    EXPECT_TRUE(opened.has_value()) << opened.error().to_string();
    return *opened;
  }
  // Appends all in pieces and closes.
  Result<ObjectInfo> write(std::string_view bytes, WriterOptions options = {},
                           size_t piece_bytes = 50'000) {
    const std::shared_ptr<ObjectWriter> to = writer(std::move(options));
    for (size_t begin = 0; begin < bytes.size(); begin += piece_bytes) {
      const Result<void> appended =
          to->append(bytes_of(bytes.substr(begin, piece_bytes)), nullptr, kMayBlock);
      if (!appended) break;
    }
    return to->close(kMayBlock);
  }
  std::vector<std::string> names(std::string_view prefix) {
    std::vector<std::string> found;
    for (const ObjectInfo& each : take(open()->list({.prefix = std::string(prefix)}))->objects()) {
      found.push_back(each.name);
    }
    return found;
  }
  std::vector<std::string> temporaries() { return names(kUploadPrefix); }

  // Uploads that were started and neither completed nor aborted.
  size_t unfinished() { return take(open()->list_multipart("", "", ""))->uploads.size(); }

  UploadMethod method_ = UploadMethod::kParts;
  uint64_t part_bytes_ = kPartBytes;
  const std::string bytes_ = some_bytes(5 * kPartBytes + 1000);
};

// What holds whichever way the parts go.
class EitherMethod : public ObjectWriterTest, public ::testing::WithParamInterface<UploadMethod> {
 protected:
  EitherMethod() { method_ = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ways, EitherMethod,
                         ::testing::Values(UploadMethod::kParts, UploadMethod::kMultipart),
                         [](const auto& given) {
                           return given.param == UploadMethod::kParts ? "parts" : "multipart";
                         });

TEST_F(ObjectWriterTest, TellsWhatWasWrittenAndLeavesNothingElse) {
  const Result<ObjectInfo> written =
      write(bytes_, {.object = {.content_type = "application/x-checkpoint"}});
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_EQ(written->name, "out/a");
  EXPECT_EQ(written->size_bytes, bytes_.size());
  EXPECT_EQ(written->crc32c(), Crc32c().extended(bytes_of(bytes_)));
  EXPECT_EQ(written->content_type, "application/x-checkpoint");
  EXPECT_TRUE(server_.object("out/a") == bytes_);
  EXPECT_THAT(temporaries(), IsEmpty());
  EXPECT_EQ(server_.stat("/by_kind/upload"), 6u);
  EXPECT_EQ(server_.stat("/by_kind/compose"), 1u);
  EXPECT_EQ(server_.stat("/by_kind/delete"), 6u);
}

TEST_P(EitherMethod, OfOnePartIsOneRequest) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{kPartBytes}}) {
    const uint64_t requests = server_.stat("/requests");
    const std::string bytes = some_bytes(size);
    const Result<ObjectInfo> written = write(bytes);
    ASSERT_TRUE(written.has_value()) << written.error().to_string();
    EXPECT_EQ(written->size_bytes, size);
    EXPECT_TRUE(server_.object("out/a") == bytes);
    EXPECT_EQ(server_.stat("/requests"), requests + 1);
  }
}

TEST_F(ObjectWriterTest, AsAMultipartUploadItIsOneTemporaryObjectThatIsCopied) {
  method_ = UploadMethod::kMultipart;
  const Result<ObjectInfo> written = write(bytes_, {.object = {.content_type = "text/plain"}});
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_EQ(written->crc32c(), Crc32c().extended(bytes_of(bytes_)));
  EXPECT_EQ(written->content_type, "text/plain");
  EXPECT_TRUE(server_.object("out/a") == bytes_);
  EXPECT_EQ(server_.stat("/by_kind/multipart_start"), 1u);
  EXPECT_EQ(server_.stat("/by_kind/multipart_part"), 6u);
  EXPECT_EQ(server_.stat("/by_kind/multipart_complete"), 1u);
  EXPECT_EQ(server_.stat("/by_kind/compose"), 1u);
  EXPECT_EQ(server_.stat("/by_kind/delete"), 1u);
  EXPECT_THAT(temporaries(), IsEmpty());
  EXPECT_EQ(unfinished(), 0u);
}

// One stream, by pieces of 256 KiB.
class ResumableTest : public ObjectWriterTest {
 protected:
  ResumableTest() {
    method_ = UploadMethod::kResumable;
    part_bytes_ = 256 * kKiB;
  }
  const std::string bytes_ = some_bytes(5 * 256 * kKiB + 1000);
};

TEST_F(ResumableTest, IsOneStreamWithoutTemporaryObjects) {
  const Result<ObjectInfo> written = write(bytes_, {.object = {.content_type = "text/plain"}});
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_EQ(written->crc32c(), Crc32c().extended(bytes_of(bytes_)));
  EXPECT_EQ(written->content_type, "text/plain");
  EXPECT_TRUE(server_.object("out/a") == bytes_);
  EXPECT_EQ(server_.stat("/by_kind/resumable_start"), 1u);
  EXPECT_EQ(server_.stat("/by_kind/resumable_put"), 6u);
  EXPECT_EQ(server_.stat("/requests"), 7u);
}

TEST_F(ResumableTest, EndsAtAUnitToo) {
  for (const size_t units : {2u, 3u}) {
    const std::string bytes = some_bytes(units * part_bytes_);
    const Result<ObjectInfo> written = write(bytes);
    ASSERT_TRUE(written.has_value()) << written.error().to_string();
    EXPECT_TRUE(server_.object("out/a") == bytes);
  }
}

TEST_F(ResumableTest, GoesOnWhereItBrokeOff) {
  part_bytes_ = 16 * kMiB;
  const std::string bytes = some_bytes(12 * kMiB);
  server_.faults(
      R"([{"match":{"kind":"resumable_put"},"count":1,
           "action":{"cut_request_after_bytes":9000000}}])");
  const Result<ObjectInfo> written = write(bytes, {}, bytes.size());
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_TRUE(server_.object("out/a") == bytes);
  EXPECT_EQ(server_.stat("/by_kind/resumable_query"), 1u);
  // What the server had was not sent again.
  const std::vector<FaultServer::Entry> puts = server_.log("resumable_put");
  ASSERT_GE(puts.size(), 2u);
  EXPECT_THAT(puts[1].headers.at("content-range"), StartsWith("bytes 8912896-"));
}

TEST_F(ResumableTest, CreateOnlyIsRefusedBeforeAnythingIsSent) {
  server_.put("out/a", "before");
  EXPECT_THAT(write(bytes_, {.object = {.precondition = {.generation = ""}}}),
              FailsWith(Code::kPreconditionFailed, StartsWith("gs://bucket/out/a: ")));
  EXPECT_EQ(server_.stat("/by_kind/resumable_put"), 0u);
  EXPECT_EQ(server_.object("out/a"), "before");
}

TEST_F(ResumableTest, AbortEndsTheSession) {
  const std::shared_ptr<ObjectWriter> to = writer();
  ASSERT_TRUE(to->append(bytes_of(bytes_), nullptr, kMayBlock));
  server_.wait_for("/by_kind/resumable_put", 1);
  to->abort();
  EXPECT_TRUE(to->wait_cleaned(steady_clock::now() + kPatience, kMayBlock));
  EXPECT_EQ(server_.stat("/by_kind/resumable_cancel"), 1u);
  EXPECT_EQ(server_.object("out/a"), std::nullopt);
}

TEST_F(ResumableTest, RefusesPartsThatASessionDoesNotTake) {
  part_bytes_ = 256 * kKiB + 1;
  EXPECT_THAT(
      open()->open_writer({.object = {.name = "a"}, .method = method_, .part_bytes = part_bytes_}),
      FailsWith(Code::kInvalidArgument, HasSubstr("a multiple of 262144")));
}

TEST_F(ObjectWriterTest, UnfinishedMultipartUploadsAreListedAndAborted) {
  method_ = UploadMethod::kMultipart;
  const std::shared_ptr<ObjectWriter> to = writer();
  ASSERT_TRUE(to->append(bytes_of(bytes_), nullptr, kMayBlock));
  server_.wait_for("/by_kind/multipart_part", 5);
  const std::shared_ptr<ObjectStore> store = open();
  const Result<UploadsPage> page = take(store->list_multipart(std::string(kUploadPrefix), "", ""));
  ASSERT_TRUE(page.has_value()) << page.error().to_string();
  ASSERT_EQ(page->uploads.size(), 1u);
  EXPECT_THAT(page->uploads[0].name, StartsWith(kUploadPrefix));
  const UnfinishedUpload& upload = page->uploads[0];
  EXPECT_TRUE(take(store->abort_multipart(upload.name, upload.upload_id)).value());
  EXPECT_FALSE(take(store->abort_multipart(upload.name, upload.upload_id)).value());
  EXPECT_THAT(to->close(kMayBlock), FailsWith(Code::kNotFound, StartsWith("gs://bucket/out/a")));
  EXPECT_EQ(server_.object("out/a"), std::nullopt);
}

TEST_F(ObjectWriterTest, JoinsHundredsOfPartsInLevels) {
  // 32 · 32 parts and one more: joined in three levels.
  const std::string bytes = some_bytes(1024 * kPartBytes + 1);
  const Result<ObjectInfo> written = write(bytes, {}, 1'000'000);
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_EQ(written->crc32c(), Crc32c().extended(bytes_of(bytes)));
  EXPECT_EQ(server_.stat("/by_kind/upload"), 1025u);
  // 32 groups of parts, those joined, and at last with the part that is left.
  EXPECT_EQ(server_.stat("/by_kind/compose"), 34u);
  EXPECT_THAT(temporaries(), IsEmpty());
  EXPECT_TRUE(server_.object("out/a") == bytes);
}

TEST_F(ObjectWriterTest, SendsWhatIsLentFromWhereItIs) {
  // Answers take memory as they come: none does yet.
  server_.faults(R"([{"match":{"kind":"upload"},"action":"stall_head"}])");
  const std::shared_ptr<ObjectWriter> to = writer();
  auto lent = std::make_shared<std::string>(bytes_);
  const std::weak_ptr<std::string> watched = lent;
  const std::span<const std::byte> bytes = bytes_of(*lent);
  ASSERT_TRUE(to->append(bytes_of("head"), nullptr, kMayBlock));
  ASSERT_TRUE(to->append(bytes, std::exchange(lent, nullptr), kMayBlock));
  server_.wait_for("/in_flight", bytes_.size() / kPartBytes);
  EXPECT_EQ(engine_.pool().use().peak_live_bytes, BlockPool::charged_bytes(kPartBytes))
      << "one block for the copied bytes";
  server_.faults("[]");
  server_.post("release", "{}");
  const Result<ObjectInfo> written = to->close(kMayBlock);
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_TRUE(server_.object("out/a") == "head" + bytes_);
  // It is given back, by the I/O threads at the latest.
  const auto patience = steady_clock::now() + kPatience;
  while (!watched.expired() && steady_clock::now() < patience) std::this_thread::yield();
  EXPECT_TRUE(watched.expired());
}

TEST_P(EitherMethod, CopiesSmallAndLargePiecesAlike) {
  for (const size_t piece_bytes : {1000u, 4097u, 65'536u, 65'537u, 1'000'000u}) {
    const Result<ObjectInfo> written = write(bytes_, {}, piece_bytes);
    ASSERT_TRUE(written.has_value()) << written.error().to_string();
    EXPECT_TRUE(server_.object("out/a") == bytes_) << piece_bytes;
  }
}

TEST_P(EitherMethod, HoldsTheCallerUpWhenAsMuchIsUnderWayAsMayBe) {
  server_.faults(R"([{"match":{"kind":["upload","multipart_part"]},"action":"stall_head"}])");
  const std::shared_ptr<ObjectWriter> to = writer({.max_parts_in_flight = 2});
  const Result<size_t> taken = to->append_some(bytes_of(bytes_), nullptr);
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(*taken, 3 * kPartBytes);  // two are under way, one is full
  EXPECT_FALSE(to->wait_for_room(steady_clock::now(), kMayBlock));
  server_.wait_for("/in_flight", 2);
  // The answer that began the upload may still be on its way out of memory.
  const uint64_t three_parts = 3 * BlockPool::charged_bytes(kPartBytes);
  const auto patience = steady_clock::now() + kPatience;
  while (engine_.pool().live_bytes() != three_parts && steady_clock::now() < patience) {
    std::this_thread::yield();
  }
  EXPECT_EQ(engine_.pool().live_bytes(), three_parts);
  server_.faults("[]");
  to->abort();
  EXPECT_TRUE(to->wait_until_settled(steady_clock::now() + kPatience, kMayBlock));
}

TEST_F(ObjectWriterTest, GoesOnWithoutMemoryInTheBudget) {
  const Charge held(engine_.pool().shared_from_this(), 256 * kMiB);
  const Result<ObjectInfo> written = write(bytes_);
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_TRUE(server_.object("out/a") == bytes_);
  // One part at a time goes beyond it.
  EXPECT_LE(engine_.pool().use().peak_live_bytes,
            256 * kMiB + 2 * BlockPool::charged_bytes(kPartBytes));
}

TEST_P(EitherMethod, CreateOnlyIsRefusedWhenSomethingIsThere) {
  server_.put("out/a", "before");
  for (const size_t size : {size_t{100}, bytes_.size()}) {
    const Result<ObjectInfo> written =
        write(bytes_.substr(0, size), {.object = {.precondition = {.generation = ""}}});
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().code(), Code::kPreconditionFailed) << written.error().to_string();
    EXPECT_EQ(written.error().url(), "gs://bucket/out/a");
    EXPECT_EQ(server_.object("out/a"), "before");
    EXPECT_THAT(temporaries(), IsEmpty());
  }
}

TEST_P(EitherMethod, ReplacesOnlyTheGenerationThatIsMeant) {
  const ObjectInfo before = server_.put("out/a", "before");
  EXPECT_TRUE(write(bytes_, {.object = {.precondition = {.generation = before.generation}}}));
  EXPECT_TRUE(server_.object("out/a") == bytes_);
  EXPECT_THAT(write(bytes_, {.object = {.precondition = {.generation = before.generation}}}),
              FailsWith(Code::kPreconditionFailed, StartsWith("gs://bucket/out/a: ")));
  EXPECT_THAT(temporaries(), IsEmpty());
}

TEST_P(EitherMethod, AbortLeavesNothing) {
  server_.put("out/a", "before");
  const std::shared_ptr<ObjectWriter> to = writer();
  ASSERT_TRUE(to->append(bytes_of(bytes_), nullptr, kMayBlock));
  to->abort();
  EXPECT_TRUE(to->wait_cleaned(steady_clock::now() + kPatience, kMayBlock));
  EXPECT_THAT(temporaries(), IsEmpty());
  EXPECT_EQ(server_.object("out/a"), "before");
  EXPECT_THAT(to->append(bytes_of("more"), nullptr, kMayBlock),
              FailsWith(Code::kCancelled, StartsWith("gs://bucket/out/a: ")));
  EXPECT_THAT(to->close(kMayBlock), FailsWith(Code::kCancelled, HasSubstr("given up")));
}

// Parts are joined while others still come: whoever is last, it ends once.
TEST_F(ObjectWriterTest, ManyOfMoreThanOneLevelEndOnceEach) {
  const std::string bytes = some_bytes(33 * kPartBytes);
  for (int round = 0; round < 40; ++round) {
    const Result<ObjectInfo> written = write(bytes, {}, bytes.size());
    ASSERT_TRUE(written.has_value()) << written.error().to_string();
  }
  EXPECT_TRUE(server_.object("out/a") == bytes);
  EXPECT_EQ(server_.stat("/by_kind/compose"), 80u);
  EXPECT_THAT(temporaries(), IsEmpty());
}

TEST_F(ObjectWriterTest, AbortWhilePartsAreJoinedLeavesNothing) {
  const std::string bytes = some_bytes(36 * kPartBytes);
  for (int round = 0; round < 40; ++round) {
    const std::shared_ptr<ObjectWriter> to = writer();
    ASSERT_TRUE(to->append(bytes_of(bytes), nullptr, kMayBlock));
    to->abort();
    ASSERT_TRUE(to->wait_cleaned(steady_clock::now() + kPatience, kMayBlock));
  }
  EXPECT_THAT(temporaries(), IsEmpty());
  EXPECT_EQ(server_.object("out/a"), std::nullopt);
}

TEST_F(ObjectWriterTest, AMultipartUploadThatBecameSomethingElseIsCorrupt) {
  method_ = UploadMethod::kMultipart;
  server_.faults(R"([{"match":{"kind":"get"},"action":"wrong_checksum"}])");
  EXPECT_THAT(write(bytes_), FailsWith(Code::kCorrupt, HasSubstr("6 parts")));
  EXPECT_EQ(server_.stat("/by_kind/multipart_complete"), 1u);
  EXPECT_EQ(server_.object("out/a"), std::nullopt);
  server_.faults("[]");
  EXPECT_THAT(temporaries(), IsEmpty());
}

TEST_F(ObjectWriterTest, DroppingItAborts) {
  {
    const std::shared_ptr<ObjectWriter> to = writer();
    ASSERT_TRUE(to->append(bytes_of(bytes_), nullptr, kMayBlock));
  }
  server_.wait_for("/by_kind/delete", 5);
  EXPECT_EQ(server_.object("out/a"), std::nullopt);
  EXPECT_THAT(temporaries(), IsEmpty());
}

TEST_P(EitherMethod, StoppingTheEngineAbortsAndCleans) {
  Engine engine{{.io_threads = 2}};
  const std::shared_ptr<ObjectStore> store = open_in(engine, options_);
  const std::shared_ptr<ObjectWriter> to =
      store->open_writer({.object = {.name = "out/a"}, .method = method_, .part_bytes = kPartBytes})
          .value();
  ASSERT_TRUE(to->append(bytes_of(bytes_), nullptr, kMayBlock));
  engine.stop();
  EXPECT_THAT(temporaries(), IsEmpty());
  EXPECT_EQ(server_.object("out/a"), std::nullopt);
  EXPECT_THAT(to->close(kMayBlock), FailsWith(Code::kCancelled, StartsWith("gs://bucket/out/a: ")));
  EXPECT_THAT(store->open_writer({.object = {.name = "out/a"}}),
              FailsWith(Code::kCancelled, HasSubstr("stopped")));
}

TEST_F(ObjectWriterTest, TheFirstErrorIsTheOneThatStays) {
  server_.faults(
      R"([{"match":{"kind":"upload"},"from":3,"action":{"status":403,"message":"not you"}}])");
  const std::shared_ptr<ObjectWriter> to = writer();
  Result<void> appended;
  for (int i = 0; i < 1000 && appended; ++i) {
    appended = to->append(bytes_of(bytes_), nullptr, kMayBlock);
  }
  EXPECT_THAT(appended, FailsWith(Code::kPermissionDenied, HasSubstr("not you")));
  EXPECT_THAT(appended,
              FailsWith(Code::kPermissionDenied, StartsWith("gs://bucket/out/a: its part")));
  EXPECT_THAT(to->append(bytes_of("x"), nullptr, kMayBlock),
              FailsWith(Code::kPermissionDenied, HasSubstr("not you")));
  EXPECT_THAT(to->close(kMayBlock), FailsWith(Code::kPermissionDenied, HasSubstr("not you")));
  EXPECT_EQ(server_.object("out/a"), std::nullopt);
  server_.faults("[]");
  EXPECT_THAT(temporaries(), IsEmpty());
}

TEST_F(ObjectWriterTest, WhatCannotBeRemovedIsToldAndTheObjectIsGood) {
  server_.faults(
      R"([{"match":{"kind":"delete"},"count":1,
           "action":{"status":403,"reason":"retentionPolicyNotMet","message":"under retention"}}])");
  const std::shared_ptr<ObjectWriter> to = writer();
  ASSERT_TRUE(to->append(bytes_of(bytes_), nullptr, kMayBlock));
  EXPECT_TRUE(to->close(kMayBlock).has_value());
  ASSERT_TRUE(to->cleaning_error().has_value());
  EXPECT_THAT(to->cleaning_error()->message(), HasSubstr("1 temporary object below"));
  EXPECT_THAT(to->cleaning_error()->message(), HasSubstr("under retention"));
  EXPECT_EQ(temporaries().size(), 1u);
  EXPECT_TRUE(server_.object("out/a") == bytes_);
}

TEST_F(ObjectWriterTest, AWrongChecksumOfTheResultIsLookedAtOnceMore) {
  server_.faults(R"([{"match":{"kind":"compose"},"count":1,"action":"wrong_checksum"}])");
  const Result<ObjectInfo> written = write(bytes_);
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_EQ(written->crc32c(), Crc32c().extended(bytes_of(bytes_)));
  EXPECT_EQ(server_.stat("/by_kind/get"), 1u);
}

TEST_F(ObjectWriterTest, RefusesSizesThatCannotWork) {
  const std::shared_ptr<ObjectStore> store = open();
  EXPECT_THAT(store->open_writer({.object = {.name = "a"}, .part_bytes = 1000}),
              FailsWith(Code::kInvalidArgument, HasSubstr("part_bytes is 1000")));
  EXPECT_THAT(store->open_writer({.object = {.name = "a"}, .max_parts_in_flight = 0}),
              FailsWith(Code::kInvalidArgument, HasSubstr("max_parts_in_flight")));
  EXPECT_THAT(store->open_writer({}), FailsWith(Code::kInvalidArgument, HasSubstr("empty")));
  EXPECT_THAT(store->open_writer({.object = {.name = "a"}, .part_bytes = 4 * kGiB + 1}),
              FailsWith(Code::kInvalidArgument, HasSubstr("from 65536 to 4294967296")));
  options_.write_limits = {};
  EXPECT_THAT(open()->open_writer({.object = {.name = "a"},
                                   .method = UploadMethod::kMultipart,
                                   .part_bytes = 5 * kMiB - 1}),
              FailsWith(Code::kInvalidArgument, HasSubstr("from 5242880 to 5368709120")));
  EXPECT_TRUE(open()->open_writer(
      {.object = {.name = "a"}, .method = UploadMethod::kMultipart, .part_bytes = 5 * kMiB}));
  EXPECT_EQ(server_.stat("/requests"), 0u);
}

TEST_F(ObjectWriterTest, RefusesNamesThatTheServiceWouldRefuseInTheEnd) {
  for (const std::string& name : {std::string(1025, 'n'), std::string("a\nb"), std::string("."),
                                  std::string(".."), std::string(".well-known/acme-challenge/x")}) {
    EXPECT_THAT(open()->open_writer({.object = {.name = name}}),
                FailsWith(Code::kInvalidArgument, StartsWith("gs://bucket/")))
        << name;
  }
  EXPECT_TRUE(open()->open_writer({.object = {.name = std::string(1024, 'n')}}));
  EXPECT_EQ(server_.stat("/requests"), 0u);
}

TEST_F(ObjectWriterTest, TheFirstByteTooManyOfAMultipartUploadIsRefused) {
  method_ = UploadMethod::kMultipart;
  options_.write_limits.max_multipart_parts = 3;
  const std::string_view bytes = std::string_view(bytes_).substr(0, 3 * kPartBytes);
  EXPECT_TRUE(write(bytes).has_value());
  const std::shared_ptr<ObjectWriter> to = writer();
  ASSERT_TRUE(to->append(bytes_of(bytes), nullptr, kMayBlock));
  EXPECT_THAT(to->append(bytes_of("x"), nullptr, kMayBlock),
              FailsWith(Code::kInvalidArgument, HasSubstr("at most 3 parts, and with part_bytes "
                                                          "65536")));
  EXPECT_THAT(to->close(kMayBlock), FailsWith(Code::kInvalidArgument, HasSubstr("larger parts")));
  EXPECT_TRUE(server_.object("out/a") == bytes);
  EXPECT_THAT(temporaries(), IsEmpty());
  EXPECT_EQ(unfinished(), 0u);
}

TEST_F(ObjectWriterTest, AnObjectThatNoStoreTakesIsRefusedBeforeItIsSent) {
  options_.write_limits.max_object_bytes = 100'000;
  const std::shared_ptr<ObjectWriter> to = writer();
  const uint64_t requests = server_.stat("/requests");
  EXPECT_THAT(to->append(bytes_of(some_bytes(100'001)), nullptr, kMayBlock),
              FailsWith(Code::kInvalidArgument,
                        "gs://bucket/out/a: the store takes no object of more than 100000 bytes"));
  EXPECT_EQ(server_.stat("/requests"), requests);
}

// The last request is never sent again on a guess.
TEST_F(ObjectWriterTest, AnAnswerThatIsLostInTheEndIsSettledByLooking) {
  struct Case {
    UploadMethod method;
    const char* kind;
    const char* look;
  };
  for (const Case& each : {Case{UploadMethod::kParts, "compose", "get"},
                           Case{UploadMethod::kMultipart, "multipart_complete", "get"},
                           Case{UploadMethod::kMultipart, "compose", "get"},
                           Case{UploadMethod::kResumable, "resumable_put", "resumable_query"}}) {
    SCOPED_TRACE(cat(static_cast<int>(each.method), " ", each.kind));
    server_.reset();
    method_ = each.method;
    part_bytes_ = 256 * kKiB;
    const std::string bytes = some_bytes(2 * part_bytes_ + 5);
    // Of the stream it is the third, the one with its end.
    const int position = each.method == UploadMethod::kResumable ? 3 : 1;
    server_.faults(cat(R"([{"match":{"kind":")", each.kind, R"("},"from":)", position,
                       R"(,"count":1,"action":"lost_answer"}])"));
    const uint64_t before = server_.stat(cat("/by_kind/", each.kind));
    const uint64_t looked = server_.stat(cat("/by_kind/", each.look));
    const Result<ObjectInfo> written = write(bytes);
    ASSERT_TRUE(written.has_value()) << written.error().to_string();
    EXPECT_TRUE(server_.object("out/a") == bytes);
    EXPECT_EQ(written->crc32c(), Crc32c().extended(bytes_of(bytes)));
    EXPECT_EQ(server_.stat(cat("/by_kind/", each.kind)), before + static_cast<uint64_t>(position));
    EXPECT_GE(server_.stat(cat("/by_kind/", each.look)), looked + 1);
    EXPECT_THAT(temporaries(), IsEmpty());
    EXPECT_EQ(unfinished(), 0u);
  }
}

TEST_F(ObjectWriterTest, AMultipartUploadWhoseObjectHasNoSumIsNotPublished) {
  method_ = UploadMethod::kMultipart;
  part_bytes_ = 256 * kKiB;
  const std::string bytes = some_bytes(2 * part_bytes_ + 5);
  struct Case {
    const char* completion;
    Code code;
    const char* message;
  };
  for (const Case& each :
       {Case{R"({"match":{"kind":"multipart_complete"},"count":1,"action":"lost_answer"},)",
             Code::kUnavailable, "is unknown"},
        Case{"", Code::kCorrupt, "bytes with no CRC32C told of 3 parts"}}) {
    server_.reset();
    server_.faults(cat("[", each.completion, R"({"match":{"kind":"get"},"action":"no_hash"}])"));
    EXPECT_THAT(write(bytes), FailsWith(each.code, AllOf(HasSubstr("gs://bucket/out/a"),
                                                         HasSubstr(each.message))));
    EXPECT_EQ(server_.stat("/by_kind/multipart_complete"), 1u);
    EXPECT_EQ(server_.stat("/by_kind/compose"), 0u);
    server_.faults("[]");
    EXPECT_EQ(server_.object("out/a"), std::nullopt);
    EXPECT_THAT(temporaries(), IsEmpty());
    EXPECT_EQ(unfinished(), 0u);
  }
}

// What may go wrong with one request, at each of its places: either all is well in the end, or it
// failed and nobody sees anything of it.
struct Misfortune {
  const char* name;
  const char* action;
};

class EveryRequestOnce : public ObjectWriterTest, public ::testing::WithParamInterface<Misfortune> {
 protected:
  // Writes 35 parts, each time with another request of this kind gone wrong.
  void run(const std::string& kind, int count);
  const std::string all_ = some_bytes(34 * kPartBytes + 5, 3);  // joined in two levels
};

void EveryRequestOnce::run(const std::string& kind, int count) {
  // For the writes alone, and with attempts for many seconds: the server may be held up.
  const StoreOptions patient = options_;
  StoreOptions hasty = options_;
  if (GetParam().name == std::string_view("stalled")) {
    hasty.timeout.stall = hasty.timeout.first_byte = std::chrono::milliseconds(150);
    hasty.retry.max_attempts = 200;
  }
  for (int position = 1; position <= count; ++position) {
    server_.reset();
    const ObjectInfo before = server_.put("out/a", "before");
    const uint64_t started = server_.stat("/by_kind/multipart_start");
    server_.faults(cat(R"([{"match":{"kind":")", kind, R"("},"from":)", position,
                       R"(,"count":1,"action":)", GetParam().action, "}]"));
    options_ = hasty;
    const Result<ObjectInfo> written =
        write(all_, {.object = {.precondition = {.generation = before.generation}}}, 100'000);
    options_ = patient;
    server_.faults("[]");
    const std::string where = cat(kind, " ", position);
    const std::optional<std::string> found = server_.object("out/a");
    if (written) {
      EXPECT_TRUE(found == all_) << where;
      EXPECT_EQ(written->crc32c(), Crc32c().extended(bytes_of(all_))) << where;
    } else {
      EXPECT_EQ(found, "before") << where << ": " << written.error().to_string();
      EXPECT_EQ(written.error().url(), "gs://bucket/out/a") << written.error().to_string();
    }
    EXPECT_THAT(temporaries(), IsEmpty()) << where;
    // A start whose answer was lost, or came too late, leaves an upload without parts.
    const uint64_t starts = server_.stat("/by_kind/multipart_start") - started;
    EXPECT_LE(unfinished(), starts > 0 ? starts - 1 : 0) << where;
  }
}

TEST_P(EveryRequestOnce, EndsWellOrLeavesNothingAsPartObjects) {
  run("upload", 35);
  run("compose", 2);
}

TEST_P(EveryRequestOnce, EndsWellOrLeavesNothingAsAMultipartUpload) {
  method_ = UploadMethod::kMultipart;
  run("multipart_start", 1);
  run("multipart_part", 35);
  run("multipart_complete", 1);
  run("get", 1);
  run("compose", 1);
}

TEST_P(EveryRequestOnce, EndsWellOrLeavesNothingAsAResumableUpload) {
  method_ = UploadMethod::kResumable;
  part_bytes_ = 256 * kKiB;
  run("resumable_start", 1);
  run("resumable_put", 9);
}

INSTANTIATE_TEST_SUITE_P(
    Misfortunes, EveryRequestOnce,
    ::testing::Values(
        Misfortune{"reset", R"("reset")"}, Misfortune{"lost", R"("lost_answer")"},
        Misfortune{"stalled", R"("stall_head")"},
        Misfortune{"cut_request", R"({"cut_request_after_bytes":10000})"},
        Misfortune{"cut_answer", R"({"cut_after_bytes":20})"},
        Misfortune{"reset_answer", R"({"reset_after_bytes":20})"},
        Misfortune{"s429", R"({"status":429})"}, Misfortune{"s500", R"({"status":500})"},
        Misfortune{"s503", R"({"status":503})"},
        Misfortune{"s503_done", R"({"status":503,"perform":true})"},
        Misfortune{"s412", R"({"status":412})"}, Misfortune{"s403", R"({"status":403})"},
        Misfortune{"checksum", R"("wrong_checksum")"}, Misfortune{"garbage", R"("garbage_head")"},
        Misfortune{"wrong_length", R"({"wrong_length":10})"}),
    [](const auto& given) { return given.param.name; });

}  // namespace
}  // namespace headrace
