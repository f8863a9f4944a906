// Reading: integrity, changes under way, ranges, sizes known and unknown, gzip.
#include <zlib.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "headrace/format/http_head.h"
#include "headrace/store/fault_server_test_support.h"
#include "headrace/store/gcs/gcs_protocol.h"
#include "headrace/store/reading/read_attempt.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class ReadTest : public StoreTest {
 protected:
  uint64_t media_requests() { return server_.stat("/by_kind/media"); }

  const std::string bytes_ = some_bytes(100'000);
  const ObjectInfo object_ = server_.put("train/a", bytes_);
  const ReadTarget unlisted_ = named("train/a");
};

ReadTarget without_generation(const ObjectInfo& info) {
  ReadTarget target = listed(info);
  target.generation = "";
  return target;
}

TEST_F(ReadTest, BringsAnObjectWithOneRequestAndChecksIt) {
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_THAT(read(*open(), unlisted_), Gives(bytes_));
  EXPECT_EQ(media_requests(), 2u);
  const EngineMetrics metrics = engine_.metrics();
  EXPECT_EQ(metrics.objects_read_total, 2u);
  EXPECT_EQ(metrics.checksums_verified_total, 2u);
  EXPECT_EQ(metrics.bytes_read_total, 200'000u);
  EXPECT_EQ(metrics.retries_total, 0u);
}

TEST_F(ReadTest, TellsTheGenerationThatWasRead) {
  const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&unlisted_, 1));
  open()->read(batch);
  wait_for(*batch);
  EXPECT_EQ(batch->slot(0).found_generation.view(), object_.generation);
  EXPECT_EQ(batch->slot(0).object_bytes, bytes_.size());
}

TEST_F(ReadTest, EndsEverySlotOfABatchOnItsOwn) {
  const ReadTarget missing = named("no");
  const std::vector<ReadTarget> targets = {listed(object_), missing, unlisted_};
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  open()->read(batch);
  wait_for(*batch);
  EXPECT_THAT(outcome(*batch, 0), Gives(bytes_));
  EXPECT_THAT(outcome(*batch, 1), FailsWith(Code::kNotFound, HasSubstr("gs://bucket/no")));
  EXPECT_THAT(outcome(*batch, 2), Gives(bytes_));
}

TEST_F(ReadTest, AnEmptyBatchIsDoneAtOnce) {
  const std::shared_ptr<ReadBatch> batch = ReadBatch::create(0);
  open()->read(batch);
  EXPECT_TRUE(batch->done());
  wait_for(*batch);
}

TEST_F(ReadTest, NamesOfAllKindsArrive) {
  const std::shared_ptr<ObjectStore> store = open();
  for (const std::string name : {"50%#1?+ x", "a//b/", "gr\xc3\xbc\xc3\x9f", "a\nb", "..%2F"}) {
    const std::string bytes = some_bytes(50, 9);
    EXPECT_THAT(read(*store, listed(server_.put(name, bytes))), Gives(bytes)) << name;
  }
}

// ── Integrity ────────────────────────────────────────────────────────────────────────────────

TEST_F(ReadTest, ABadByteOnceIsReadAgain) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"flip_byte":77777}}])");
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_EQ(media_requests(), 2u);
}

TEST_F(ReadTest, ABadByteOfAnUnlistedObjectOnceIsReadAgain) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"flip_byte":0}}])");
  EXPECT_THAT(read(*open(), unlisted_), Gives(bytes_));
  EXPECT_EQ(media_requests(), 2u);
}

TEST_F(ReadTest, ABadByteAlwaysIsAnErrorThatNamesTheObject) {
  server_.faults(R"([{"match":{"kind":"media"},"action":{"flip_byte":5}}])");
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kCorrupt, AllOf(HasSubstr("gs://bucket/train/a"),
                                              HasSubstr(object_.crc32c()->to_base64()))));
  EXPECT_EQ(media_requests(), 2u);
}

TEST_F(ReadTest, AWrongHashInTheAnswerOnceIsReadAgain) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":"wrong_checksum"}])");
  EXPECT_THAT(read(*open(), unlisted_), Gives(bytes_));
  EXPECT_EQ(media_requests(), 2u);
}

TEST_F(ReadTest, AWrongHashInTheAnswerAlwaysIsAnError) {
  server_.faults(R"([{"match":{"kind":"media"},"action":"wrong_checksum"}])");
  EXPECT_THAT(read(*open(), unlisted_), FailsWith(Code::kCorrupt, HasSubstr("train/a")));
}

TEST_F(ReadTest, TheListedSumIsCheckedWhereTheAnswerHasNone) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":"no_hash"},
                     {"match":{"kind":"media"},"action":{"no_hash":true,"flip_byte":1}}])");
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_EQ(engine_.metrics().checksums_verified_total, 1u);
  EXPECT_THAT(read(*open(), listed(object_)), FailsWith(Code::kCorrupt, HasSubstr("CRC32C")));
}

TEST_F(ReadTest, VerifyOffTakesWhatComes) {
  options_.verify = Verify::kNone;
  server_.faults(R"([{"match":{"kind":"media"},"action":{"flip_byte":5}}])");
  const Result<std::string> got = read(*open(), listed(object_));
  ASSERT_TRUE(got.has_value());
  EXPECT_NE(*got, bytes_);
  EXPECT_EQ(engine_.metrics().checksums_verified_total, 0u);
}

class WrongLength : public ReadTest, public ::testing::WithParamInterface<int> {};

