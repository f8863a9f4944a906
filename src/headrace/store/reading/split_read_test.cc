#include "headrace/store/reading/split_read.h"

#include <thread>

#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

// Twenty objects on two servers, by turns.
class SplitReadTest : public StoreTest {
 protected:
  SplitReadTest() {
    for (size_t i = 0; i < 20; ++i) {
      contents_.push_back(some_bytes(100 * i, static_cast<uint32_t>(i)));
      store_of_.push_back(static_cast<uint32_t>(i % 2));
      FaultServer& server = i % 2 == 0 ? server_ : other_;
      targets_.push_back(server.put("o" + std::to_string(i), contents_.back()));
    }
    stores_ = {open(), open(options_for(other_))};
  }
  std::shared_ptr<ReadBatch> start() {
    std::vector<ReadTarget> targets;
    for (const ObjectInfo& each : targets_) targets.push_back(listed(each));
    const std::shared_ptr<ReadBatch> batch = batch_of(targets);
    split_read(stores_, store_of_, batch);
    return batch;
  }

  FaultServer other_;
  std::vector<std::string> contents_;
  std::vector<uint32_t> store_of_;
  std::vector<ObjectInfo> targets_;
  std::vector<std::shared_ptr<ObjectStore>> stores_;
};

TEST_F(SplitReadTest, GivesEachSlotWhatItsStoreHas) {
  const std::shared_ptr<ReadBatch> batch = start();
  wait_for(*batch);
  for (size_t i = 0; i < contents_.size(); ++i) {
    EXPECT_EQ(outcome(*batch, i).value(), contents_[i]);
    EXPECT_EQ(batch->slot(i).found_generation.view(), targets_[i].generation);
  }
  EXPECT_EQ(server_.stat("/by_kind/media"), 10u);
  EXPECT_EQ(other_.stat("/by_kind/media"), 10u);
}

TEST_F(SplitReadTest, TellsAnErrorInItsPlace) {
  other_.faults(R"([{"match": {"path_contains": "o7"}, "action": {"status": 404}}])");
  const std::shared_ptr<ReadBatch> batch = start();
  wait_for(*batch);
  for (size_t i = 0; i < contents_.size(); ++i) {
    const Result<std::string> found = outcome(*batch, i);
    ASSERT_EQ(found.has_value(), i != 7) << i;
    if (i == 7) EXPECT_EQ(found.error().code(), Code::kNotFound);
  }
}

TEST_F(SplitReadTest, IsCancelledInAllStores) {
  for (FaultServer* server : {&server_, &other_}) {
    server->faults(R"([{"match": {"kind": "media"}, "action": {"stall_head": true}}])");
  }
  const std::shared_ptr<ReadBatch> batch = start();
  server_.wait_for("/by_kind/media", 1);
  other_.wait_for("/by_kind/media", 1);
  batch->cancel();
  wait_for(*batch);
  for (size_t i = 0; i < contents_.size(); ++i) {
    EXPECT_EQ(outcome(*batch, i).error().code(), Code::kCancelled) << i;
  }
}

TEST_F(SplitReadTest, OfOneStoreIsThatStoresOwn) {
  const std::shared_ptr<ReadBatch> batch = batch_of(std::vector{listed(targets_[3])});
  split_read(stores_, std::vector<uint32_t>{1}, batch);
  wait_for(*batch);
  EXPECT_EQ(outcome(*batch, 0).value(), contents_[3]);
  const std::shared_ptr<ReadBatch> empty = batch_of({});
  split_read(stores_, {}, empty);
  wait_for(*empty);
}

TEST_F(SplitReadTest, GivesAllMemoryBack) {
  {
    const std::shared_ptr<ReadBatch> batch = start();
    wait_for(*batch);
  }
  wait_until_all_is_given_back(engine_.pool());
}

// ── Checksums of ranges ──────────────────────────────────────────────────────────────────────

TEST_F(SplitReadTest, ComparesTheChecksumOfARange) {
  const std::string data = some_bytes(300'000, 3);
  const ObjectInfo info = server_.put("range", data);
  // Several requests for one range.
  options_.range_threshold_bytes = options_.range_bytes = kMinRangeBytes;
  const std::shared_ptr<ObjectStore> store = open();
  ReadTarget target = listed(info);
  target.range = ByteRange{1000, 240'000};
  const std::string part = data.substr(1000, 239'000);
  target.range_checksum = Crc32c().extended(bytes_of(part));
  EXPECT_EQ(read(*store, target).value(), part);
  target.range_checksum = Crc32c(7);
  const Result<std::string> wrong = read(*store, target);
  EXPECT_EQ(wrong.error().code(), Code::kCorrupt);
  EXPECT_THAT(wrong.error().message(), HasSubstr("the index says"));
}

}  // namespace
}  // namespace headrace
