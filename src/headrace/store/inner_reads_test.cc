// Batches that are read by others, from a store that answers when it is told to.
#include "headrace/store/inner_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/store/reading/fake_store_test_support.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;

class InnerReadsTest : public ::testing::Test {
 protected:
  InnerReadsTest() {
    for (const char* name : {"a", "b", "c"}) store_->objects[name] = cat("it is ", name);
    store_->holds = true;
  }
  ~InnerReadsTest() override {
    store_->held.clear();
    EXPECT_EQ(pool_->live_bytes(), 0u);
  }

  static std::shared_ptr<ReadBatch> batch_of(const std::vector<std::string>& names) {
    auto batch = ReadBatch::create(names.size());
    for (const std::string& name : names) batch->add({.name = name});
    return batch;
  }
  InnerRead inner(const ReadBatch& outer, std::vector<uint32_t> slots) {
    return read_slots(outer, std::move(slots), store_, ReadBatch::Planned::kGroups);
  }
  // By two others.
  std::shared_ptr<ReadBatch> begin() {
    const std::shared_ptr<ReadBatch> outer = batch_of({"a", "b", "c", "gone"});
    std::vector<InnerRead> plan;
    plan.push_back(inner(*outer, {3, 0}));
    plan.push_back(inner(*outer, {1, 2}));
    carry_out(outer, std::move(plan));
    return outer;
  }
  void answer_all() {
    // More may come meanwhile.
    for (size_t i = 0; i < store_->held.size(); ++i) {
      store_->answer(std::exchange(store_->held[i], nullptr));
    }
    store_->held.clear();
  }
  static std::string outcome(ReadBatch& batch, size_t i) {
    const ReadSlot& slot = batch.slot(i);
    if (slot.error) return std::string(to_string(slot.error->code()));
    return {reinterpret_cast<const char*>(slot.into.data()), slot.into.size()};
  }

  const std::shared_ptr<BlockPool> pool_ = BlockPool::create(kMiB);
  const std::shared_ptr<FakeStore> store_ = std::make_shared<FakeStore>(pool_);
};

TEST_F(InnerReadsTest, EachOutcomeGoesBackToItsSlot) {
  const std::shared_ptr<ReadBatch> outer = begin();
  ASSERT_EQ(store_->held.size(), 2u);
  for (const auto& each : store_->held) EXPECT_EQ(each->planned, ReadBatch::Planned::kGroups);
  store_->answer(store_->held[1]);
  EXPECT_FALSE(outer->done());
  store_->answer(store_->held[0]);
  ASSERT_TRUE(outer->done());
  EXPECT_EQ(outcome(*outer, 0), "it is a");
  EXPECT_EQ(outcome(*outer, 1), "it is b");
  EXPECT_EQ(outcome(*outer, 2), "it is c");
  EXPECT_EQ(outcome(*outer, 3), "not found");
  EXPECT_THAT(store_->names, ElementsAre("b", "c", "gone", "a"));
}

TEST_F(InnerReadsTest, NothingIsKeptOnceAllIsDone) {
  std::shared_ptr<ReadBatch> outer = begin();
  std::vector<std::weak_ptr<ReadBatch>> all = {outer};
  for (const auto& each : store_->held) all.push_back(each);
  outer.reset();
  for (const auto& each : all) EXPECT_FALSE(each.expired()) << "it is being read";
  answer_all();
  for (const auto& each : all) EXPECT_TRUE(each.expired());
}

TEST_F(InnerReadsTest, AreWaitedForAndCancelledWithTheOuterBatchHoweverDeep) {
  const std::shared_ptr<ReadBatch> outermost = batch_of({"a"});
  outermost->hand_over();
  add_read(outermost, inner(*outermost, {0}));
  // What it is read by is read by another in its turn.
  const std::shared_ptr<ReadBatch> outer = store_->held[0];
  add_read(outer, inner(*outer, {0}));
  ASSERT_EQ(store_->held.size(), 2u);
  for (const auto& each : store_->held) EXPECT_FALSE(each->waited_for());
  outermost->want();
  for (const auto& each : store_->held) {
    EXPECT_TRUE(each->waited_for());
    EXPECT_FALSE(each->cancelled());
  }
  outermost->cancel();
  for (const auto& each : store_->held) EXPECT_TRUE(each->cancelled());
  store_->answer(store_->held[1]);
  EXPECT_TRUE(outermost->done());
}

TEST_F(InnerReadsTest, OneThatComesLaterHearsWhatCameBefore) {
  const std::shared_ptr<ReadBatch> outer = batch_of({"a", "b"});
  outer->want();
  outer->hand_over();
  add_read(outer, inner(*outer, {0}));
  EXPECT_TRUE(store_->held[0]->waited_for());
  outer->cancel();
  add_read(outer, inner(*outer, {1}));
  for (const auto& each : store_->held) EXPECT_TRUE(each->cancelled());
  answer_all();
  EXPECT_TRUE(outer->done());
}

TEST_F(InnerReadsTest, GiveBackMayReadMore) {
  const std::shared_ptr<ReadBatch> outer = batch_of({"a", "b"});
  InnerRead first = inner(*outer, {0, 1});
  first.give_back = [this](ReadBatch& to, ReadBatch& from) {
    to.take_outcome(1, from.slot(1));
    add_read(to.shared_from_this(), inner(to, {0}));
  };
  std::vector<InnerRead> plan;
  plan.push_back(std::move(first));
  carry_out(outer, std::move(plan));
  store_->answer(store_->held[0]);
  EXPECT_FALSE(outer->done());
  outer->cancel();
  EXPECT_TRUE(store_->held[1]->cancelled());
  store_->answer(store_->held[1]);
  EXPECT_EQ(outcome(*outer, 0), "it is a");
}

TEST_F(InnerReadsTest, ABatchOfNothingIsDone) {
  const std::shared_ptr<ReadBatch> outer = ReadBatch::create(0);
  carry_out(outer, {});
  EXPECT_TRUE(outer->done());
}

// One thread waits for and cancels a batch while another one begins its reads, of which each must
// hear of it: as many as there are.
TEST_F(InnerReadsTest, EveryOneHearsOfItWheneverItComes) {
  constexpr int kRounds = 2000, kReads = 4;
  int heard = 0, waited_for = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::shared_ptr<ReadBatch> outer = batch_of({"a", "b", "c", "gone"});
    outer->hand_over();
    {
      const std::jthread other([&outer] {
        outer->want();
        outer->cancel();
      });
      for (uint32_t i = 0; i < kReads; ++i) add_read(outer, inner(*outer, {i}));
    }
    for (const auto& each : store_->held) {
      heard += each->cancelled() ? 1 : 0;
      waited_for += each->waited_for() ? 1 : 0;
    }
    answer_all();
    ASSERT_TRUE(outer->done());
  }
  EXPECT_EQ(heard, kRounds * kReads);
  // Of what is cancelled before it is begun, nobody needs to know.
  EXPECT_LE(waited_for, heard);
}

}  // namespace
}  // namespace headrace