TEST_P(WrongLength, OnceIsReadAgainAndAlwaysIsAnError) {
  const std::string rule =
      cat(R"("match":{"kind":"media"},"action":{"wrong_length":)", GetParam(), "}}]");
  for (const ReadTarget& target : {listed(object_), unlisted_}) {
    server_.faults(cat(R"([{"count":1,)", rule));
    EXPECT_THAT(read(*open(), target), Gives(bytes_));
    server_.faults(cat("[{", rule));
    // The whole object's length contradicts the stored one, the range's length its Content-Range: a
    // head that contradicts itself is a malformed answer, of which no byte is taken.
    EXPECT_THAT(read(*open(), target),
                FailsWith(Code::kUnavailable,
                          AllOf(HasSubstr("gs://bucket/train/a"),
                                HasSubstr(cat(bytes_.size() + size_t(GetParam()), " bytes")))));
  }
}

INSTANTIATE_TEST_SUITE_P(, WrongLength, ::testing::Values(-100, -1, 1, 100));

TEST_F(ReadTest, ACutBodyGoesOnWhereItBrokeOffInTheSameGeneration) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"cut_after_bytes":30000}},
                     {"match":{"kind":"media"},"count":1,"action":{"reset_after_bytes":20000}}])");
  EXPECT_THAT(read(*open(), unlisted_), Gives(bytes_));
  const std::vector<FaultServer::Entry> log = server_.log("media");
  ASSERT_THAT(log, SizeIs(3));
  // A reset may lose bytes that had arrived; a clean end does not.
  EXPECT_EQ(log[1].headers.at("range"), "bytes=30000-99999");
  EXPECT_THAT(log[1].target, HasSubstr(cat("ifGenerationMatch=", object_.generation)));
  EXPECT_THAT(log[2].target, HasSubstr(cat("ifGenerationMatch=", object_.generation)));
  EXPECT_LT(log[2].bytes_sent, 70'001u);
  EXPECT_EQ(engine_.metrics().checksums_verified_total, 1u);
}

// ── Changes ──────────────────────────────────────────────────────────────────────────────────

TEST_F(ReadTest, AnObjectChangedSinceItWasListedIsAnErrorThatSaysSo) {
  server_.put("train/a", some_bytes(100'000, 2));
  EXPECT_THAT(
      read(*open(), listed(object_)),
      FailsWith(Code::kPreconditionFailed, AllOf(HasSubstr("gs://bucket/train/a"),
                                                 HasSubstr("has changed since it was listed"),
                                                 HasSubstr(object_.generation))));
  EXPECT_EQ(media_requests(), 1u);
}

TEST_F(ReadTest, AnObjectChangedSinceItWasListedIsReadAnewIfThatWasAskedFor) {
  options_.on_change = OnChange::kReread;
  for (const size_t size : {100'000u, 5u, 300'000u, 0u}) {
    const std::string fresh = some_bytes(size, 3);
    const ObjectInfo now = server_.put("train/a", fresh);
    EXPECT_THAT(read(*open(), listed(object_)), Gives(fresh)) << size << " bytes";
    EXPECT_EQ(now.size_bytes, size);
  }
}

TEST_F(ReadTest, AnAnswerOfAnotherGenerationIsAChangeThoughTheServerIgnoredTheCondition) {
  server_.faults(R"([{"match":{"kind":"media"},"action":{"headers":{"x-goog-generation":"77"}}}])");
  EXPECT_THAT(
      read(*open(), listed(object_)),
      FailsWith(Code::kPreconditionFailed, AllOf(HasSubstr("has changed since it was listed"),
                                                 HasSubstr(object_.generation), HasSubstr("77"))));
  EXPECT_EQ(media_requests(), 1u);
  options_.on_change = OnChange::kReread;
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_EQ(media_requests(), 3u);
}

TEST_F(ReadTest, AGenerationMayBeOfAnyLength) {
  const std::string generation(2000, '7');
  server_.faults(cat(R"([{"match":{"kind":"media"},"action":{"headers":{"x-goog-generation":")",
                     generation, "\"}}}]"));
  const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&unlisted_, 1));
  open()->read(batch);
  wait_for(*batch);
  EXPECT_EQ(batch->slot(0).found_generation.view(), generation);
}

TEST(GenerationText, KeepsShortAndLongTextsAndCopiesThem) {
  GenerationText text;
  for (const size_t size : {0u, 1u, 40u, 41u, 5000u, 3u}) {
    const std::string generation(size, 'x');
    text.assign(generation);
    EXPECT_EQ(text.view(), generation);
    EXPECT_EQ(text.empty(), size == 0);
    GenerationText copy(text);
    text.assign("other");
    EXPECT_EQ(copy.view(), generation);
  }
}

TEST_F(ReadTest, AnObjectThatShrankOrGrewIsNoticedWithoutAGeneration) {
  for (const size_t size : {0u, 99'999u, 100'001u}) {
    server_.put("train/a", some_bytes(size, 4));
    EXPECT_THAT(read(*open(), without_generation(object_)),
                FailsWith(Code::kPreconditionFailed,
                          AllOf(HasSubstr(cat("has ", size, " bytes, and not the 100000")),
                                HasSubstr("has changed since it was listed, or was never so large"),
                                HasSubstr("no generation of then is known"))))
        << size << " bytes";
  }
}

TEST_F(ReadTest, AnObjectThatVanishedIsNotFound) {
  ASSERT_TRUE(take(open()->remove("train/a", {})).has_value());
  for (const ReadTarget& target : {listed(object_), unlisted_}) {
    EXPECT_THAT(read(*open(), target), FailsWith(Code::kNotFound, HasSubstr("train/a")));
  }
}

