// Groups in the queue, with a fetcher and a store that are scripts. Whoever looks for what waits
// may look at any moment: in each of them another group ends here, or the batch is cancelled.
#include "headrace/store/reading/grouped_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/store/reading/fake_store_test_support.h"

namespace headrace {
namespace {

// Fetches nothing: what it is given stays with it until its slots are read alone.
class ScriptedFetcher final : public Fetcher {
 public:
  bool is_ready() const override {
    at("is_ready");
    return ready;
  }
  Limits limits() const override {
    at("limits");
    return {.max_size_bytes = kMiB, .max_objects = 100, .max_in_flight = max_in_flight};
  }
  bool takes(const ReadBatch&, const ReadSlot&) const override {
    at("takes");
    return true;
  }
  bool reads_alone(ReadBatch&, uint64_t, uint64_t) override {
    at("reads_alone");
    return false;
  }
  std::shared_ptr<FetchGroup> make_group(std::shared_ptr<ReadBatch> batch,
                                         std::shared_ptr<ObjectStore> store,
                                         PlannedGroup parts) const override {
    at("make_group");
    auto group = std::make_shared<FetchGroup>(std::move(batch), std::move(store), std::move(parts));
    group->need_bytes = 100;
    return group;
  }
  bool holds_back(const FetchGroup&) const override {
    at("holds_back");
    ++held_back;
    return holds;
  }
  FetchWay choose(FetchGroup&) override {
    at("choose");
    return way;
  }
  void begin(const std::shared_ptr<GroupedReads>& reads,
             const std::shared_ptr<FetchGroup>& group) override {
    at("begin");
    reads->release(*group);
    if (reads->touch(*group)) {
      begun.push_back(group);
    } else {
      reads->retire(group);
    }
  }
  void retired(FetchGroup& group) override {
    ++retired_count;
    failed_count += group.failed ? 1 : 0;
  }

  // What happens in that moment, once.
  void in(std::string moment, std::function<void()> happens) {
    moment_ = std::move(moment);
    happens_ = std::move(happens);
  }
  bool has_happened() const { return !happens_; }

  bool ready = true, holds = false;
  uint32_t max_in_flight = 1;
  FetchWay way = FetchWay::kTogether;
  mutable size_t held_back = 0;  // how often it was asked
  size_t retired_count = 0, failed_count = 0;
  std::vector<std::shared_ptr<FetchGroup>> begun;

 private:
  void at(std::string_view moment) const {
    if (moment != moment_ || !happens_) return;
    std::exchange(happens_, {})();
  }

  std::string moment_;
  mutable std::function<void()> happens_;
};

class GroupedReadsTest : public ::testing::Test {
 protected:
  GroupedReadsTest() {
    store_->objects["a"] = "one";
    store_->objects["b"] = "another";
  }
  ~GroupedReadsTest() override {
    reads_->stop();
    EXPECT_TRUE(reads_->wait_retired({}, MayBlock::on_this_thread()));
    EXPECT_EQ(pool_->reserved_bytes(), 0u);
  }

  std::shared_ptr<ReadBatch> begin() {
    auto batch = ReadBatch::create(2);
    for (const auto& [name, content] : store_->objects) {
      batch->add({.name = name, .size_bytes = content.size()});
    }
    EXPECT_TRUE(reads_->read(batch, store_));
    return batch;
  }
  void end(const std::shared_ptr<FetchGroup>& group) {
    reads_->end_alone(group, group->parts.slots);
  }
  void end(size_t number) { end(std::shared_ptr(fetcher_->begun[number])); }
  // Has it happen in that moment: on another thread where this one has a lock.
  void in(std::string_view moment, const std::function<void()>& what) {
    const bool has_lock = moment == "holds_back" || moment == "choose";
    fetcher_->in(
        std::string(moment),
        has_lock ? std::function<void()>([this, what] { other_ = std::jthread(what); }) : what);
  }
  static size_t error_count(ReadBatch& batch) {
    size_t count = 0;
    for (size_t i = 0; i < batch.size(); ++i) count += batch.slot(i).error ? 1 : 0;
    return count;
  }

