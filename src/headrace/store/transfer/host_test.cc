// The in-flight limit of a host: one for reads, writes, listings and the rest.
#include "headrace/store/transfer/host.h"

#include <thread>

#include "headrace/store/fault_server_test_support.h"
#include "headrace/store/temporary_names.h"
#include "headrace/store/writing/object_writer.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

const MayBlock kMayBlock = MayBlock::on_this_thread();

class InFlightTest : public StoreTest {
 protected:
  std::shared_ptr<ObjectStore> open_with(uint32_t max_in_flight) {
    options_.initial_in_flight = options_.max_in_flight = max_in_flight;
    return open();
  }
  // The next request of this kind gets no answer until release().
  void stall(std::string_view kind) {
    server_.faults(cat(R"([{"match":{"kind":")", kind, R"("},"count":1,"action":"stall_head"}])"));
  }
  void release() { server_.post("release", "{}"); }
};

TEST_F(InFlightTest, TenWritersOfEightPartsEachStayWithinIt) {
  const std::shared_ptr<ObjectStore> store = open_with(8);
  server_.post("latency", R"({"first_byte_ms":3})");
  constexpr uint64_t kPartBytes = 64 * kKiB;
  const std::string bytes = some_bytes(8 * kPartBytes);
  std::vector<std::thread> writers;
  std::atomic<int> written = 0;
  for (int i = 0; i < 10; ++i) {
    writers.emplace_back([&, i] {
      WriterOptions options;
      options.object.name = cat("out/", i);
      options.part_bytes = kPartBytes;
      options.max_parts_in_flight = 8;
      const std::shared_ptr<ObjectWriter> writer = store->open_writer(options).value();
      EXPECT_TRUE(writer->append(bytes_of(bytes), nullptr, kMayBlock).has_value());
      if (writer->close(kMayBlock)) ++written;
    });
  }
  for (std::thread& each : writers) each.join();
  EXPECT_EQ(written, 10);
  EXPECT_EQ(server_.stat("/by_kind/upload"), 80u);
  EXPECT_EQ(server_.stat("/max_in_flight"), 8u);
  EXPECT_LE(engine_.metrics().connections_opened_total, 8u);
}

TEST_F(InFlightTest, StatsListingsAndDeletesStayWithinIt) {
  const std::shared_ptr<ObjectStore> store = open_with(2);
  server_.post("latency", R"({"first_byte_ms":2})");
  for (int i = 0; i < 10; ++i) server_.put(cat("a", i), "bytes");
  std::vector<std::shared_ptr<Pending<ObjectInfo>>> stats;
  std::vector<std::shared_ptr<Pending<ObjectPage>>> pages;
  std::vector<std::shared_ptr<Pending<bool>>> removals;
  for (int i = 0; i < 10; ++i) {
    stats.push_back(store->stat(cat("a", i)));
    pages.push_back(store->list({}));
  }
  for (const auto& each : stats) EXPECT_TRUE(take(each).has_value());
  for (const auto& each : pages) EXPECT_EQ(take(each)->objects.size(), 10u);
  for (int i = 0; i < 10; ++i) removals.push_back(store->remove(cat("a", i), {}));
  for (const auto& each : removals) EXPECT_TRUE(take(each).has_value());
  EXPECT_EQ(server_.stat("/max_in_flight"), 2u);
  EXPECT_LE(engine_.metrics().connections_opened_total, 2u);
}

TEST_F(InFlightTest, OneMeansOneThoughThereAreMoreThreads) {
  const std::shared_ptr<ObjectStore> store = open_with(1);
  const ObjectInfo object = server_.put("a", some_bytes(1'000));
  const std::vector<ReadTarget> targets(20, listed(object));
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  store->read(batch);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(take(store->stat("a")).has_value());
  wait_for(*batch);
  EXPECT_EQ(server_.stat("/max_in_flight"), 1u);
  EXPECT_EQ(engine_.metrics().connections_opened_total, 1u);
}

TEST_F(InFlightTest, ReadsAndOtherRequestsTakeTurns) {
  const std::shared_ptr<ObjectStore> store = open_with(1);
  const ObjectInfo object = server_.put("a", some_bytes(1'000));
  stall("get");
  const std::shared_ptr<Pending<ObjectInfo>> first = store->stat("a");
  server_.wait_for("/by_kind/get", 1);
  std::vector<std::shared_ptr<Pending<ObjectInfo>>> stats;
  for (int i = 0; i < 20; ++i) stats.push_back(store->stat("a"));
  const std::vector<ReadTarget> targets(20, listed(object));
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  store->read(batch);
  release();
  EXPECT_TRUE(take(first).has_value());
  for (const auto& each : stats) EXPECT_TRUE(take(each).has_value());
  wait_for(*batch);
  // Of the twenty in the middle about half are of each kind.
  const std::vector<FaultServer::Entry> log = server_.log();
  ASSERT_GE(log.size(), 30u);
  const auto reads = std::count_if(log.begin() + 5, log.begin() + 25,
                                   [](const auto& entry) { return entry.kind == "media"; });
  EXPECT_GE(reads, 8);
  EXPECT_LE(reads, 12);
}

TEST_F(InFlightTest, ARequestThatWaitsForItsTurnCanBeCancelled) {
  const std::shared_ptr<ObjectStore> store = open_with(1);
  server_.put("a", "bytes");
  stall("get");
  const std::shared_ptr<Pending<ObjectInfo>> first = store->stat("a");
  server_.wait_for("/by_kind/get", 1);
  const std::shared_ptr<Pending<ObjectInfo>> second = store->stat("a");
  const std::shared_ptr<Pending<ObjectInfo>> third = store->stat("a");
  second->cancel();
  EXPECT_THAT(take(second), FailsWith(Code::kCancelled, HasSubstr("gs://bucket/a")));
  EXPECT_EQ(server_.stat("/by_kind/get"), 1u);
  release();
  EXPECT_TRUE(take(first).has_value());
  EXPECT_TRUE(take(third).has_value());
}

TEST_F(InFlightTest, AtTheEndTemporaryObjectsAreRemovedThoughStalledReadsHoldAllSlots) {
  const ObjectInfo object = server_.put("a", some_bytes(1'000));
  {
    Engine engine({.io_threads = 1, .memory_budget_bytes = 64 * kMiB});
    options_.initial_in_flight = options_.max_in_flight = 1;
    const std::shared_ptr<ObjectStore> store = open_in(engine, options_);
    WriterOptions options;
    options.object.name = "out/a";
    options.part_bytes = 64 * kKiB;
    const std::shared_ptr<ObjectWriter> writer = store->open_writer(options).value();
    const std::string bytes = some_bytes(3 * 64 * kKiB + 1);
    ASSERT_TRUE(writer->append(bytes_of(bytes), nullptr, kMayBlock).has_value());
    server_.wait_for("/by_kind/upload", 3);
    stall("media");
    const std::vector<ReadTarget> targets(1, listed(object));
    const std::shared_ptr<ReadBatch> batch = batch_of(targets);
    store->read(batch);
    server_.wait_for("/by_kind/media", 1);
    engine.stop();
    wait_for(*batch);
  }
  EXPECT_THAT(take(open()->list({.prefix = std::string(kUploadPrefix)}))->objects,
              ::testing::IsEmpty());
}

}  // namespace
}  // namespace headrace