TEST_F(ReadTest, AnObjectChangedWhileItIsReadIsNeverMixed) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,
                      "action":{"cut_after_bytes":30000,"old_generation_then_new":true}}])");
  EXPECT_THAT(read(*open(), unlisted_),
              FailsWith(Code::kPreconditionFailed, HasSubstr("has changed while it was read")));
}

TEST_F(ReadTest, AnObjectChangedWhileItIsReadIsReadAnewIfThatWasAskedFor) {
  options_.on_change = OnChange::kReread;
  server_.faults(R"([{"match":{"kind":"media"},"count":1,
                      "action":{"cut_after_bytes":30000,"old_generation_then_new":true}}])");
  const Result<std::string> got = read(*open(), listed(object_));
  const std::string fresh = server_.object("train/a").value();
  EXPECT_THAT(got, Gives(fresh));
  EXPECT_FALSE(fresh == bytes_);
}

TEST_F(ReadTest, PartsOfTwoVersionsOfALargeObjectAreNeverMixed) {
  options_.range_threshold_bytes = 16 * kKiB;
  options_.range_bytes = kMinRangeBytes;
  const std::string large = some_bytes(300'000);
  const ObjectInfo info = server_.put("train/a", large);
  // Whichever part comes third finds another object in its place afterwards.
  server_.faults(R"([{"match":{"kind":"media"},"from":3,"count":1,
                      "action":{"old_generation_then_new":true}}])");
  for (const ReadTarget& target : {listed(info), unlisted_}) {
    EXPECT_THAT(read(*open(), target), FailsWith(Code::kPreconditionFailed, HasSubstr("changed")));
    server_.put("train/a", large);
    server_.faults(R"([{"match":{"kind":"media"},"from":3,"count":1,
                        "action":{"old_generation_then_new":true}}])");
  }
}

// ── Ranges ───────────────────────────────────────────────────────────────────────────────────

std::string piece(std::string_view bytes, ByteRange range) {
  const uint64_t end = std::min<uint64_t>(range.end, bytes.size());
  return std::string(bytes.substr(range.begin, end - range.begin));
}

TEST_F(ReadTest, RangesAtAllEdges) {
  const uint64_t size = bytes_.size();
  const std::shared_ptr<ObjectStore> store = open();
  for (const ByteRange range :
       {ByteRange{0, 1}, ByteRange{0, size}, ByteRange{0, size - 1}, ByteRange{1, size},
        ByteRange{size - 1, size}, ByteRange{500, 2000}, ByteRange{7, 7}, ByteRange{0, 0},
        ByteRange{size - 5, size + 100}, ByteRange{0, UINT64_MAX}, ByteRange{9, UINT64_MAX}}) {
    for (ReadTarget target : {listed(object_), without_generation(object_), unlisted_}) {
      target.range = range;
      EXPECT_THAT(read(*store, target), Gives(piece(bytes_, range)))
          << "[" << range.begin << ", " << range.end << "), size "
          << (target.size_bytes == kUnknownSize ? "unknown" : "known");
    }
  }
}

TEST_F(ReadTest, ARangeFromTheEndOnIsEmptyWhereTheSizeIsKnown) {
  ReadTarget target = listed(object_);
  target.range = ByteRange{bytes_.size(), bytes_.size() + 10};
  EXPECT_THAT(read(*open(), target), Gives(""));
}

TEST_F(ReadTest, ARangeOfNothingAsksForOneByteAndKeepsNone) {
  for (const ReadTarget& object : {listed(object_), unlisted_}) {
    const uint64_t before = media_requests();
    ReadTarget target = object;
    target.range = ByteRange{500, 500};
    EXPECT_THAT(read(*open(), target), Gives(""));
    EXPECT_EQ(media_requests(), before + 1);
    EXPECT_EQ(server_.log("media").back().headers.at("range"), "bytes=500-500");
  }
  ReadTarget missing = named("missing");
  missing.range = ByteRange{500, 500};
  EXPECT_THAT(read(*open(), missing), FailsWith(Code::kNotFound, HasSubstr("bucket/missing")));
}

TEST_F(ReadTest, ARangeThatEndsBeforeItBeginsIsRefusedBeforehand) {
  ReadTarget target = unlisted_;
  target.range = ByteRange{7, 6};
  EXPECT_THAT(read(*open(), target),
              FailsWith(Code::kInvalidArgument, HasSubstr("[7, 6) ends before it begins")));
  EXPECT_EQ(media_requests(), 0u);
}

TEST_F(ReadTest, ARangeBeyondTheEndIsAnError) {
  for (ReadTarget target : {listed(object_), unlisted_}) {
    target.range = ByteRange{bytes_.size() + 1, bytes_.size() + 10};
    EXPECT_THAT(read(*open(), target),
                FailsWith(Code::kInvalidArgument,
                          AllOf(HasSubstr("the range begins at 100001"), HasSubstr("train/a"))));
  }
}

TEST_F(ReadTest, AServerThatIgnoresRangesIsUnderstood) {
  server_.faults(R"([{"match":{"kind":"media"},"action":"ignore_range"}])");
  for (ReadTarget target : {listed(object_), unlisted_}) {
    target.range = ByteRange{70'000, 70'010};
    EXPECT_THAT(read(*open(), target), Gives(bytes_.substr(70'000, 10)));
  }
  EXPECT_EQ(media_requests(), 2u);
}

TEST_F(ReadTest, AServerThatIgnoresRangesAfterACutIsUnderstood) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"cut_after_bytes":30000}},
                     {"match":{"kind":"media"},"action":"ignore_range"}])");
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
}