  const std::shared_ptr<BlockPool> pool_ = BlockPool::create(kMiB);
  const std::shared_ptr<FakeStore> store_ = std::make_shared<FakeStore>(pool_);
  ScriptedFetcher* const fetcher_ = new ScriptedFetcher();
  const std::shared_ptr<GroupedReads> reads_ = std::make_shared<GroupedReads>(
      std::unique_ptr<Fetcher>(fetcher_), pool_, [this] { return store_->useful_in_flight(); });
  std::jthread other_;
};

TEST_F(GroupedReadsTest, AGroupBeginsInWhicheverMomentOfItsChoiceTheOneBeforeItEnds) {
  for (const bool holds : {false, true}) {
    for (const uint32_t max_in_flight : {1u, 2u}) {
      for (const char* moment :
           {"is_ready", "limits", "takes", "reads_alone", "make_group", "holds_back", "choose"}) {
        SCOPED_TRACE(testing::Message() << moment << holds << max_in_flight);
        fetcher_->holds = holds;
        fetcher_->max_in_flight = max_in_flight;
        const std::shared_ptr<ReadBatch> first = begin();
        ASSERT_EQ(fetcher_->begun.size(), 1u);
        in(moment, [this, group = fetcher_->begun[0]] { end(group); });
        const std::shared_ptr<ReadBatch> second = begin();
        if (other_.joinable()) other_.join();
        const bool was_asked = fetcher_->has_happened();
        fetcher_->in("", {});
        if (!was_asked) end(0);  // there was no such moment
        EXPECT_TRUE(first->done());
        ASSERT_EQ(fetcher_->begun.size(), 2u) << "nobody has begun it";
        end(1);
        EXPECT_TRUE(second->done());
        fetcher_->begun.clear();
      }
    }
  }
  EXPECT_EQ(fetcher_->failed_count, 0u);
}

TEST_F(GroupedReadsTest, ABatchEndsAtOnceInWhicheverMomentOfItsChoiceItIsCancelled) {
  for (const char* moment :
       {"none", "takes", "reads_alone", "make_group", "holds_back", "choose", "begin"}) {
    SCOPED_TRACE(moment);
    fetcher_->max_in_flight = 2;
    fetcher_->holds = moment == std::string("holds_back");
    const std::shared_ptr<ReadBatch> first = begin();
    auto batch = ReadBatch::create(2);
    for (const char* name : {"a", "b"}) batch->add({.name = name, .size_bytes = 5});
    in(moment, [&batch] { batch->cancel(); });
    ASSERT_TRUE(reads_->read(batch, store_));
    if (other_.joinable()) other_.join();
    if (!batch->done()) {
      // It was cancelled too late: its memory may be written to.
      EXPECT_THAT(std::string(moment), testing::AnyOf("none", "choose"));
      ASSERT_EQ(fetcher_->begun.size(), 2u);
      end(1);
    } else {
      EXPECT_EQ(error_count(*batch), 2u);
    }
    fetcher_->in("", {});
    EXPECT_TRUE(batch->done());
    EXPECT_FALSE(first->done());
    end(0);
    EXPECT_TRUE(first->done());
    fetcher_->begun.clear();
  }
}

TEST_F(GroupedReadsTest, WhatIsHeldBackBeginsWhenAnotherHasEndedOrSomebodyWaitsForIt) {
  fetcher_->max_in_flight = 10;
  const std::shared_ptr<ReadBatch> first = begin();
  EXPECT_EQ(fetcher_->held_back, 0u) << "of the only one that would be in progress nobody asks";
  fetcher_->holds = true;
  const std::shared_ptr<ReadBatch> second = begin(), third = begin(), fourth = begin();
  EXPECT_EQ(fetcher_->begun.size(), 1u);
  third->want();
  ASSERT_EQ(fetcher_->begun.size(), 2u);
  EXPECT_EQ(fetcher_->begun[1]->batch, third);
  const size_t asked = fetcher_->held_back;
  end(0);  // one is in progress: the next is still held back, ...
  EXPECT_EQ(fetcher_->begun.size(), 2u);
  EXPECT_EQ(fetcher_->held_back, asked + 1);
  end(1);  // ... and now none is, so that one begins, and one only
  ASSERT_EQ(fetcher_->begun.size(), 3u);
  EXPECT_EQ(fetcher_->begun[2]->batch, second);
  fetcher_->holds = false;
  end(2);
  end(3);
  for (const auto& batch : {first, second, third, fourth}) EXPECT_TRUE(batch->done());
}

TEST_F(GroupedReadsTest, AGroupThatGoesAloneIsInProgressUntilItHasBeenRead) {
  fetcher_->way = FetchWay::kAlone;
  store_->holds = true;
  const std::shared_ptr<ReadBatch> first = begin(), second = begin();
  EXPECT_EQ(pool_->reserved_bytes(), 0u) << "the store takes the memory";
  ASSERT_EQ(store_->held.size(), 1u);
  EXPECT_EQ(fetcher_->retired_count, 0u);
  store_->answer(store_->held[0]);
  EXPECT_TRUE(first->done());
  EXPECT_EQ(fetcher_->retired_count, 1u);
  ASSERT_EQ(store_->held.size(), 2u);
  reads_->stop();
  EXPECT_TRUE(store_->held[1]->cancelled()) << "nobody waits for it at the end";
  EXPECT_FALSE(reads_->wait_retired({}, MayBlock::on_this_thread()));
  store_->answer(store_->held[1]);
}

TEST_F(GroupedReadsTest, WhereNothingComesTogetherAllOfTheQueueIsReadAlone) {
  store_->holds = true;
  const std::shared_ptr<ReadBatch> first = begin(), second = begin(), third = begin();
  ASSERT_EQ(fetcher_->begun.size(), 1u);
  fetcher_->ready = false;
  end(0);
  ASSERT_EQ(store_->held.size(), 1u);
  store_->answer(store_->held[0]);
  ASSERT_EQ(store_->held.size(), 3u);
  store_->answer(store_->held[1]);
  store_->answer(store_->held[2]);
  for (const auto& batch : {first, second, third}) EXPECT_TRUE(batch->done());
}

TEST_F(GroupedReadsTest, WhatFailsAloneSaysSo) {
  fetcher_->way = FetchWay::kAlone;
  const std::shared_ptr<ReadBatch> batch = ReadBatch::create(2);
  batch->add({.name = "a", .size_bytes = 3});
  batch->add({.name = "gone", .size_bytes = 3});
  ASSERT_TRUE(reads_->read(batch, store_));
  EXPECT_EQ(error_count(*batch), 1u);
  EXPECT_EQ(fetcher_->failed_count, 1u);
}

}  // namespace
}  // namespace headrace
