// One budget: what is in flight, what is read ahead, and what the user holds.
#include <future>
#include <thread>

#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kBudgetBytes = 8 * kMiB;
constexpr size_t kObjectBytes = 100 * kKiB;

class MemoryTest : public ::testing::Test {
 protected:
  std::shared_ptr<ReadBatch> start(size_t count, const ReadTarget& target) {
    const std::vector<ReadTarget> targets(count, target);
    std::shared_ptr<ReadBatch> batch = batch_of(targets);
    store_->read(batch);
    return batch;
  }
  void expect_all(ReadBatch& batch, std::string_view bytes) {
    for (size_t i = 0; i < batch.size(); ++i) EXPECT_THAT(outcome(batch, i), Gives(bytes));
  }
  static void let_go(ReadBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) batch.slot(i).into.block().release();
  }
  uint64_t media_requests() { return server_.stat("/by_kind/media"); }
  // What was posted to the I/O threads before this has been done when it returns.
  void pass_all_queues() {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(take(store_->stat("a")).has_value());
  }

  FaultServer server_;
  Engine engine_{{.io_threads = 2, .memory_budget_bytes = kBudgetBytes}};
  const std::shared_ptr<ObjectStore> store_ =
      *engine_.open({.scheme = Scheme::kGs, .bucket = std::string(kBucket)}, options_for(server_));
  StoreOptions options_ = options_for(server_);
  const std::string bytes_ = some_bytes(kObjectBytes);
  const ObjectInfo object_ = server_.put("a", bytes_);
};

TEST_F(MemoryTest, KeepingEverySampleOfAPassBlocksNothing) {
  std::vector<std::shared_ptr<ReadBatch>> kept;
  for (int i = 0; i < 40; ++i) {
    kept.push_back(start(16, listed(object_)));
    wait_for(*kept.back());
    expect_all(*kept.back(), bytes_);
  }
  const uint64_t kept_bytes = 40 * 16 * BlockPool::charged_bytes(kObjectBytes);
  const MemoryUse use = engine_.pool().use();
  EXPECT_EQ(use.live_bytes, kept_bytes);
  EXPECT_EQ(use.peak_live_bytes, kept_bytes) << "nothing but what was kept";
  EXPECT_EQ(use.in_flight_bytes, 0u);
  kept.clear();
  wait_until_all_is_given_back(engine_.pool());
}

TEST_F(MemoryTest, TheSlotsOfABatchCountAsLongAsItExists) {
  std::shared_ptr<ReadBatch> large = ReadBatch::create(kBudgetBytes / sizeof(ReadSlot) + 1);
  large->add(listed(object_));
  store_->read(large);
  EXPECT_GE(engine_.pool().batch_bytes(), kBudgetBytes);
  wait_for(*large);  // they alone exceed the budget, and it comes all the same
  expect_all(*large, bytes_);
  EXPECT_EQ(engine_.pool().live_bytes(), BlockPool::charged_bytes(kObjectBytes));
  const std::shared_ptr<ReadBatch> waited_for = start(1, listed(object_));
  wait_for(*waited_for);
  expect_all(*waited_for, bytes_);
  const std::shared_ptr<ReadBatch> ahead = start(1, listed(object_));
  pass_all_queues();
  EXPECT_EQ(media_requests(), 2u) << "there is no room to read ahead";
  large.reset();
  server_.wait_for("/by_kind/media", 3);
  wait_for(*ahead);
  expect_all(*ahead, bytes_);
  EXPECT_LT(engine_.pool().batch_bytes(), 2 * (sizeof(ReadSlot) + 100));
}