TEST_F(ReadTest, AnAnswerForAnotherRangeIsNotTaken) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":
                      {"wrong_range":"bytes 101-110/100000"}}])");
  ReadTarget target = listed(object_);
  target.range = ByteRange{100, 110};
  EXPECT_THAT(read(*open(), target), Gives(bytes_.substr(100, 10)));
  EXPECT_EQ(media_requests(), 2u);
}

// An answer that says what it cannot mean. Every kind of read meets each: it must end with an error
// that is not the caller's, or in another attempt, and never with bytes outside of its memory.
struct Lie {
  const char* name;
  const char* headers;  // JSON
  size_t body_bytes;
  bool chunked = false;
  bool to_first = true;  // also where byte 0 was asked for
};

void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.name; }

class LyingServer : public ReadTest, public ::testing::WithParamInterface<Lie> {
 protected:
  LyingServer() {
    options_.range_threshold_bytes = 16 * kKiB;
    options_.range_bytes = kMinRangeBytes;
    options_.retry.max_attempts = 3;
  }

  std::string rule(std::string_view match) const {
    const Lie& lie = GetParam();
    return cat("{", match, R"("action":{"status":206,"headers":)", lie.headers, R"(,"chunked":)",
               lie.chunked ? "true" : "false", R"(,"body":")", std::string(lie.body_bytes, 'L'),
               "\"}}");
  }

  std::vector<ReadTarget> targets() const {
    std::vector<ReadTarget> targets;
    for (const ByteRange range : {ByteRange{10, UINT64_MAX}, ByteRange{10, 50'000},
                                  ByteRange{10, 40}, ByteRange{0, UINT64_MAX}}) {
      if (range.begin == 0 && !GetParam().to_first) continue;
      for (ReadTarget target : {listed(object_), without_generation(object_), unlisted_}) {
        target.range = range;
        targets.push_back(target);
      }
    }
    if (GetParam().to_first) {
      targets.push_back(listed(object_));
      targets.push_back(unlisted_);
    }
    return targets;
  }

  // Reads into the middle of memory that must stay as it is around it.
  Result<std::string> read_between(const ReadTarget& target) {
    constexpr size_t kAround = 64 * kKiB;
    const size_t size = piece(bytes_, target.range.value_or(ByteRange{0, UINT64_MAX})).size();
    std::string memory(kAround + size + kAround, '#');
    ReadTarget into = target;
    into.into = std::as_writable_bytes(std::span(memory).subspan(kAround, size));
    into.has_into = true;
    const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&into, 1));
    open()->read(batch);
    wait_for(*batch);
    EXPECT_EQ(memory.substr(0, kAround), std::string(kAround, '#'));
    EXPECT_EQ(memory.substr(kAround + size), std::string(kAround, '#'));
    return outcome(*batch, 0);
  }
};

TEST_P(LyingServer, OnceIsReadAgainAndAlwaysIsAnError) {
  for (const ReadTarget& target : targets()) {
    const ByteRange range = target.range.value_or(ByteRange{0, UINT64_MAX});
    SCOPED_TRACE(cat("[", range.begin, ", ", range.end, "), ",
                     target.size_bytes == kUnknownSize ? "unlisted" : "listed", ", ",
                     target.generation.empty() ? "any generation" : "one generation"));
    const std::string wanted = piece(bytes_, range);
    for (const int first : {1, 2}) {  // the first answer, which makes the memory, or a later one
      server_.faults(
          cat("[", rule(cat(R"("match":{"kind":"media"},"count":1,"from":)", first, ",")), "]"));
      EXPECT_THAT(read(*open(), target), Gives(wanted));
      server_.faults(
          cat("[", rule(cat(R"("match":{"kind":"media"},"count":1,"from":)", first, ",")), "]"));
      EXPECT_THAT(read_between(target), Gives(wanted));
    }
    server_.faults(cat("[", rule(R"("match":{"kind":"media"},)"), "]"));
    for (const Result<std::string>& got : {read(*open(), target), read_between(target)}) {
      ASSERT_FALSE(got.has_value());
      EXPECT_THAT(got.error().code(), ::testing::AnyOf(Code::kUnavailable, Code::kCorrupt))
          << got.error().to_string();
    }
  }
  wait_until_all_is_given_back(engine_.pool());
}

INSTANTIATE_TEST_SUITE_P(
    , LyingServer,
    ::testing::Values(
        Lie{"AnotherRangeBehind", R"({"Content-Range":"bytes 60001-60010/100000"})", 10},
        Lie{"NoTotal", R"({"Content-Range":"bytes 0-9"})", 10}, Lie{"NoRange", R"({})", 10},
        Lie{"Nonsense", R"({"Content-Range":"nonsense"})", 10},
        Lie{"Backwards", R"({"Content-Range":"bytes 109-100/100000"})", 10},
        Lie{"Overflow", R"({"Content-Range":"bytes 0-99999999999999999999/100000"})", 10},
        Lie{"EndsBeforeItWasAskedFor", R"({"Content-Range":"bytes 0-4/100000"})", 5, false, false},
        Lie{"EndsBeforeItWasAskedForInChunks", R"({"Content-Range":"bytes 0-4/100000"})", 5000,
            true, false},
        Lie{"EndsWhereItWasAskedFor", R"({"Content-Range":"bytes 0-9/100000"})", 10, false, false},
        Lie{"NothingInRange", R"({"Content-Range":"bytes */100000"})", 0},
        Lie{"NothingInRangeWithABody", R"({"Content-Range":"bytes */100000"})", 100},
        Lie{"LongerThanItsRange", R"({"Content-Range":"bytes 0-49/100000"})", 5000},
        Lie{"ShorterThanItsRange", R"({"Content-Range":"bytes 0-99999/100000"})", 5000},
        Lie{"LongerThanItsRangeInChunks", R"({"Content-Range":"bytes 0-49/100000"})", 5000, true},
        Lie{"ShorterThanItsRangeInChunks", R"({"Content-Range":"bytes 0-99999/100000"})", 5000,
            true},
        Lie{"LargestTotal", R"({"Content-Range":"bytes 0-49/18446744073709551615"})", 50},
        Lie{"RangesInParts",
            R"({"Content-Type":"multipart/byteranges; boundary=x",
                "Content-Range":"bytes 0-99999/100000"})",
            300}),
    [](const ::testing::TestParamInfo<Lie>& info) { return std::string(info.param.name); });

