// Batches that wait for a choice, with a fetcher and a store that are scripts.
#include "headrace/store/reading/grouped_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "headrace/store/reading/fake_store_test_support.h"

namespace headrace {
namespace {

// Answers choose() by a script, and fetches nothing: what it is given stays with it.
class ScriptedFetcher final : public Fetcher {
 public:
  using Step = std::function<Choice(ReadBatch&, const std::function<void()>& again)>;

  bool is_ready() const override { return true; }
  Limits limits() const override {
    return {.max_size_bytes = kMiB, .max_objects = 100, .max_in_flight = 1};
  }
  bool takes(const ReadBatch&, const ReadSlot&) const override { return true; }
  Choice choose(ReadBatch& batch, uint64_t, uint64_t, std::function<void()> again) override {
    const size_t step = asked++;
    return step < steps.size() ? steps[step](batch, again) : Choice::kAlone;
  }
  std::shared_ptr<FetchGroup> make_group(std::shared_ptr<FetchWork> work,
                                         PlannedGroup parts) const override {
    return std::make_shared<FetchGroup>(std::move(work), std::move(parts));
  }
  void begin(const std::shared_ptr<GroupedReads>&,
             const std::shared_ptr<FetchGroup>& group) override {
    begun.push_back(group);
  }

  std::vector<Step> steps;
  size_t asked = 0;
  std::vector<std::shared_ptr<FetchGroup>> begun;
};

class GroupedReadsTest : public ::testing::Test {
 protected:
  using Choice = Fetcher::Choice;

  GroupedReadsTest() {
    store_->objects["a"] = "one";
    store_->objects["b"] = "another";
  }
  ~GroupedReadsTest() override { reads_->stop(); }

  std::shared_ptr<ReadBatch> batch_of_two() {
    auto batch = ReadBatch::create(2);
    for (const auto& [name, content] : store_->objects) {
      batch->add({.name = name, .size_bytes = content.size()});
    }
    return batch;
  }
  static Choice later(ReadBatch&, const std::function<void()>&) { return Choice::kLater; }

  const std::shared_ptr<BlockPool> pool_ = BlockPool::create(kMiB);
  const std::shared_ptr<FakeStore> store_ = std::make_shared<FakeStore>(pool_);
  ScriptedFetcher* const fetcher_ = new ScriptedFetcher();
  const std::shared_ptr<GroupedReads> reads_ =
      std::make_shared<GroupedReads>(store_, std::unique_ptr<Fetcher>(fetcher_));
};

TEST_F(GroupedReadsTest, ABatchThatEndsWhileAnotherIsAskedForHasThatOneAskedForAgain) {
  // As if the last batch in progress ended after the second answer, and before the batch is back
  // where those who call `again` look for it.
  fetcher_->steps = {later, [](ReadBatch&, const std::function<void()>& again) {
                       again();
                       return Choice::kLater;
                     }};
  const std::shared_ptr<ReadBatch> batch = batch_of_two();
  reads_->read(batch);
  EXPECT_EQ(fetcher_->asked, 3u);
  EXPECT_TRUE(batch->done());
}

TEST_F(GroupedReadsTest, ABatchThatIsToWaitIsNotAskedForUntilSomethingHasChanged) {
  std::function<void()> again;
  const ScriptedFetcher::Step keep = [&again](ReadBatch&, const std::function<void()>& its) {
    again = its;
    return Choice::kLater;
  };
  fetcher_->steps = {keep, keep, keep};
  const std::shared_ptr<ReadBatch> batch = batch_of_two();
  reads_->read(batch);
  EXPECT_EQ(fetcher_->asked, 2u);
  again();
  EXPECT_EQ(fetcher_->asked, 3u);
  EXPECT_FALSE(batch->done());
  again();
  EXPECT_TRUE(batch->done());
}

// In each of these moments the batch is in no list in which cancelling could find it.
TEST_F(GroupedReadsTest, ABatchThatIsCancelledWhileItIsAskedForEndsAtOnce) {
  const std::vector<Choice> answers = {Choice::kLater, Choice::kTogether};
  for (const size_t moment : {0u, 1u}) {
    for (const Choice answer : answers) {
      fetcher_->asked = 0;
      // The first one is in progress: there is no room for another group.
      const std::shared_ptr<ReadBatch> first = batch_of_two(), batch = batch_of_two();
      const auto cancel = [answer](ReadBatch& its, const std::function<void()>&) {
        its.cancel();
        return answer;
      };
      const auto together = [](ReadBatch&, const std::function<void()>&) {
        return Choice::kTogether;
      };
      fetcher_->steps = {together};
      if (moment == 1) fetcher_->steps.push_back(later);
      fetcher_->steps.push_back(cancel);
      reads_->read(first);
      reads_->read(batch);
      EXPECT_TRUE(batch->done()) << moment << static_cast<int>(answer);
      EXPECT_FALSE(first->done());
      first->cancel();
      EXPECT_TRUE(first->done());
      for (const std::shared_ptr<FetchGroup>& group : std::exchange(fetcher_->begun, {})) {
        reads_->release(*group);
        reads_->retire(group);
      }
    }
  }
}

TEST_F(GroupedReadsTest, WhatItsStoreCanOpenAheadIsAskedOfThatStore) {
  reads_->expect_reads(7);
  EXPECT_EQ(store_->expected_reads, 7u);
}

}  // namespace
}  // namespace headrace
