// Ends that come early: by cancel(), by a time-out, by the engine's end. When a batch is done,
// nobody writes into its memory any more: it is freed at once here, and AddressSanitizer looks on.
#include <random>
#include <thread>

#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class CancelTest : public StoreTest {
 protected:
  const std::string bytes_ = some_bytes(200'000);
  const ObjectInfo object_ = server_.put("a", bytes_);
};

TEST_F(CancelTest, AtAThousandRandomMomentsLeavesTheCallersMemoryAlone) {
  constexpr int kRounds = 1000;
  constexpr size_t kObjects = 4;
  options_.initial_in_flight = options_.max_in_flight = 8;
  options_.range_threshold_bytes = 64 * kKiB;
  options_.range_bytes = kMinRangeBytes;
  const std::shared_ptr<ObjectStore> store = open();
  std::mt19937 rng(42);
  int cancelled_count = 0, complete_count = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::unique_ptr<std::byte[]>> memory;
    std::vector<ReadTarget> targets;
    for (size_t i = 0; i < kObjects; ++i) {
      memory.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes_.size()));
      // Every other one by parallel ranges from the start, every other one after its first.
      targets.push_back(i % 2 == 0 ? listed(object_) : named("a"));
      targets.back().into = std::span(memory.back().get(), bytes_.size());
      targets.back().has_into = true;
    }
    const std::shared_ptr<ReadBatch> batch = batch_of(targets);
    store->read(batch);
    // From before the first request until after the last byte.
    // A turn may take long where others want the processor, too.
    for (uint64_t turns = (1u << rng() % 11) - 1; turns > 0 && !batch->done(); --turns) {
      std::this_thread::yield();
    }
    batch->cancel();
    wait_for(*batch);
    for (size_t i = 0; i < kObjects; ++i) {
      const ReadSlot& slot = batch->slot(i);
      if (slot.error) {
        ASSERT_EQ(slot.error->code(), Code::kCancelled) << slot.error->to_string();
        ++cancelled_count;
      } else {
        ASSERT_TRUE(std::ranges::equal(slot.into, bytes_of(bytes_)));
        ++complete_count;
      }
    }
    memory.clear();
  }
  EXPECT_GT(cancelled_count, 0);
  EXPECT_EQ(cancelled_count + complete_count, kRounds * static_cast<int>(kObjects));
  // And the store still works.
  EXPECT_THAT(read(*store, listed(object_)), Gives(bytes_));
}

TEST_F(CancelTest, OfBatchesOfTheEnginesMemoryGivesAllOfItBack) {
  const std::shared_ptr<ObjectStore> store = open();
  std::mt19937 rng(43);
  for (int round = 0; round < 200; ++round) {
    const std::vector<ReadTarget> targets(8, listed(object_));
    const std::shared_ptr<ReadBatch> batch = batch_of(targets);
    store->read(batch);
    for (uint64_t turns = (1u << rng() % 10) - 1; turns > 0 && !batch->done(); --turns) {
      std::this_thread::yield();
    }
    batch->cancel();
    wait_for(*batch);
  }
  wait_until_all_is_given_back(engine_.pool());
  EXPECT_EQ(engine_.pool().in_flight_bytes(), 0u);
}

TEST_F(CancelTest, BeforeTheBatchIsHandedOverEndsItUnread) {
  const std::vector<ReadTarget> targets(8, listed(object_));
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  batch->cancel();
  open()->read(batch);
  wait_for(*batch);
  EXPECT_THAT(outcome(*batch, 7), FailsWith(Code::kCancelled, HasSubstr("gs://bucket/a")));
  EXPECT_EQ(server_.stat("/by_kind/media"), 0u);
}

TEST_F(CancelTest, OfABatchThatIsDoneChangesNothing) {
  const ReadTarget target = listed(object_);
  const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
  open()->read(batch);
  wait_for(*batch);
  batch->cancel();
  EXPECT_THAT(outcome(*batch, 0), Gives(bytes_));
}

TEST_F(CancelTest, OfABatchThatNobodyHoldsIsHarmless) {
  server_.faults(R"([{"match":{"kind":"media"},"action":"stall_head"}])");
  const std::shared_ptr<ObjectStore> store = open();
  for (int i = 0; i < 50; ++i) {
    const std::vector<ReadTarget> targets(4, listed(object_));
    const std::shared_ptr<ReadBatch> batch = batch_of(targets);
    store->read(batch);
    batch->cancel();
  }
  server_.faults("[]");
  EXPECT_THAT(read(*store, listed(object_)), Gives(bytes_));
}

TEST_F(CancelTest, ATimeOutLeavesTheCallersMemoryAlone) {
  options_.timeout.stall = milliseconds(100);
  options_.retry.max_attempts = 1;
  server_.faults(R"([{"match":{"kind":"media"},"action":{"stall_after_bytes":100000}}])");
  auto memory = std::make_unique_for_overwrite<std::byte[]>(bytes_.size());
  ReadTarget target = listed(object_);
  target.into = std::span(memory.get(), bytes_.size());
  target.has_into = true;
  const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
  open()->read(batch);
  wait_for(*batch);
  memory.reset();
  server_.post("release", "{}");
  EXPECT_EQ(batch->slot(0).error->code(), Code::kTimedOut);
}

TEST_F(CancelTest, OfAnOperationEndsIt) {
  server_.faults(R"([{"match":{"kind":["list","get","upload"]},"action":"stall_head"}])");
  const std::shared_ptr<ObjectStore> store = open();
  const auto listing = store->list({});
  const auto info = store->stat("a");
  const auto written =
      store->write({.name = "b", .content_type = "", .content_encoding = "", .precondition = {}},
                   bytes_of(bytes_));
  server_.wait_for("/requests", 3);
  listing->cancel();
  info->cancel();
  written->cancel();
  EXPECT_THAT(take(listing), FailsWith(Code::kCancelled, HasSubstr("cancelled")));
  EXPECT_THAT(take(info), FailsWith(Code::kCancelled, HasSubstr("gs://bucket/a")));
  EXPECT_THAT(take(written), FailsWith(Code::kCancelled, HasSubstr("gs://bucket/b")));
}

TEST_F(CancelTest, TheEnginesEndEndsWhatIsInFlightAndWhatIsQueued) {
  options_.initial_in_flight = options_.max_in_flight = 4;
  server_.faults(R"([{"match":{"kind":"media"},"from":21,"action":{"stall_after_bytes":5}}])");
  const std::shared_ptr<ObjectStore> store = open();
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::vector<ReadTarget> targets;
  for (int i = 0; i < 200; ++i) {
    memory.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes_.size()));
    targets.push_back(listed(object_));
    targets.back().into = std::span(memory.back().get(), bytes_.size());
    targets.back().has_into = true;
  }
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  store->read(batch);
  server_.wait_for("/by_kind/media", 24);
  engine_.stop();
  EXPECT_TRUE(batch->done());
  memory.clear();
  wait_for(*batch);
  size_t good_count = 0;
  for (size_t i = 0; i < batch->size(); ++i) {
    if (!batch->slot(i).error) {
      ++good_count;
    } else {
      EXPECT_THAT(batch->slot(i).error->to_string(), HasSubstr("the engine was stopped"));
    }
  }
  EXPECT_EQ(good_count, 20u);
}

}  // namespace
}  // namespace headrace