// ── Services that name no generation ────────────────────────────────────────────────────────

// Requests for one object cannot be held to one version then.
class NoGeneration : public ReadTest {
 protected:
  NoGeneration() {
    options_.range_threshold_bytes = 16 * kKiB;
    options_.range_bytes = kMinRangeBytes;
  }

  static constexpr const char* kNameless =
      R"({"match":{"kind":"media"},"action":{"headers":{"x-goog-generation":""}}})";
};

TEST_F(NoGeneration, ALargeObjectIsReadInOneRequestAfterOneThatTellsSo) {
  server_.faults(cat("[", kNameless, "]"));
  for (const ReadTarget& target : {unlisted_, without_generation(object_)}) {
    const size_t before = server_.log("media").size();
    EXPECT_THAT(read(*open(), target), Gives(bytes_));
    const std::vector<FaultServer::Entry> log = server_.log("media");
    ASSERT_EQ(log.size(), before + 2);
    EXPECT_EQ(log[before].headers.at("range"), "bytes=0-16383");
    EXPECT_FALSE(log[before + 1].headers.contains("range"));
  }
  EXPECT_EQ(engine_.metrics().retries_total, 0u);
}

TEST_F(NoGeneration, ALargeRangeIsReadInOneRequestAfterOneThatTellsSo) {
  server_.faults(cat("[", kNameless, "]"));
  for (const auto& [end, header] :
       {std::pair<uint64_t, const char*>{50'000, "bytes=10-49999"}, {UINT64_MAX, "bytes=10-"}}) {
    ReadTarget target = unlisted_;
    target.range = ByteRange{10, end};
    EXPECT_THAT(read(*open(), target), Gives(piece(bytes_, *target.range)));
    EXPECT_EQ(server_.log("media").back().headers.at("range"), header);
  }
  EXPECT_EQ(media_requests(), 4u);
}

TEST_F(NoGeneration, AnObjectThatWasListedInOneGenerationIsReadInPiecesOfThat) {
  server_.faults(cat("[", kNameless, "]"));
  const std::string large = some_bytes(600'000);
  const ObjectInfo info = server_.put("train/a", large);
  for (ReadTarget target : {listed(info), unlisted_}) {
    target.generation = info.generation;
    const uint64_t before = media_requests();
    const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
    open()->read(batch);
    wait_for(*batch);
    EXPECT_THAT(outcome(*batch, 0), Gives(large));
    EXPECT_EQ(batch->slot(0).found_generation.view(), info.generation);
    EXPECT_GT(media_requests(), before + 5);
  }
  for (const FaultServer::Entry& request : server_.log("media")) {
    EXPECT_THAT(request.target, HasSubstr(cat("ifGenerationMatch=", info.generation)));
  }
}

TEST_F(NoGeneration, ABodyThatBreaksOffIsReadAgainFromItsBegin) {
  options_.range_threshold_bytes = 1 * kMiB;
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"headers":
                       {"x-goog-generation":""},"no_hash":true,"cut_after_bytes":30000,
                       "old_generation_then_new":true}},
                     {"match":{"kind":"media"},"action":{"headers":
                       {"x-goog-generation":""},"no_hash":true}}])");
  const Result<std::string> got = read(*open(), unlisted_);
  const std::string fresh = server_.object("train/a").value();
  ASSERT_NE(fresh, bytes_);
  EXPECT_THAT(got, Gives(fresh));
  const std::vector<FaultServer::Entry> log = server_.log("media");
  ASSERT_THAT(log, SizeIs(2));
  EXPECT_EQ(log[0].headers.at("range"), "bytes=0-1048575");
  EXPECT_FALSE(log[1].headers.contains("range"));
}

TEST_F(NoGeneration, APartOfWhatWasAskedForIsNotTaken) {
  options_.retry.max_attempts = 2;
  server_.faults(R"([{"match":{"kind":"media"},"action":{"status":206,"body":"12345",
                      "headers":{"Content-Range":"bytes 0-4/100000"}}}])");
  EXPECT_THAT(read(*open(), unlisted_),
              FailsWith(Code::kUnavailable, HasSubstr("only 5 bytes and names no generation")));
  EXPECT_EQ(media_requests(), 3u);
  ReadTarget target = listed(object_);
  target.generation = "";
  target.range = ByteRange{0, 1000};
  EXPECT_THAT(read(*open(), target),
              FailsWith(Code::kUnavailable, HasSubstr("only 5 bytes and names no generation")));
  EXPECT_EQ(media_requests(), 5u);
}

TEST_F(ReadTest, APartialAnswerWithoutATotalIsNotTakenForTheWholeObject) {
  options_.retry.max_attempts = 2;
  server_.faults(R"([{"match":{"kind":"media"},"action":
      {"status":206,"body":"12345","headers":{"Content-Range":"bytes 0-4/*"}}}])");
  EXPECT_THAT(read(*open(), unlisted_),
              FailsWith(Code::kUnavailable, HasSubstr("does not tell the object's size")));
}