TEST_F(MemoryTest, ABatchLargerThanTheBudgetComesWholeAndNoMoreThanTheBudgetIsInFlight) {
  StoreOptions options = options_for(server_);
  options.initial_in_flight = options.max_in_flight = 200;
  const std::shared_ptr<ObjectStore> store =
      *engine_.open({.scheme = Scheme::kGs, .bucket = std::string(kBucket)}, options);
  server_.faults(R"([{"match":{"kind":"media"},"count":300,"action":"stall_head"}])");
  const std::vector<ReadTarget> targets(300, listed(object_));
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  store->read(batch);
  batch->want();
  const uint64_t fitting = kBudgetBytes / BlockPool::charged_bytes(kObjectBytes);
  server_.wait_for("/in_flight", fitting);
  pass_all_queues();
  EXPECT_EQ(server_.stat("/in_flight"), fitting);
  EXPECT_EQ(media_requests(), fitting);
  server_.faults("[]");
  server_.post("release", "{}");
  wait_for(*batch);
  expect_all(*batch, bytes_);
  EXPECT_EQ(engine_.pool().live_bytes(), 300 * BlockPool::charged_bytes(kObjectBytes));
}

TEST_F(MemoryTest, ReadingWithoutKeepingStaysWithinTheBudget) {
  for (int i = 0; i < 30; ++i) {
    const std::shared_ptr<ReadBatch> batch = start(16, listed(object_));
    wait_for(*batch);
    expect_all(*batch, bytes_);
  }
  EXPECT_LE(engine_.pool().use().peak_live_bytes, kBudgetBytes);
}

TEST_F(MemoryTest, SizesFarAboveTheEstimateAreCountedWhenTheyAreKnown) {
  ASSERT_LT(store_->expected_object_bytes(), kMiB);
  const std::string large = some_bytes(2 * kMiB);
  const ObjectInfo object = server_.put("large", large);
  const std::shared_ptr<ReadBatch> batch = start(24, named("large"));
  wait_for(*batch);
  expect_all(*batch, large);
  EXPECT_EQ(engine_.pool().use().peak_live_bytes, 24 * BlockPool::charged_bytes(large.size()));
  EXPECT_EQ(engine_.pool().in_flight_bytes(), 0u);
  EXPECT_GT(store_->expected_object_bytes(), kMiB) << "it learns";
}

TEST_F(MemoryTest, AnObjectAboveTheBudgetIsAnErrorAtOnce) {
  const ObjectInfo object = server_.put("huge", some_bytes(kBudgetBytes + 1));
  EXPECT_THAT(read(*store_, listed(object)),
              FailsWith(Code::kExhausted,
                        AllOf(HasSubstr("gs://bucket/huge"), HasSubstr("memory_budget_bytes"))));
  EXPECT_EQ(media_requests(), 0u);
  EXPECT_THAT(read(*store_, named("huge")),
              FailsWith(Code::kExhausted, HasSubstr("memory_budget_bytes")));
  EXPECT_EQ(media_requests(), 1u);
  wait_until_all_is_given_back(engine_.pool());
}

TEST_F(MemoryTest, WhatCanOnlyFailFailsAtOnceWhileOthersAreInFlight) {
  const ObjectInfo whole = server_.put("whole", some_bytes(kBudgetBytes));
  server_.faults(R"([{"match":{"target_contains":"/o/whole?"},"action":"stall_head"}])");
  const std::shared_ptr<ReadBatch> stalled = start(1, listed(whole));
  server_.wait_for("/by_kind/media", 1);
  ReadTarget beyond = listed(object_);
  beyond.range = ByteRange{kObjectBytes + 1, kObjectBytes + 2};
  EXPECT_THAT(read(*store_, beyond), FailsWith(Code::kInvalidArgument, HasSubstr("beyond")));
  ReadTarget too_large = listed(object_);
  too_large.size_bytes = 10 * kGiB;
  EXPECT_THAT(read(*store_, too_large),
              FailsWith(Code::kExhausted, HasSubstr("memory_budget_bytes")));
  EXPECT_EQ(media_requests(), 1u);
  server_.faults("[]");
  server_.post("release", "{}");
  wait_for(*stalled);
}

TEST_F(MemoryTest, ARangeOfAnUnlistedObjectMayEndFarBeyondItWhileOthersAreInFlight) {
  EXPECT_THAT(read(*store_, named("a")), Gives(bytes_));
  const ObjectInfo half = server_.put("half", some_bytes(kBudgetBytes / 2));
  server_.faults(R"([{"match":{"target_contains":"/o/half?"},"action":"stall_head"}])");
  const std::shared_ptr<ReadBatch> stalled = start(1, listed(half));
  server_.wait_for("/by_kind/media", 2);
  ReadTarget target = named("a");
  target.range = ByteRange{0, uint64_t{1} << 40};
  EXPECT_THAT(read(*store_, target), Gives(bytes_));
  server_.faults("[]");
  server_.post("release", "{}");
  wait_for(*stalled);
}

