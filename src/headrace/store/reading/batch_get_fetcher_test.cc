// Batches whose objects come together, from a service and a store that are scripts.
#include "headrace/store/reading/batch_get_fetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/base/thread_pool.h"
#include "headrace/format/xxh64.h"
#include "headrace/store/reading/batch_get_test_support.h"
#include "headrace/store/reading/fake_store_test_support.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class BatchGetFetcherTest : public ::testing::Test {
 protected:
  struct Sent {
    std::shared_ptr<BatchGet> get;
    std::shared_ptr<Pending<bool>> pending;
  };

  BatchGetFetcherTest() {
    options_.get_batch.mode = GetBatchMode::kAlways;
    for (int i = 0; i < 20; ++i) {
      std::string content;
      for (int k = 0; k < 100 * i; ++k) content += static_cast<char>(i * k);
      put("o" + std::to_string(i), content);
    }
  }
  ~BatchGetFetcherTest() override {
    sent_.clear();
    reads_.reset();
    EXPECT_EQ(pool_->in_flight_bytes(), 0u);
    EXPECT_EQ(pool_->reserved_bytes(), 0u);
    EXPECT_EQ(pool_->live_bytes(), 0u);
  }

  void put(const std::string& name, std::string content) {
    store_->objects[name] = std::move(content);
    names_.push_back(name);
  }
  ReadTarget target(const std::string& name) const {
    const std::string& content = store_->objects.find(name)->second;
    return {.name = name,
            .generation = "1-x",
            .size_bytes = content.size(),
            .checksum = sum_of(ChecksumKind::kXxh64, bytes_of(content))};
  }
  std::vector<ReadTarget> all() const {
    std::vector<ReadTarget> targets;
    for (const std::string& name : names_) targets.push_back(target(name));
    return targets;
  }
  GroupedReads& reads() {
    if (!reads_) {
      reads_ = std::make_shared<GroupedReads>(
          std::make_unique<BatchGetFetcher>(
              BatchGetFetcher::Service{
                  .gets = batch_get_protocol().batch_gets(),
                  .record = &record_,
                  .send = [this](std::shared_ptr<BatchGet> get) { return send(std::move(get)); }},
              BatchGetFetcher::Resources{.pool = pool_, .warnings = warnings_, .metrics = metrics_},
              options_),
          pool_, [this] { return store_->useful_in_flight(); });
    }
    return *reads_;
  }
  std::shared_ptr<Pending<bool>> send(std::shared_ptr<BatchGet> get) {
    auto pending = std::make_shared<Pending<bool>>();
    if (post_) {
      post_([this, get, pending] { pending->complete(answer(get, {.body = tar_of(*get)})); });
      return pending;
    }
    pending->set_on_cancel([this] { ++cancels_; });
    sent_.push_back({get, pending});
    if (answers_at_once_) answer(sent_.size() - 1);
    return pending;
  }
  // As a server that has these objects would.
  std::string tar_of(const BatchGet& get) const {
    std::string tar;
    for (const BatchGet::Slot& each : get.slots) {
      const ReadSlot& slot = get.batch->slot(each.index);
      const std::string name(get.batch->name(slot));
      const auto found = store_->objects.find(name);
      if (found == store_->objects.end()) {
        tar += tar_file("__404__/" + name, "");
      } else {
        tar += tar_file(name, found->second.substr(slot.range.begin, slot.range.size_bytes()));
      }
    }
    return tar + tar_end();
  }
  void answer(size_t number) {
    const Sent sent = sent_[number];
    BatchGetAnswer how;
    if (scripted_.empty()) {
      how.body = tar_of(*sent.get);
    } else {
      how = scripted_.front();
      scripted_.pop_front();
    }
    sent.pending->complete(answer(sent.get, how));
  }
  static Result<bool> answer(const std::shared_ptr<BatchGet>& get, const BatchGetAnswer& how) {
    BatchGetAttempt attempt(batch_get_protocol(), get);
    HttpRequest request;
    attempt.build(request);
    const Result<void> taken = take_answer(attempt, how);
    return taken ? Result<bool>(true) : Result<bool>(std::unexpected(taken.error()));
  }
  std::shared_ptr<ReadBatch> begin(const std::vector<ReadTarget>& targets) {
    auto batch = ReadBatch::create(targets.size());
    for (const ReadTarget& each : targets) batch->add(each);
    if (!reads().read(batch, store_)) store_->read(batch);
    return batch;
  }
  // Batches of 100 objects.
  std::vector<std::shared_ptr<ReadBatch>> begin_many(int count) {
    std::vector<ReadTarget> targets;
    for (int i = 0; i < 5; ++i) {
      for (const ReadTarget& each : all()) targets.push_back(each);
    }
    std::vector<std::shared_ptr<ReadBatch>> batches;
    for (int i = 0; i < count; ++i) batches.push_back(begin(targets));
    return batches;
  }
  static std::string outcome(ReadBatch& batch, size_t i) {
    EXPECT_TRUE(batch.done());
    const ReadSlot& slot = batch.slot(i);
    if (slot.error) return std::string(to_string(slot.error->code()));
    return {reinterpret_cast<const char*>(slot.into.data()), slot.into.size()};
  }
  void expect_all(ReadBatch& batch) {
    ASSERT_EQ(batch.size(), names_.size());
    for (size_t i = 0; i < names_.size(); ++i) {
      EXPECT_EQ(outcome(batch, i), store_->objects[names_[i]]) << i;
    }
  }
  static BatchGetAnswer refusal(std::string status, std::string message) {
    const std::string body = cat(R"({"message":")", message, R"("})");
    return {.body = body,
            .head = cat("HTTP/1.1 ", status, "\r\nContent-Length: ", body.size(), "\r\n\r\n")};
  }

  const std::shared_ptr<BlockPool> pool_ = BlockPool::create(64 * kMiB);
  const std::shared_ptr<Warnings> warnings_ = std::make_shared<Warnings>();
  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  const std::shared_ptr<FakeStore> store_ = std::make_shared<FakeStore>(pool_);
  StoreOptions options_;
  BatchGetRecord record_;
  std::vector<std::string> names_;
  std::vector<Sent> sent_;
  std::deque<BatchGetAnswer> scripted_;
  bool answers_at_once_ = true;
  int cancels_ = 0;
  std::shared_ptr<GroupedReads> reads_;
  std::function<void(ThreadPool::Job)> post_;  // where answers come from, if at once: nowhere else
};