TEST_F(ReadTest, AnswersShorterThanAskedForAreCompleted) {
  ReadTarget target = listed(object_);
  target.range = ByteRange{0, 1000};
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"wrong_length":-400,
                      "headers":{"Content-Range":"bytes 0-599/100000"}}}])");
  EXPECT_THAT(read(*open(), target), Gives(bytes_.substr(0, 1000)));
}

// ── Memory of the caller's ───────────────────────────────────────────────────────────────────

TEST_F(ReadTest, IntoTheCallersMemory) {
  for (ReadTarget target : {listed(object_), unlisted_}) {
    std::string memory(bytes_.size(), 'x');
    target.into = std::as_writable_bytes(std::span(memory));
    target.has_into = true;
    const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
    open()->read(batch);
    wait_for(*batch);
    EXPECT_FALSE(batch->slot(0).error);
    EXPECT_EQ(memory, bytes_);
    wait_until_all_is_given_back(engine_.pool());
  }
}

TEST_F(ReadTest, IntoMemoryOfAnotherSizeIsRefusedAndNotTouched) {
  for (const size_t size : {99'999u, 100'001u, 0u}) {
    for (ReadTarget target : {listed(object_), unlisted_}) {
      std::string memory(size, 'x');
      target.into = std::as_writable_bytes(std::span(memory));
      target.has_into = true;
      EXPECT_THAT(read(*open(), target),
                  FailsWith(Code::kInvalidArgument, HasSubstr(cat("holds ", size, " bytes"))));
      EXPECT_EQ(memory, std::string(size, 'x'));
    }
  }
}

// ── Empty ────────────────────────────────────────────────────────────────────────────────────

TEST_F(ReadTest, ObjectsWithoutBytes) {
  const ObjectInfo empty = server_.put("empty", "");
  ReadTarget unknown = listed(empty);
  unknown.size_bytes = kUnknownSize;
  const ReadTarget by_name = named("empty");
  ReadTarget to_the_end = by_name;
  to_the_end.range = ByteRange{0, UINT64_MAX};
  ReadTarget into = by_name;
  into.has_into = true;
  for (const ReadTarget& target : {listed(empty), unknown, by_name, to_the_end, into}) {
    EXPECT_THAT(read(*open(), target), Gives(""));
  }
  wait_until_all_is_given_back(engine_.pool());
}

// ── Large ────────────────────────────────────────────────────────────────────────────────────

class LargeReadTest : public StoreTest {
 protected:
  const std::string bytes_ = some_bytes(40 * kMiB + 12345);
  const ObjectInfo object_ = server_.put("large", bytes_);
  const ReadTarget unlisted_ = named("large");
};

TEST_F(LargeReadTest, OfKnownSizeComesByParallelRangesAndIsCheckedAsAWhole) {
  const Result<std::string> got = read(*open(), listed(object_));
  EXPECT_THAT(got, Gives(std::string_view(bytes_)));
  const std::vector<FaultServer::Entry> log = server_.log("media");
  EXPECT_THAT(log, SizeIs(6));  // of 8 MiB
  EXPECT_THAT(log, Each(Field(&FaultServer::Entry::status, 206)));
  EXPECT_EQ(engine_.metrics().checksums_verified_total, 1u);
}

TEST_F(LargeReadTest, OfUnknownSizeComesByParallelRangesAfterTheFirst) {
  const Result<std::string> got = read(*open(), unlisted_);
  EXPECT_THAT(got, Gives(std::string_view(bytes_)));
  // The first brings 16 MiB and the size; the rest comes by 8 MiB.
  const std::vector<FaultServer::Entry> log = server_.log("media");
  EXPECT_THAT(log, SizeIs(5));
  for (size_t i = 1; i < log.size(); ++i) {
    EXPECT_THAT(log[i].target, HasSubstr("ifGenerationMatch=")) << "of the one that was begun";
  }
  EXPECT_EQ(engine_.metrics().checksums_verified_total, 1u);
}

TEST_F(LargeReadTest, GoesIntoTheCallersMemory) {
  std::string memory(bytes_.size(), 'x');
  ReadTarget target = listed(object_);
  target.into = std::as_writable_bytes(std::span(memory));
  target.has_into = true;
  const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
  open()->read(batch);
  wait_for(*batch);
  EXPECT_FALSE(batch->slot(0).error);
  EXPECT_TRUE(memory == bytes_);
  EXPECT_EQ(engine_.pool().use().peak_live_bytes, 0u);
}

TEST_F(LargeReadTest, ReadsOnlyTheBrokenPartAgain) {
  server_.faults(R"([{"match":{"header":{"name":"range","contains":"8388608-"}},"count":1,
                      "action":{"status":503}},
                     {"match":{"header":{"name":"range","contains":"16777216-"}},"count":1,
                      "action":{"cut_after_bytes":100000}}])");
  const Result<std::string> got = read(*open(), listed(object_));
  EXPECT_THAT(got, Gives(std::string_view(bytes_)));
  EXPECT_EQ(server_.stat("/by_kind/media"), 8u);
  EXPECT_EQ(engine_.metrics().checksums_verified_total, 1u);
}

TEST_F(LargeReadTest, ABadByteInOnePartIsReadAgainOnceAndThenAnError) {
  const std::string rule =
      R"("match":{"kind":"media","header":{"name":"range","contains":"16777216-"}},
         "action":{"flip_byte":5}}])";
  server_.faults(cat(R"([{"count":1,)", rule));
  const Result<std::string> got = read(*open(), listed(object_));
  EXPECT_THAT(got, Gives(std::string_view(bytes_)));
  server_.faults(cat("[{", rule));
  EXPECT_THAT(read(*open(), listed(object_)), FailsWith(Code::kCorrupt, HasSubstr("bucket/large")));
}