TEST_F(MemoryTest, AReadThatNeedsMostOfTheBudgetIsNotOvertakenForEver) {
  const std::string large_bytes = some_bytes(kBudgetBytes / 4 * 3);
  const ObjectInfo large = server_.put("large", large_bytes);
  const ObjectInfo half = server_.put("half", some_bytes(kBudgetBytes / 2));
  server_.faults(R"([{"match":{"target_contains":"/o/half?"},"action":"stall_head"}])");
  const std::shared_ptr<ReadBatch> stalled = start(1, listed(half));
  server_.wait_for("/by_kind/media", 1);
  const std::shared_ptr<ReadBatch> waiting = start(1, listed(large));
  waiting->want();
  pass_all_queues();
  const std::shared_ptr<ReadBatch> later = start(4, listed(object_));
  later->want();
  pass_all_queues();
  EXPECT_EQ(media_requests(), 1u) << "the room is kept for the large one";
  server_.faults("[]");
  server_.post("release", "{}");
  for (const auto& batch : {stalled, waiting, later}) wait_for(*batch);
  expect_all(*waiting, large_bytes);
  expect_all(*later, bytes_);
}

TEST_F(MemoryTest, ReadsThatHaveEndedMakeRoomForOthersOfTheirBatch) {
  options_.initial_in_flight = options_.max_in_flight = 1;
  Engine small({.io_threads = 1, .memory_budget_bytes = kBudgetBytes});
  const std::shared_ptr<ObjectStore> store =
      *small.open({.scheme = Scheme::kGs, .bucket = std::string(kBucket)}, options_);
  const std::string large = some_bytes(5 * kMiB);
  const ObjectInfo info = server_.put("large", large);
  const std::vector<ReadTarget> targets(5, listed(info));
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  store->read(batch);
  wait_for(*batch);
  for (size_t i = 0; i < targets.size(); ++i) {
    EXPECT_FALSE(batch->slot(i).error) << batch->slot(i).error->to_string();
    batch->slot(i).into.block().release();
  }
  EXPECT_EQ(small.pool().in_flight_bytes(), 0u);
}

TEST_F(MemoryTest, NothingIsInFlightAfterABatchWhoseLargeObjectWasSplit) {
  options_.range_threshold_bytes = 1 * kMiB;
  options_.range_bytes = 512 * kKiB;
  const std::shared_ptr<ObjectStore> store =
      *engine_.open({.scheme = Scheme::kGs, .bucket = std::string(kBucket)}, options_);
  server_.put("large", some_bytes(3 * kMiB));
  server_.post("latency", R"({"first_byte_ms":2})");
  for (int round = 0; round < 20; ++round) {
    std::vector<ReadTarget> targets(12, named("a"));
    targets.push_back(named("large"));
    const std::shared_ptr<ReadBatch> batch = batch_of(targets);
    store->read(batch);
    wait_for(*batch);
    for (size_t i = 0; i < targets.size(); ++i) EXPECT_FALSE(batch->slot(i).error);
    let_go(*batch);
    EXPECT_EQ(engine_.pool().in_flight_bytes(), 0u);
  }
}

TEST_F(MemoryTest, AnObjectAboveTheBudgetFitsIntoTheCallersMemory) {
  const std::string huge = some_bytes(kBudgetBytes + 1);
  std::string memory(huge.size(), 'x');
  const ObjectInfo object = server_.put("huge", huge);
  ReadTarget target = listed(object);
  target.into = std::as_writable_bytes(std::span(memory));
  target.has_into = true;
  const std::shared_ptr<ReadBatch> batch = start(1, target);
  wait_for(*batch);
  EXPECT_FALSE(batch->slot(0).error);
  EXPECT_TRUE(memory == huge);
}