TEST_F(BatchGetFetcherTest, OneRequestBringsABatch) {
  const std::shared_ptr<ReadBatch> batch = begin(all());
  expect_all(*batch);
  EXPECT_THAT(sent_, SizeIs(1));
  EXPECT_THAT(store_->names, IsEmpty());
  EXPECT_THAT(store_->unverified, IsEmpty());
  for (size_t i = 0; i < batch->size(); ++i) {
    EXPECT_EQ(batch->slot(i).found_generation.view(), "1-x");
    EXPECT_EQ(batch->slot(i).object_bytes, 100 * i);
  }
  EXPECT_EQ(metrics_->objects_read_total, 20u);
  EXPECT_EQ(metrics_->checksums_verified_total, 20u);
  EXPECT_EQ(metrics_->bytes_read_total, 100u * 190);
  EXPECT_EQ(pool_->in_flight_bytes(), 0u);
}

TEST_F(BatchGetFetcherTest, WhatDoesNotComeIsReadAloneAndItsErrorsAreTheStores) {
  std::vector<ReadTarget> targets = all();
  const std::string gone = "gone";
  targets.push_back({.name = gone, .size_bytes = 5});
  scripted_.push_back({.body = tar_file("o0", "") + tar_file("o1", store_->objects["o1"]) +
                               tar_file("__404__/o2", "") + tar_file("o3", "short") +
                               tar_file("o4", std::string(400, 'x')) + tar_end()});
  const std::shared_ptr<ReadBatch> batch = begin(targets);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(outcome(*batch, i), store_->objects[names_[i]]);
  EXPECT_EQ(outcome(*batch, 20), "not found");
  EXPECT_THAT(sent_, SizeIs(1));
  EXPECT_THAT(store_->names, SizeIs(19));
  EXPECT_EQ(metrics_->objects_read_total, 2u);  // the others count where they are read
  EXPECT_FALSE(record_.is_paused(std::chrono::steady_clock::now()));
}

TEST_F(BatchGetFetcherTest, ATornAnswerCostsOnlyWhatDidNotCome) {
  const std::string tar = tar_file("o0", "") + tar_file("o1", store_->objects["o1"]);
  scripted_.push_back({.body = tar + tar_header("o2", 200) + "abc", .then_fails = "reset"});
  expect_all(*begin(all()));
  EXPECT_THAT(store_->names, SizeIs(18));
  EXPECT_TRUE(record_.is_paused(std::chrono::steady_clock::now()));
  expect_all(*begin(all()));
  EXPECT_THAT(sent_, SizeIs(1));
}