TEST_F(LargeReadTest, OnePartThatFailsForGoodFailsTheObjectOnce) {
  server_.faults(R"([{"match":{"kind":"media"},"from":2,"count":1,"action":{"status":403}}])");
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kPermissionDenied, HasSubstr("gs://bucket/large")));
  wait_until_all_is_given_back(engine_.pool());
}

TEST_F(LargeReadTest, ALargeRangeIsSplitToo) {
  ReadTarget target = listed(object_);
  target.range = ByteRange{1'000'001, 30'000'001};
  const Result<std::string> got = read(*open(), target);
  ASSERT_TRUE(got.has_value()) << got.error().to_string();
  EXPECT_TRUE(*got == bytes_.substr(1'000'001, 29'000'000));
  EXPECT_EQ(server_.stat("/by_kind/media"), 4u);
}

// Each answer brings the next byte and no more.
TEST_F(ReadTest, AServerThatGivesAByteAtATimeIsAskedAsOftenAsRetriesAllow) {
  std::string rules;
  for (int i = 0; i < 6; ++i) {
    rules += cat(i > 0 ? "," : "", R"({"match":{"kind":"media"},"from":1,"count":)", 1,
                 R"(,"action":{"status":206,"body":"x","headers":{"Content-Range":"bytes )", i, "-",
                 i, "/", bytes_.size(), R"("}}})");
  }
  server_.faults(cat("[", rules, "]"));
  options_.retry.max_attempts = 4;
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kUnavailable, HasSubstr("a short answer")));
  EXPECT_EQ(server_.stat("/by_kind/media"), 4u);
}

// ── gzip ─────────────────────────────────────────────────────────────────────────────────────

std::string gzip(std::string_view plain) {
  z_stream stream{};
  constexpr int kGzipWindow = 15 + 16;
  deflateInit2(&stream, 6, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, plain.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class GzipReadTest : public StoreTest {
 protected:
  const std::string plain_ = some_bytes(3000) + std::string(200'000, 'a');
  const std::string packed_ = gzip(plain_);
  const ObjectInfo object_ = server_.put("z", packed_, R"({"contentEncoding":"gzip"})");
  const ReadTarget unlisted_ = named("z");
};

TEST_F(GzipReadTest, ComesAsItIsStored) {
  for (const ReadTarget& target : {listed(object_), unlisted_}) {
    EXPECT_THAT(read(*open(), target), Gives(packed_));
  }
  EXPECT_EQ(engine_.metrics().checksums_verified_total, 2u);
}

TEST_F(GzipReadTest, ComesAsItIsStoredByRange) {
  ReadTarget target = listed(object_);
  target.range = ByteRange{10, 50};
  EXPECT_THAT(read(*open(), target), Gives(packed_.substr(10, 40)));
}

TEST_F(GzipReadTest, IsDecompressedWhereThatWasAskedFor) {
  options_.content_encoding = ContentEncoding::kDecompress;
  for (const ReadTarget& target : {listed(object_), unlisted_}) {
    EXPECT_THAT(read(*open(), target), Gives(plain_));
  }
  EXPECT_EQ(engine_.metrics().checksums_verified_total, 2u);  // of what is stored
  EXPECT_THAT(read(*open(), listed(server_.put("plain", plain_))), Gives(plain_));
}

TEST_F(GzipReadTest, BrokenGzipIsAnError) {
  options_.content_encoding = ContentEncoding::kDecompress;
  const ObjectInfo cut =
      server_.put("cut", packed_.substr(0, packed_.size() - 9), R"({"contentEncoding":"gzip"})");
  EXPECT_THAT(read(*open(), listed(cut)), FailsWith(Code::kCorrupt, HasSubstr("bucket/cut")));
}

// Decompressed, an object takes twenty times the memory of what is read.
TEST_F(GzipReadTest, DecompressingReadAheadStaysWithinTheBudgetUntilItIsWaitedFor) {
  constexpr uint64_t kBudgetBytes = 8 * kMiB;
  options_.content_encoding = ContentEncoding::kDecompress;
  Engine engine({.io_threads = 2, .memory_budget_bytes = kBudgetBytes});
  const std::shared_ptr<ObjectStore> store = open_in(engine, options_);
  const std::string plain = some_bytes(3'000) + std::string(1'000'000, 'a');
  const ObjectInfo object = server_.put("big", gzip(plain), R"({"contentEncoding":"gzip"})");
  const uint64_t plain_charge = BlockPool::charged_bytes(plain.size());
  const std::vector<ReadTarget> targets(20, listed(object));
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  store->read(batch);
  server_.wait_for("/by_kind/media", 20);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (engine.pool().live_bytes() + plain_charge <= kBudgetBytes) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << engine.pool().live_bytes();
    std::this_thread::yield();
  }
  EXPECT_LE(engine.pool().use().peak_live_bytes, kBudgetBytes);
  EXPECT_FALSE(batch->done());
  wait_for(*batch);
  for (size_t i = 0; i < batch->size(); ++i) EXPECT_THAT(outcome(*batch, i), Gives(plain));
  EXPECT_EQ(server_.stat("/by_kind/media"), 20u) << "none was read twice";
}

TEST_F(GzipReadTest, SeveralMembersAreDecompressedThoughTheLastTellsOnlyItsOwnSize) {
  options_.content_encoding = ContentEncoding::kDecompress;
  const ObjectInfo two =
      server_.put("two", packed_ + gzip("the end"), R"({"contentEncoding":"gzip"})");
  EXPECT_THAT(read(*open(), listed(two)), Gives(plain_ + "the end"));
}

// A server that decompresses on the way although it was told not to.
constexpr std::string_view kTranscodes =
    R"([{"match":{"kind":"media"},"action":{"chunked":true,"ignore_range":true,
         "headers":{"x-goog-stored-content-encoding":"gzip"}}}])";