TEST_F(MemoryTest, LargeObjectsByNameReadBatchAfterBatchStayWithinTheBudget) {
  server_.put("large", some_bytes(2 * kMiB));
  std::vector<std::shared_ptr<ReadBatch>> batches;
  for (int i = 0; i < 30; ++i) batches.push_back(start(2, named("large")));
  for (size_t i = 0; i < batches.size(); ++i) {
    wait_for(*batches[i]);
    EXPECT_FALSE(batches[i]->slot(0).error || batches[i]->slot(1).error);
    if (i > 0) let_go(*batches[i - 1]);  // as a loop over them does
  }
  EXPECT_EQ(media_requests(), 60u) << "none was begun twice";
  EXPECT_LE(engine_.pool().use().peak_live_bytes, kBudgetBytes);
}

TEST_F(MemoryTest, ALaterBatchDoesNotTakeTheRoomThatAnEarlierOneOnAnotherThreadNeeds) {
  // One request at a time on each of two threads, and the first of them is kept busy.
  StoreOptions options = options_for(server_);
  options.initial_in_flight = options.max_in_flight = 2;
  Engine engine({.io_threads = 2, .memory_budget_bytes = kBudgetBytes});
  const std::shared_ptr<ObjectStore> store =
      *engine.open({.scheme = Scheme::kGs, .bucket = std::string(kBucket)}, options);
  // Requests of another host pass through the same threads' queues.
  const std::shared_ptr<ObjectStore> other =
      *engine.open({.scheme = Scheme::kGs, .bucket = std::string(kBucket)}, options_for(server_));
  const auto start_in = [&](size_t count, const ReadTarget& target) {
    const std::vector<ReadTarget> targets(count, target);
    std::shared_ptr<ReadBatch> batch = batch_of(targets);
    store->read(batch);
    return batch;
  };
  const ObjectInfo info = server_.put("quarter", some_bytes(kBudgetBytes / 4));
  const ReadTarget quarter = listed(info);
  const std::shared_ptr<ReadBatch> held = start_in(2, quarter);
  wait_for(*held);

  std::string memory(kObjectBytes, 'x');
  ReadTarget elsewhere = listed(object_);
  elsewhere.into = std::as_writable_bytes(std::span(memory));
  elsewhere.has_into = true;
  server_.faults(R"([{"match":{"target_contains":"/o/a?"},"count":1,"action":"stall_head"}])");
  const std::shared_ptr<ReadBatch> stalled = start_in(1, elsewhere);
  server_.wait_for("/by_kind/media", 3);
  const std::shared_ptr<ReadBatch> first = start_in(2, quarter);
  const std::shared_ptr<ReadBatch> second = start_in(2, quarter);
  server_.wait_for("/by_kind/media", 4);
  while (engine.metrics().objects_read_total < 3) pass_all_queues();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(take(other->stat("a")).has_value());
  EXPECT_EQ(media_requests(), 4u) << "only one of `first` has begun";

  server_.post("release", "{}");
  wait_for(*first);
  EXPECT_FALSE(first->slot(0).error || first->slot(1).error);
  EXPECT_LE(engine.pool().use().peak_live_bytes, kBudgetBytes);
  let_go(*held);
  wait_for(*second);
  wait_for(*stalled);
  EXPECT_TRUE(memory == bytes_);
}

// In chunks, and whole though a range was asked for: only its end tells how large it is.
constexpr const char* kOfUnknownLength =
    R"([{"match":{"kind":"media"},"action":{"chunked":true,"ignore_range":true}}])";

TEST_F(MemoryTest, AnAnswerOfUnknownLengthCountsWhileItGrows) {
  const std::string large = some_bytes(3 * kMiB);
  server_.put("large", large);
  server_.faults(kOfUnknownLength);
  const std::shared_ptr<ReadBatch> batch = start(1, named("large"));
  wait_for(*batch);
  expect_all(*batch, large);
  EXPECT_EQ(batch->slot(0).object_bytes, large.size());
  EXPECT_EQ(media_requests(), 1u);
  // What grew by doubling, and the block that the object was copied to in the end.
  EXPECT_EQ(engine_.pool().use().peak_live_bytes,
            4 * kMiB + BlockPool::charged_bytes(large.size()));
  pass_all_queues();
  EXPECT_EQ(engine_.pool().live_bytes(), BlockPool::charged_bytes(large.size()));
  EXPECT_EQ(engine_.metrics().checksums_verified_total, 1u);
  let_go(*batch);
  wait_until_all_is_given_back(engine_.pool());
}

