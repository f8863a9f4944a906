// Objects that are composed on the server: how many requests it takes, and what is left afterwards.
#include "headrace/store/reading/compose_fetcher.h"

#include <random>
#include <thread>

#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ComposeFetcherTest : public StoreTest {
 protected:
  ComposeFetcherTest() {
    options_.compose_small_objects = true;
    for (size_t i = 0; i < 100; ++i) {
      contents_.push_back(some_bytes(1000 + i, static_cast<uint32_t>(i)));
      objects_.push_back(server_.put("data/" + std::to_string(1000 + i), contents_.back()));
    }
  }
  std::vector<ReadTarget> targets(size_t count = 100) const {
    std::vector<ReadTarget> targets;
    for (size_t i = 0; i < count; ++i) targets.push_back(listed(objects_[i]));
    return targets;
  }
  std::shared_ptr<ReadBatch> read_all(ObjectStore& store, std::span<const ReadTarget> targets) {
    const std::shared_ptr<ReadBatch> batch = batch_of(targets);
    store.read(batch);
    wait_for(*batch);
    return batch;
  }
  void expect_contents(ReadBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      EXPECT_THAT(outcome(batch, i), Gives(contents_[i]));
      EXPECT_EQ(batch.slot(i).found_generation.view(), objects_[i].generation);
    }
  }
  uint64_t sent(const std::string& kind) { return server_.stat("/by_kind/" + kind); }
  // Names of temporary objects in the bucket, when all that was begun has ended.
  std::vector<ObjectInfo> left() {
    engine_.stop();
    Engine other{{.io_threads = 1}};
    return take(
               open_in(other, options_for(server_))->list({.prefix = "dataflux-composed-objects/"}))
        ->objects();
  }

  std::vector<std::string> contents_;
  std::vector<ObjectInfo> objects_;
};

TEST_F(ComposeFetcherTest, TakeOneRequestOfEachKindForThirtyTwoObjects) {
  const std::shared_ptr<ReadBatch> batch = read_all(*open(), targets());
  expect_contents(*batch);
  EXPECT_THAT(left(), IsEmpty());
  EXPECT_EQ(sent("compose"), 4u);
  EXPECT_EQ(sent("media"), 4u);
  EXPECT_EQ(sent("delete"), 4u);
  EXPECT_EQ(sent("get"), 0u);
}

TEST_F(ComposeFetcherTest, CountTheObjectsAndNotWhatTheyWereJoinedTo) {
  read_all(*open(), targets());
  EXPECT_EQ(engine_.metrics().objects_read_total, 100u);
  EXPECT_GE(engine_.metrics().checksums_verified_total, 100u);
}

TEST_F(ComposeFetcherTest, OfWhatIsNotKnownOrOnlyAPartAreReadAlone) {
  std::vector<ReadTarget> some = targets(8);
  some[1] = named(objects_[1].name);
  some[3].range = ByteRange{10, 20};
  some[5].checksum = {};
  const std::shared_ptr<ReadBatch> batch = read_all(*open(), some);
  for (size_t i = 0; i < some.size(); ++i) {
    EXPECT_THAT(outcome(*batch, i), Gives(i == 3 ? contents_[i].substr(10, 10) : contents_[i]));
  }
  EXPECT_THAT(left(), IsEmpty());
  EXPECT_EQ(sent("compose"), 1u);
  EXPECT_EQ(sent("media"), 1u + 3u);
}