TEST_F(BatchGetFetcherTest, TheFirstRequestFindsOutThatThereAreNone) {
  options_.get_batch.max_objects = 4;
  options_.get_batch.mode = GetBatchMode::kAuto;
  scripted_.push_back(refusal("400 Bad Request", "invalid request URI '/v1/ml/moss'"));
  expect_all(*begin(all()));
  expect_all(*begin(all()));
  EXPECT_THAT(sent_, SizeIs(1));
  EXPECT_THAT(store_->names, SizeIs(40));
  EXPECT_EQ(record_.taken.at(std::chrono::steady_clock::now()), Learned::Treatment::kRefused);
  EXPECT_THAT(warnings_->take(), IsEmpty());
}

TEST_F(BatchGetFetcherTest, WhoeverWantsThemAlwaysIsToldOnceThatThereAreNone) {
  scripted_.push_back(refusal("404 Not Found", "invalid request URI"));
  expect_all(*begin(all()));
  expect_all(*begin(all()));
  EXPECT_THAT(warnings_->take(), ElementsAre(HasSubstr("ais://bucket/ are read one by one")));
}

TEST_F(BatchGetFetcherTest, UntilItIsKnownWhetherThereAreSuchRequestsOnlyOneIsSent) {
  options_.get_batch.max_objects = 4;
  answers_at_once_ = false;
  const std::shared_ptr<ReadBatch> batch = begin(all());
  EXPECT_THAT(sent_, SizeIs(1));
  answer(0);
  EXPECT_THAT(sent_, SizeIs(5));
  for (size_t i = 1; i < 5; ++i) answer(i);
  expect_all(*batch);
}

TEST_F(BatchGetFetcherTest, RefusalsForWhatWeAreEndThemForGood) {
  scripted_.push_back(refusal("403 Forbidden", "no access"));
  expect_all(*begin(all()));
  expect_all(*begin(all()));
  EXPECT_THAT(sent_, SizeIs(1));
  EXPECT_THAT(warnings_->take(), ElementsAre(HasSubstr("not allowed")));
}