TEST_F(MemoryTest, AnAnswerOfUnknownLengthIsInFlightWhileItGrows) {
  server_.put("large", some_bytes(3 * kMiB));
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":
                       {"chunked":true,"ignore_range":true,"stall_after_bytes":1200000}}])");
  const std::shared_ptr<ReadBatch> batch = start(1, named("large"));
  batch->want();
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (engine_.pool().in_flight_bytes() < 2 * kMiB) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << engine_.pool().in_flight_bytes();
    std::this_thread::yield();
  }
  EXPECT_EQ(engine_.pool().in_flight_bytes(), 2 * kMiB);
  batch->cancel();
  wait_for(*batch);
  pass_all_queues();
  EXPECT_EQ(engine_.pool().in_flight_bytes(), 0u);
}

// Decompressed on the way, so that nothing the server tells is its size.
TEST_F(MemoryTest, AnAnswerOfUnknownLengthThatHasComeIsNotFetchedAgainForLackOfRoom) {
  StoreOptions options = options_for(server_);
  options.content_encoding = ContentEncoding::kDecompress;
  const std::shared_ptr<ObjectStore> store =
      *engine_.open({.scheme = Scheme::kGs, .bucket = std::string(kBucket)}, options);
  const std::shared_ptr<ReadBatch> held = batch_of(std::vector<ReadTarget>(60, listed(object_)));
  store->read(held);
  wait_for(*held);
  const std::string large = some_bytes(3 * kMiB);
  server_.put("large", large);
  server_.faults(R"([{"match":{"kind":"media"},"action":{"chunked":true,"ignore_range":true,
                      "headers":{"x-goog-stored-content-encoding":"gzip"}}}])");
  const ReadTarget target = named("large");
  const std::shared_ptr<ReadBatch> ahead = batch_of(std::span(&target, 1));
  std::promise<void> done;
  ahead->then([&](ReadBatch&) { done.set_value(); });
  store->read(ahead);  // nobody waits for it
  ASSERT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
  expect_all(*ahead, large);
  EXPECT_EQ(media_requests(), 61u);
}

TEST_F(MemoryTest, AnAnswerOfUnknownLengthMayTakeHalfOfTheBudgetThoughDoublingWouldExceedIt) {
  Engine engine({.io_threads = 1, .memory_budget_bytes = 12 * kMiB});
  const std::shared_ptr<ObjectStore> store =
      *engine.open({.scheme = Scheme::kGs, .bucket = std::string(kBucket)}, options_for(server_));
  const std::string large = some_bytes(5 * kMiB);
  server_.put("large", large);
  server_.faults(kOfUnknownLength);
  EXPECT_THAT(read(*store, named("large")), Gives(large));
}

TEST_F(MemoryTest, AnAnswerOfUnknownLengthTakesHalfOfTheBudgetAtMost) {
  server_.put("large", some_bytes(kBudgetBytes / 2 + 1));
  server_.faults(kOfUnknownLength);
  EXPECT_THAT(read(*store_, named("large")),
              FailsWith(Code::kExhausted,
                        AllOf(HasSubstr("gs://bucket/large"), HasSubstr("memory_budget_bytes"))));
  EXPECT_EQ(media_requests(), 1u);
  EXPECT_EQ(engine_.pool().use().peak_live_bytes, kBudgetBytes / 2);
  wait_until_all_is_given_back(engine_.pool());
}

TEST_F(MemoryTest, AnAnswerOfUnknownLengthThatBreaksOffIsReadAgainFromItsBegin) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":
                       {"chunked":true,"ignore_range":true,"cut_after_bytes":70000}},
                     {"match":{"kind":"media"},"action":{"chunked":true,"ignore_range":true}}])");
  EXPECT_THAT(read(*store_, named("a")), Gives(bytes_));
  EXPECT_EQ(media_requests(), 2u);
  wait_until_all_is_given_back(engine_.pool());
}