TEST_F(ComposeFetcherTest, IntoNeighbouringMemoryAndIntoAny) {
  for (const size_t gap : {size_t{0}, size_t{3}}) {
    std::vector<ReadTarget> some = targets(40);
    std::string memory(200'000, '\0');
    size_t at = 0;
    for (size_t i = 0; i < some.size(); ++i) {
      some[i].into = std::as_writable_bytes(std::span(memory).subspan(at, contents_[i].size()));
      some[i].has_into = true;
      at += contents_[i].size() + gap;
    }
    const std::shared_ptr<ReadBatch> batch = read_all(*open(), some);
    expect_contents(*batch);
    EXPECT_EQ(memory.substr(0, contents_[0].size()), contents_[0]);
  }
  EXPECT_THAT(left(), IsEmpty());
}

TEST_F(ComposeFetcherTest, ThatAreCancelledAtAnyMomentLeaveNothing) {
  const std::shared_ptr<ObjectStore> store = open();
  std::mt19937 rng(7);
  int cancelled_count = 0, complete_count = 0;
  // A busy machine may be done with every other batch before it is cancelled.
  server_.faults(R"([{"match":{"kind":"compose"},"action":"stall_head"}])");
  const uint64_t composed = sent("compose");
  const std::shared_ptr<ReadBatch> stalled = batch_of(targets(70));
  store->read(stalled);
  server_.wait_for("/by_kind/compose", composed + 1);
  stalled->cancel();
  wait_for(*stalled);
  for (size_t i = 0; i < stalled->size(); ++i) {
    if (!stalled->slot(i).error) continue;
    ASSERT_EQ(stalled->slot(i).error->code(), Code::kCancelled);
    ++cancelled_count;
  }
  server_.faults("[]");
  for (int round = 0; round < 150; ++round) {
    std::vector<ReadTarget> some = targets(70);
    auto memory = std::make_unique_for_overwrite<std::byte[]>(100'000);
    size_t at = 0;
    for (size_t i = 0; i < some.size(); ++i) {
      if (round % 3 == 0) continue;
      some[i].into = std::span(memory.get() + at, contents_[i].size());
      some[i].has_into = true;
      at += contents_[i].size() + static_cast<size_t>(round % 2);
    }
    const std::shared_ptr<ReadBatch> batch = batch_of(some);
    const uint64_t before = engine_.metrics().requests_total;
    store->read(batch);
    // After so many requests, and then soon; every tenth time when all is done.
    const uint64_t requests = round % 10 == 9 ? UINT64_MAX : rng() % 10;
    while (!batch->done() && engine_.metrics().requests_total - before < requests) {
      std::this_thread::yield();
    }
    for (uint64_t turns = (1u << rng() % 6) - 1; turns > 0; --turns) std::this_thread::yield();
    batch->cancel();
    wait_for(*batch);
    for (size_t i = 0; i < some.size(); ++i) {
      const ReadSlot& slot = batch->slot(i);
      if (slot.error) {
        ASSERT_EQ(slot.error->code(), Code::kCancelled) << slot.error->to_string();
        ++cancelled_count;
      } else {
        ASSERT_TRUE(std::ranges::equal(slot.into, bytes_of(contents_[i])));
        ++complete_count;
      }
    }
    memory.reset();  // AddressSanitizer looks on
  }
  EXPECT_GT(cancelled_count, 0);
  EXPECT_GT(complete_count, 0);
  EXPECT_THAT(read(*store, listed(objects_[0])), Gives(contents_[0]));
  EXPECT_THAT(left(), IsEmpty());
  wait_until_all_is_given_back(engine_.pool());
  EXPECT_EQ(engine_.pool().in_flight_bytes(), 0u);
  EXPECT_EQ(engine_.pool().reserved_bytes(), 0u);
}

TEST_F(ComposeFetcherTest, AreDeletedBeforeTheEngineStops) {
  for (const char* kind : {"compose", "media", "delete"}) {
    server_.faults("[]");
    const uint64_t before = sent(kind);
    auto engine = std::make_unique<Engine>(EngineOptions{.io_threads = 2});
    const std::shared_ptr<ObjectStore> store = open_in(*engine, options_);
    server_.faults(cat(R"([{"match":{"kind":")", kind, R"("},"action":{"delay_ms":100}}])"));
    const std::shared_ptr<ReadBatch> batch = batch_of(targets());
    store->read(batch);
    server_.wait_for(cat("/by_kind/", kind), before + 1);
    engine->stop();
    wait_for(*batch);
    for (size_t i = 0; i < batch->size(); ++i) {
      if (batch->slot(i).error) {
        EXPECT_EQ(batch->slot(i).error->code(), Code::kCancelled);
      } else {
        EXPECT_THAT(outcome(*batch, i), Gives(contents_[i]));
      }
    }
    EXPECT_THAT(engine->take_warnings(), IsEmpty());
    Engine other{{.io_threads = 1}};
    EXPECT_THAT(
        take(open_in(other, options_for(server_))->list({.prefix = "dataflux-composed-objects/"}))
            ->objects(),
        IsEmpty())
        << kind;
  }
}

TEST_F(ComposeFetcherTest, DroppedWithTheirStoreAreDeleted) {
  std::shared_ptr<ObjectStore> store = open();
  const std::shared_ptr<ReadBatch> batch = batch_of(targets());
  store->read(batch);
  store.reset();
  wait_for(*batch);
  expect_contents(*batch);
  EXPECT_THAT(left(), IsEmpty());
}

TEST_F(ComposeFetcherTest, StayWithinASmallMemoryBudgetAndComeToTheirEnd) {
  Engine engine{{.io_threads = 2, .memory_budget_bytes = 1 * kMiB}};
  options_.compose.max_size_bytes = 64 * kMiB;  // the budget has the last word
  const std::shared_ptr<ObjectStore> store = open_in(engine, options_);
  std::vector<std::shared_ptr<ReadBatch>> batches;
  for (int i = 0; i < 20; ++i) {
    batches.push_back(batch_of(targets()));
    store->read(batches.back());
  }
  for (std::shared_ptr<ReadBatch>& batch : batches) {
    wait_for(*batch);
    expect_contents(*batch);
    batch.reset();
  }
  EXPECT_LE(engine.metrics().memory.peak_live_bytes, 2 * kMiB);
  engine.stop();
  EXPECT_EQ(engine.pool().reserved_bytes(), 0u);
  EXPECT_THAT(left(), IsEmpty());
}

TEST_F(ComposeFetcherTest, BeginWhenMemoryIsFreedThoughNobodyWaits) {
  Engine engine{{.io_threads = 2, .memory_budget_bytes = 1 * kMiB}};
  const std::shared_ptr<ObjectStore> store = open_in(engine, options_);
  Block held = engine.pool().allocate(1000 * kKiB);
  const std::shared_ptr<ReadBatch> batch = batch_of(targets(32));
  store->read(batch);
  EXPECT_EQ(sent("compose"), 0u);
  held.release();
  server_.wait_for("/by_kind/delete", 1);
  wait_for(*batch);
  expect_contents(*batch);
}

TEST_F(ComposeFetcherTest, ThatAreRefusedSayWhyOnce) {
  server_.faults(R"([{"match":{"kind":"compose"},"action":{"status":403,"reason":"forbidden",
                     "message":"no storage.objects.create access"}}])");
  const std::shared_ptr<ObjectStore> store = open();
  expect_contents(*read_all(*store, targets()));
  expect_contents(*read_all(*store, targets()));
  const std::vector<std::string> warnings = engine_.take_warnings();
  ASSERT_THAT(warnings, SizeIs(1));
  EXPECT_THAT(warnings[0], HasSubstr("gs://bucket/"));
  EXPECT_THAT(warnings[0], HasSubstr("storage.objects.create access"));
  EXPECT_LE(sent("compose"), 4u);
  EXPECT_EQ(sent("delete"), 0u);
}