TEST_F(GzipReadTest, WhatTheServerDecompressedIsNeverPassedOffAsStored) {
  const ObjectInfo sent = server_.put("y", plain_);
  server_.faults(kTranscodes);
  EXPECT_THAT(read(*open(), listed(sent)),
              FailsWith(Code::kCorrupt, HasSubstr("the server decompressed it on the way")));
}

TEST_F(GzipReadTest, WhatTheServerDecompressedIsNeitherCutNorPadded) {
  options_.content_encoding = ContentEncoding::kDecompress;
  server_.put("y", plain_);
  // The listing tells of the stored form, which is much shorter.
  ReadTarget target = listed(object_);
  target.name = "y";
  target.generation = "";
  server_.faults(kTranscodes);
  EXPECT_THAT(read(*open(), target), Gives(plain_));
}

TEST_F(GzipReadTest, WhatTheServerDecompressedMustBeOfTheGenerationThatWasAskedFor) {
  options_.content_encoding = ContentEncoding::kDecompress;
  const ObjectInfo sent = server_.put("y", plain_);
  server_.faults(R"([{"match":{"kind":"media"},"action":{"chunked":true,"ignore_range":true,
         "headers":{"x-goog-stored-content-encoding":"gzip","x-goog-generation":"2"}}}])");
  EXPECT_THAT(read(*open(), listed(sent)),
              FailsWith(Code::kPreconditionFailed, HasSubstr("has changed")));
  const ReadTarget unpinned = {.name = "y"};
  const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&unpinned, 1));
  open()->read(batch);
  wait_for(*batch);
  EXPECT_THAT(outcome(*batch, 0), Gives(plain_));
  EXPECT_EQ(batch->slot(0).found_generation.view(), "2");
}

TEST_F(ReadTest, AChunkedAnswerMustHaveTheSizeThatTheServerTells) {
  options_.retry.max_attempts = 2;
  server_.faults(
      cat(R"([{"match":{"kind":"media"},"action":{"chunked":true,"ignore_range":true,"no_hash":true,
         "headers":{"x-goog-stored-content-length":")",
          bytes_.size() + 5, R"("}}}])"));
  EXPECT_THAT(read(*open(), unlisted_),
              FailsWith(Code::kUnavailable, HasSubstr("of an object of")));
  EXPECT_EQ(server_.stat("/by_kind/media"), 2u);
}

// Sends an answer that has no length and ends with its connection to a read of the whole object.
Result<void> read_until_close(std::string_view headers, std::string_view body, bool end_is_told) {
  const GcsProtocol protocol("bucket", "");
  const auto pool = BlockPool::create(kMiB);
  const ReadRules rules{.range_threshold_bytes = kMiB,
                        .range_bytes = kMiB,
                        .content_encoding = ContentEncoding::kDecompress,
                        .end_is_told = end_is_told};
  const ReadTarget target = {.name = "a"};
  const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
  ReadSlot& slot = batch->slot(0);
  ReadAttempt attempt(protocol, rules, *pool, slot, slot.first_piece);
  const std::string text = cat("HTTP/1.1 200 OK\r\n", headers, "\r\n");
  ResponseHead head;
  EXPECT_TRUE(parse_response_head(text, head).has_value());
  if (Result<void> begun = attempt.on_head(head); !begun) return begun;
  const Result<std::span<std::byte>> space = attempt.space(0);
  if (!space) return std::unexpected(space.error());
  std::memcpy(space->data(), body.data(), body.size());
  if (Result<void> taken = attempt.on_bytes(body.size()); !taken) return taken;
  const Result<Attempt::Verdict> end = attempt.end();
  const Result<void> result = end ? Result<void>() : std::unexpected(end.error());
  end_flight(*pool, slot);
  slot.into.block().release();
  return result;
}

TEST(ReadUntilClose, ABodyThatNothingSaysIsWholeIsRefused) {
  const auto is_refused = FailsWith(Code::kUnavailable, HasSubstr("neither size nor checksum"));
  EXPECT_THAT(read_until_close("", "12345", false), is_refused);
  EXPECT_THAT(read_until_close("x-goog-stored-content-encoding: gzip\r\n"
                               "x-goog-stored-content-length: 9\r\n",
                               "12345", false),
              is_refused)
      << "the size is that of what is stored";
  EXPECT_TRUE(read_until_close("", "12345", true).has_value()) << "TLS tells its end";
  EXPECT_TRUE(read_until_close("x-goog-stored-content-length: 5\r\n", "12345", false).has_value());
  EXPECT_TRUE(read_until_close("x-goog-hash: crc32c=mnG7TA==\r\n", "12345", false).has_value());
  EXPECT_THAT(read_until_close("x-goog-stored-content-length: 10\r\n", "12345", true),
              FailsWith(Code::kUnavailable, HasSubstr("5 bytes of an object of 10")));
}

TEST_F(ReadTest, AChunkedAnswerOfUnknownLengthIsReadWhole) {
  server_.faults(R"([{"match":{"kind":"media"},"action":{"chunked":true,"ignore_range":true}}])");
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_THAT(read(*open(), unlisted_), Gives(bytes_));
  EXPECT_EQ(engine_.metrics().checksums_verified_total, 2u);
}

}  // namespace
}  // namespace headrace