TEST_F(MemoryTest, AnAnswerOfUnknownLengthServesOnlyReadsOfTheWholeObject) {
  server_.faults(kOfUnknownLength);
  ReadTarget target = named("a");
  target.range = ByteRange{0, UINT64_MAX};
  EXPECT_THAT(read(*store_, target), Gives(bytes_));
  target.range = ByteRange{10, 20};
  EXPECT_THAT(read(*store_, target), FailsWith(Code::kUnavailable, HasSubstr("object's size")));
}

TEST_F(MemoryTest, AListingsAnswersCountWhileTheyComeAndAreGivenBack) {
  for (int i = 0; i < 200; ++i) server_.put(cat("list/", i), "x");
  EXPECT_EQ(take(store_->list({.prefix = "list/"}))->size(), 200u);
  EXPECT_GE(engine_.pool().use().peak_live_bytes, 200u * 100);
  EXPECT_LE(engine_.pool().use().peak_live_bytes, kBudgetBytes / 4);
  wait_until_all_is_given_back(engine_.pool());
}

TEST_F(MemoryTest, AListingsAnswerAboveAQuarterOfTheBudgetIsRefusedBeforeItIsTaken) {
  server_.faults(cat(R"([{"match":{"kind":"list"},"action":{"status":200,"body":")",
                     std::string(kBudgetBytes / 4 + 1, 'x'), R"("}}])"));
  EXPECT_THAT(take(store_->list({})),
              FailsWith(Code::kExhausted, HasSubstr("memory_budget_bytes")));
  EXPECT_LE(engine_.pool().use().peak_live_bytes, kBudgetBytes / 4);
}

class ReadAheadTest : public MemoryTest {
 protected:
  // The user holds about all of the budget.
  void SetUp() override {
    held_ = start(70, listed(object_));
    wait_for(*held_);
    expect_all(*held_, bytes_);
    requests_before_ = media_requests();
  }
  std::shared_ptr<ReadBatch> held_;
  uint64_t requests_before_ = 0;
};

TEST_F(ReadAheadTest, DoesNotStartWhileTheUserHoldsTheBudget) {
  const std::shared_ptr<ReadBatch> ahead = start(16, listed(object_));
  pass_all_queues();
  EXPECT_LE(media_requests() - requests_before_, 3u);  // what was left of the budget
  EXPECT_FALSE(ahead->done());
  EXPECT_LE(engine_.pool().use().live_bytes, kBudgetBytes);
  ahead->cancel();
  wait_for(*ahead);
}

TEST_F(ReadAheadTest, GoesOnWhenMemoryIsGivenBack) {
  const std::shared_ptr<ReadBatch> ahead = start(16, listed(object_));
  pass_all_queues();
  EXPECT_FALSE(ahead->done());
  let_go(*held_);
  server_.wait_for("/by_kind/media", requests_before_ + 16);
  wait_for(*ahead);
  expect_all(*ahead, bytes_);
}

TEST_F(ReadAheadTest, GoesOnWhenItIsWaitedFor) {
  const std::shared_ptr<ReadBatch> ahead = start(16, listed(object_));
  pass_all_queues();
  EXPECT_FALSE(ahead->done());
  wait_for(*ahead);
  expect_all(*ahead, bytes_);
  expect_all(*held_, bytes_);
}

TEST_F(ReadAheadTest, OfUnknownSizeGoesOnWhenItIsWaitedFor) {
  const std::shared_ptr<ReadBatch> ahead = start(16, named("a"));
  pass_all_queues();
  EXPECT_FALSE(ahead->done());
  wait_for(*ahead);
  expect_all(*ahead, bytes_);
}

TEST_F(ReadAheadTest, ThatIsNotWaitedForDoesNotHoldUpABatchThatIs) {
  const std::shared_ptr<ReadBatch> ahead = start(16, listed(object_));
  const std::shared_ptr<ReadBatch> wanted = start(16, listed(object_));
  wait_for(*wanted);
  expect_all(*wanted, bytes_);
  EXPECT_FALSE(ahead->done());
  ahead->cancel();
  wait_for(*ahead);
}

}  // namespace
}  // namespace headrace