TEST_F(ComposeFetcherTest, LeaveEverythingElseToTheStore) {
  const std::shared_ptr<ObjectStore> joining = open();
  options_.compose_small_objects = false;
  const std::shared_ptr<ObjectStore> plain = open();
  for (const std::shared_ptr<ObjectStore>& store : {joining, plain}) {
    EXPECT_TRUE(take(store->write({.name = "new"}, bytes_of("x"))).has_value());
  }
  EXPECT_TRUE(plain->written_sums(/*in_parts=*/false));
  EXPECT_EQ(joining->written_sums(/*in_parts=*/false), plain->written_sums(/*in_parts=*/false));
  EXPECT_EQ(joining->max_compose_sources(), plain->max_compose_sources());
  EXPECT_EQ(joining->url_of("a"), plain->url_of("a"));
}

TEST_F(ComposeFetcherTest, WhatServiceCannotDoIsRefusedWhenTheStoreIsOpened) {
  const Url file{.scheme = Scheme::kFile, .bucket = "", .name = "/tmp"};
  EXPECT_THAT(engine_.open(file, options_),
              FailsWith(Code::kInvalidArgument, HasSubstr("file://")));
  for (const uint32_t count : {0u, 1u, 33u}) {
    options_.compose.max_objects = count;
    EXPECT_THAT(engine_.open({.scheme = Scheme::kGs, .bucket = "b", .name = ""}, options_),
                FailsWith(Code::kInvalidArgument, HasSubstr("from 2 to 32")));
  }
}

TEST_F(ComposeFetcherTest, TemporaryObjectsOfKilledProcessesAreSweptOnceAndBySweepAgeOnly) {
  const std::string ours = "dataflux-composed-objects/headrace-" + std::string(31, '0');
  server_.put(ours + "1", "old", R"({"ageSeconds":7200})");
  server_.put(ours + "2", "young", R"({"ageSeconds":1800})");
  server_.put("dataflux-composed-objects/other", "old", R"({"ageSeconds":7200})");
  const std::shared_ptr<ObjectStore> store = open();
  read_all(*store, targets());
  server_.wait_for("/by_kind/delete", 5);
  read_all(*store, targets());
  EXPECT_EQ(sent("list"), 1u);
  engine_.stop();
  EXPECT_EQ(server_.object(ours + "1"), std::nullopt);
  EXPECT_EQ(server_.object(ours + "2"), "young");
  EXPECT_EQ(server_.object("dataflux-composed-objects/other"), "old");
}

}  // namespace
}  // namespace headrace
