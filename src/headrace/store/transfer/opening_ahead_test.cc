// Connections that are opened before the reads that use them.
#include <string>
#include <vector>

#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

class OpeningAheadTest : public StoreTest {
 protected:
  std::shared_ptr<ObjectStore> open_with(uint32_t max_in_flight) {
    options_.initial_in_flight = options_.max_in_flight = max_in_flight;
    return open();
  }
  uint64_t opened() const { return engine_.metrics().connections_opened_total; }
  void wait_for_opened(uint64_t count) { server_.wait_for("/connections_opened", count); }
  void read(ObjectStore& store, size_t count) {
    const ObjectInfo object = server_.put("a", some_bytes(1'000));
    const std::vector<ReadTarget> targets(count, listed(object));
    const std::shared_ptr<ReadBatch> batch = batch_of(targets);
    store.read(batch);
    wait_for(*batch);
    for (size_t i = 0; i < count; ++i) EXPECT_FALSE(batch->slot(i).error);
  }
};

TEST_F(OpeningAheadTest, AsManyAsReadsAreExpectedAndNoMoreAreOpenedForAListingAndTheReads) {
  const std::shared_ptr<ObjectStore> store = open_with(64);
  server_.post("latency", R"({"first_byte_ms":3})");
  store->expect_reads(10);
  EXPECT_TRUE(take(store->list({})).has_value());
  wait_for_opened(10);
  read(*store, 10);
  EXPECT_EQ(opened(), 10u);
}

TEST_F(OpeningAheadTest, AStoreThatReadsInGroupsOpensThemToo) {
  options_.compose_small_objects = true;
  const std::shared_ptr<ObjectStore> store = open_with(64);
  store->expect_reads(10);
  wait_for_opened(10);
  EXPECT_EQ(server_.stat("/connections_opened"), 10u);
}

TEST_F(OpeningAheadTest, ALimitOfOneMeansOneConnection) {
  const std::shared_ptr<ObjectStore> store = open_with(1);
  store->expect_reads(64);
  EXPECT_TRUE(take(store->list({})).has_value());
  read(*store, 20);
  EXPECT_EQ(opened(), 1u);
  EXPECT_EQ(server_.stat("/max_in_flight"), 1u);
}

TEST_F(OpeningAheadTest, NoMoreConnectionsThanRequestsMayBeInFlight) {
  const std::shared_ptr<ObjectStore> store = open_with(8);
  server_.post("latency", R"({"first_byte_ms":2})");
  store->expect_reads(64);
  read(*store, 100);
  EXPECT_LE(opened(), 8u);
  EXPECT_LE(server_.stat("/connections_opened"), 8u);
}

TEST_F(OpeningAheadTest, WhatIsExpectedTwiceIsOpenedOnce) {
  const std::shared_ptr<ObjectStore> store = open_with(64);
  store->expect_reads(6);
  store->expect_reads(6);
  wait_for_opened(6);
  store->expect_reads(4);
  read(*store, 6);
  EXPECT_EQ(opened(), 6u);
}

TEST_F(OpeningAheadTest, ASmallBudgetOpensNoMoreThanItHasRoomForObjects) {
  Engine small({.io_threads = 2, .memory_budget_bytes = 4 * kMiB});
  const std::shared_ptr<ObjectStore> store = open_in(small, options_);
  const uint64_t room = small.pool().budget_bytes() / store->expected_object_bytes();
  ASSERT_LT(room, 64u);
  ASSERT_GT(room, 1u);
  store->expect_reads(64);
  wait_for_opened(room);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(take(store->list({})).has_value());
  EXPECT_EQ(small.metrics().connections_opened_total, room);
  EXPECT_EQ(server_.stat("/connections_opened"), room);
}

TEST_F(OpeningAheadTest, WhereNobodyAnswersTheRequestSaysSo) {
  options_.endpoint = "http://127.0.0.1:1";
  options_.retry.max_attempts = 2;
  options_.retry.initial_backoff = std::chrono::milliseconds(1);
  const std::shared_ptr<ObjectStore> store = open();
  store->expect_reads(64);
  const Result<ObjectInfo> found = take(store->stat("a"));
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), Code::kUnavailable);
  EXPECT_EQ(opened(), 0u);
}

TEST_F(OpeningAheadTest, AnEngineThatStopsMeanwhileLeavesNone) {
  const std::shared_ptr<ObjectStore> store = open_with(64);
  store->expect_reads(64);
  engine_.stop();
  EXPECT_EQ(engine_.metrics().connections_open, 0u);
  store->expect_reads(64);
  EXPECT_EQ(engine_.metrics().connections_open, 0u);
}

}  // namespace
}  // namespace headrace