TEST_F(BatchGetFetcherTest, FailuresPauseThemEachTimeForLonger) {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::seconds pause(5);
  EXPECT_FALSE(record_.is_paused(now));
  record_.failed(now, pause);
  EXPECT_TRUE(record_.is_paused(now + std::chrono::milliseconds(4'999)));
  EXPECT_FALSE(record_.is_paused(now + pause));
  record_.failed(now, pause);
  EXPECT_TRUE(record_.is_paused(now + std::chrono::milliseconds(9'999)));
  for (int i = 0; i < 50; ++i) record_.failed(now, pause);
  EXPECT_TRUE(record_.is_paused(now + 63 * pause));
  EXPECT_FALSE(record_.is_paused(now + 64 * pause));
  record_.worked();
  record_.failed(now, pause);
  EXPECT_FALSE(record_.is_paused(now + pause));
}

TEST_F(BatchGetFetcherTest, WhatCannotBeProvenOrNamedIsReadAlone) {
  std::vector<ReadTarget> targets = all();
  targets[1].size_bytes = kUnknownSize;
  targets[2].checksum = {};                                 // but a generation
  targets[3].checksum = sum_of(ChecksumKind::kSha256, {});  // which takes long
  targets[4].range = ByteRange{0, 10};                      // of a generation
  targets[5].range = ByteRange{600, 700};                   // beyond its end
  targets[6].range = ByteRange{3, 3};                       // empty
  targets[7].generation = targets[8].generation = targets[9].generation = "";
  targets[7].range = ByteRange{1, 5000};  // limited to the object
  targets[8].checksum = {};
  targets[9].range = ByteRange{10, 20};
  std::string memory(3, ' ');
  targets[10].into = std::as_writable_bytes(std::span(memory));  // too small
  targets[10].has_into = true;
  targets[11].name = "../o11";
  const std::shared_ptr<ReadBatch> batch = begin(targets);
  EXPECT_THAT(store_->names, ElementsAre("o1", "o2", "o3", "o4", "o5", "o6", "o10", "../o11"));
  EXPECT_EQ(outcome(*batch, 7), store_->objects["o7"].substr(1));
  EXPECT_EQ(outcome(*batch, 8), store_->objects["o8"]);
  EXPECT_EQ(outcome(*batch, 9), store_->objects["o9"].substr(10, 10));
  EXPECT_THAT(store_->unverified, ElementsAre("o8"));
  ASSERT_THAT(sent_, SizeIs(1));
  EXPECT_THAT(sent_[0].get->slots, SizeIs(12));
}

TEST_F(BatchGetFetcherTest, DigestsThatMustBeComparedAreComparedByTheStore) {
  options_.verify = Verify::kAll;
  std::vector<ReadTarget> targets = all();
  for (ReadTarget& each : targets) each.generation = "";
  targets[1].checksum = sum_of(ChecksumKind::kMd5, bytes_of(store_->objects["o1"]));
  begin(targets);
  EXPECT_THAT(store_->names, ElementsAre("o1"));
}

TEST_F(BatchGetFetcherTest, SumsOfGenerationsAreComparedEvenIfNothingIsToBeVerified) {
  options_.verify = Verify::kNone;
  scripted_.push_back({.body = tar_file("o1", std::string(100, 'x')) + tar_end()});
  const std::shared_ptr<ReadBatch> batch = begin({target("o1"), target("o2")});
  EXPECT_EQ(outcome(*batch, 0), store_->objects["o1"]);
  EXPECT_THAT(store_->names, ElementsAre("o1", "o2"));
}

TEST_F(BatchGetFetcherTest, ACancelledBatchEndsWhenTheRequestHas) {
  answers_at_once_ = false;
  const std::shared_ptr<ReadBatch> batch = begin(all());
  batch->cancel();
  EXPECT_EQ(cancels_, 1);
  EXPECT_FALSE(batch->done());  // its memory may still be written to
  sent_[0].pending->complete(fail(Code::kCancelled, "it was cancelled"));
  ASSERT_TRUE(batch->done());
  for (size_t i = 0; i < batch->size(); ++i) EXPECT_EQ(outcome(*batch, i), "cancelled");
  EXPECT_THAT(store_->names, IsEmpty());
}

TEST_F(BatchGetFetcherTest, GroupsThatWaitAreCancelledAtOnce) {
  answers_at_once_ = false;
  options_.get_batch.max_objects = 10;
  const std::shared_ptr<ReadBatch> batch = begin(all());
  batch->cancel();
  sent_[0].pending->complete(fail(Code::kCancelled, "it was cancelled"));
  EXPECT_TRUE(batch->done());
  EXPECT_THAT(sent_, SizeIs(1));
}

TEST_F(BatchGetFetcherTest, StopEndsAll) {
  answers_at_once_ = false;
  options_.get_batch.max_objects = 10;
  const std::shared_ptr<ReadBatch> batch = begin(all());
  reads().stop();
  EXPECT_EQ(cancels_, 1);
  const auto now = std::chrono::steady_clock::now();
  EXPECT_FALSE(reads().wait_retired(now, MayBlock::on_this_thread()));
  sent_[0].pending->complete(fail(Code::kCancelled, "the engine was stopped"));
  EXPECT_TRUE(reads().wait_retired(now, MayBlock::on_this_thread()));
  EXPECT_TRUE(batch->done());
  const std::shared_ptr<ReadBatch> later = begin(all());
  EXPECT_EQ(outcome(*later, 3), "cancelled");
}

TEST_F(BatchGetFetcherTest, GroupsWaitForMemoryUnlessSomebodyWaitsForThem) {
  record_.taken.note(Learned::Treatment::kTaken, std::chrono::steady_clock::now());
  answers_at_once_ = false;
  std::optional<Block> held = pool_->allocate(pool_->budget_bytes() - 10'000);
  const std::shared_ptr<ReadBatch> batch = begin(all());
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_EQ(pool_->reserved_bytes(), 0u);
  batch->want();
  ASSERT_THAT(sent_, SizeIs(1));
  const std::shared_ptr<ReadBatch> ahead = begin(all());
  EXPECT_THAT(sent_, SizeIs(1));
  held.reset();
  reads().pump();
  ASSERT_THAT(sent_, SizeIs(2));
  answer(0);
  answer(1);
  expect_all(*batch);
  expect_all(*ahead);
}

TEST_F(BatchGetFetcherTest, GroupsAreBoundedBySizeAndNumber) {
  record_.taken.note(Learned::Treatment::kTaken, std::chrono::steady_clock::now());
  options_.get_batch.max_size_bytes = 5'000;
  options_.get_batch.max_objects = 6;
  expect_all(*begin(all()));
  for (const Sent& sent : sent_) {
    uint64_t size_bytes = 0;
    for (const BatchGet::Slot& each : sent.get->slots) {
      size_bytes += sent.get->batch->slot(each.index).range.size_bytes();
    }
    EXPECT_LE(size_bytes, 5'000u);
    EXPECT_THAT(sent.get->slots, SizeIs(::testing::Le(6u)));
  }
  EXPECT_THAT(sent_, SizeIs(5));
  EXPECT_THAT(store_->names, IsEmpty());
}

TEST_F(BatchGetFetcherTest, MeasurementsChooseBetweenTheWays) {
  options_.get_batch.mode = GetBatchMode::kAuto;
  expect_all(*begin(all()));
  EXPECT_THAT(sent_, SizeIs(1));
  EXPECT_THAT(store_->names, IsEmpty());
  expect_all(*begin(all()));
  EXPECT_THAT(sent_, SizeIs(1));
  EXPECT_THAT(store_->names, SizeIs(20));
}

TEST_F(BatchGetFetcherTest, DuringATrialOtherBatchesWaitAndMayBeCancelled) {
  options_.get_batch.mode = GetBatchMode::kAuto;
  record_.taken.note(Learned::Treatment::kTaken, std::chrono::steady_clock::now());
  answers_at_once_ = false;
  const std::vector<std::shared_ptr<ReadBatch>> batches = begin_many(8);
  // Four batches of 100 objects make a trial; no more begin.
  EXPECT_THAT(sent_, SizeIs(4));
  EXPECT_THAT(store_->names, IsEmpty());
  for (const std::shared_ptr<ReadBatch>& batch : batches) EXPECT_FALSE(batch->done());
  batches[6]->cancel();
  EXPECT_TRUE(batches[6]->done());
  EXPECT_EQ(outcome(*batches[6], 3), "cancelled");
  for (size_t i = 0; i < sent_.size(); ++i) answer(i);
  for (size_t i = 0; i < batches.size(); ++i) {
    ASSERT_TRUE(batches[i]->done()) << i;
    if (i != 6) {
      EXPECT_EQ(outcome(*batches[i], 3), store_->objects["o3"]);
    }
  }
}

TEST_F(BatchGetFetcherTest, StopEndsBatchesThatWaitForATrial) {
  options_.get_batch.mode = GetBatchMode::kAuto;
  record_.taken.note(Learned::Treatment::kTaken, std::chrono::steady_clock::now());
  answers_at_once_ = false;
  const std::vector<std::shared_ptr<ReadBatch>> batches = begin_many(6);
  reads().stop();
  EXPECT_TRUE(batches[5]->done());
  for (const Sent& sent : sent_) sent.pending->complete(fail(Code::kCancelled, "stopped"));
  for (const std::shared_ptr<ReadBatch>& batch : batches) EXPECT_TRUE(batch->done());
}

// Batches end on four threads while eight others choose the way of the next ones: none of them may
// be forgotten, though nobody waits for any.
TEST_F(BatchGetFetcherTest, NoBatchIsForgottenWhenOthersEndWhileItsWayIsChosen) {
  constexpr int kCallers = 8, kBatches = 500, kAhead = 6;
  options_.get_batch.mode = GetBatchMode::kAuto;
  record_.taken.note(Learned::Treatment::kTaken, std::chrono::steady_clock::now());
  const std::vector<ReadTarget> targets = all();
  reads();
  std::atomic<int> sent_count = 0, done_count = 0;
  {
    ThreadPool threads(4);
    post_ = [&](ThreadPool::Job job) { ASSERT_TRUE(threads.post(std::move(job))); };
    store_->post = post_;
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < kCallers; ++caller) {
      callers.emplace_back([&] {
        std::counting_semaphore<> ahead(kAhead);
        for (int i = 0; i < kBatches; ++i) {
          // A long time, after which a batch that is forgotten ends the test, and not the suite.
          if (!ahead.try_acquire_for(std::chrono::minutes(1))) return;
          auto batch = ReadBatch::create(targets.size());
          for (const ReadTarget& each : targets) batch->add(each);
          batch->then([&](ReadBatch&) {
            ++done_count;
            ahead.release();
          });
          ++sent_count;
          if (!reads().read(batch, store_)) store_->read(batch);
        }
        for (int i = 0; i < kAhead; ++i) {
          if (!ahead.try_acquire_for(std::chrono::minutes(1))) return;
        }
      });
    }
    callers.clear();
    threads.stop();
    store_->post = post_ = nullptr;
  }
  EXPECT_EQ(sent_count, kCallers * kBatches);
  EXPECT_EQ(done_count, sent_count);
  EXPECT_TRUE(reads().wait_retired({}, MayBlock::on_this_thread()));
}

TEST_F(BatchGetFetcherTest, AServiceThatNamesThingsOtherwiseIsNotAskedAllTheTime) {
  scripted_.push_back({.body = tar_file("bucket/o0", "") + tar_end()});
  expect_all(*begin(all()));
  EXPECT_TRUE(record_.is_paused(std::chrono::steady_clock::now()));
}

}  // namespace
}  // namespace headrace
