// Reads that are late and sent again, over real connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::SizeIs;

// One I/O thread, so that it is known how many answers tell what is late.
class HedgedReadTest : public StoreTest {
 protected:
  // Nothing is hedged on a busy machine but what the server keeps back: no counts are asserted
  // here of requests that are only slow.
  void SetUp() override {
    options_.hedge = true;
    options_.max_gap_bytes.reset();  // each target by a request of its own
    options_.timeout.first_byte = seconds(120);
    options_.timeout.total = seconds(120);
    store_ = open_in(engine_, options_);
  }
  // Enough answers to know what is late, and to pay for some hedges.
  void learn(const ObjectInfo& object, int reads = 400) { learn_by(listed(object), reads); }
  void learn_by(const ReadTarget& target, int reads) {
    for (int done = 0; done < reads; done += 50) {
      const std::vector<ReadTarget> targets(50, target);
      const std::shared_ptr<ReadBatch> batch = batch_of(targets);
      store_->read(batch);
      wait_for(*batch);
    }
  }
  std::vector<FaultServer::Entry> requests_of(std::string_view name) {
    std::vector<FaultServer::Entry> found;
    for (FaultServer::Entry& entry : server_.log("media")) {
      if (entry.target.contains(cat("/o/", name, "?"))) found.push_back(std::move(entry));
    }
    return found;
  }

  // Waits for the batch, and reads `usual` meanwhile: where answers that only were slow have used
  // up what hedges cost, these answers earn it again.
  void wait_while_learning(ReadBatch& batch, const ObjectInfo& usual) {
    learn_until(usual, [&] { return batch.done(); });
    wait_for(batch);
  }
  void learn_until(const ObjectInfo& usual, const std::function<bool()>& condition) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!condition() && std::chrono::steady_clock::now() < until) learn(usual, 50);
    EXPECT_TRUE(condition());
  }
  Result<std::string> read_while_learning(const ObjectInfo& info, const ObjectInfo& usual) {
    const ReadTarget target = listed(info);
    const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
    store_->read(batch);
    wait_while_learning(*batch, usual);
    return outcome(*batch, 0);
  }

  static void wait_until(const std::function<bool()>& condition) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!condition() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    EXPECT_TRUE(condition());
  }

  Engine engine_{{.io_threads = 1, .memory_budget_bytes = 256 * kMiB}};
  std::shared_ptr<ObjectStore> store_;
};

TEST_F(HedgedReadTest, ARequestThatIsNeverAnsweredIsAnsweredByAnother) {
  const std::string bytes = some_bytes(100'000);
  const ObjectInfo usual = server_.put("usual", some_bytes(100'000, 2));
  learn(usual);
  const ObjectInfo info = server_.put("o", bytes);
  server_.faults(R"([{"match":{"target_contains":"/o/o?"},"count":1,"action":"stall_head"}])");
  std::string into(bytes.size(), '?');
  ReadTarget target = listed(info);
  target.into = std::as_writable_bytes(std::span(into));
  target.has_into = true;
  const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
  store_->read(batch);
  wait_while_learning(*batch, usual);
  ASSERT_FALSE(batch->slot(0).error) << batch->slot(0).error->to_string();
  EXPECT_TRUE(into == bytes);
  EXPECT_GE(engine_.metrics().hedges_won_total, 1u);
  EXPECT_EQ(engine_.metrics().retries_total, 0u);
}

TEST_F(HedgedReadTest, AnAnswerThatComesTooLateIsReadToItsEndAndItsConnectionServesAgain) {
  constexpr uint64_t kSize = 100'000;
  const ObjectInfo usual = server_.put("usual", some_bytes(kSize, 2));
  const ObjectInfo info = server_.put("o", some_bytes(kSize));
  learn(usual);
  // On a busy machine the hedge may be as late as the first, or not be paid for: once it wins.
  bool won = false;
  for (int round = 0; round < 10 && !won; ++round) {
    server_.faults(
        R"([{"match":{"target_contains":"/o/o?"},"count":1,"action":{"delay_ms":2000}}])");
    const EngineMetrics before = engine_.metrics();
    EXPECT_THAT(read(*store_, listed(info)), Gives(some_bytes(kSize)));
    const EngineMetrics read = engine_.metrics();
    EXPECT_EQ(read.bytes_read_total - before.bytes_read_total, kSize) << "but for what is dropped";
    won = read.hedges_won_total > before.hedges_won_total;
    if (won) {
      wait_until([&] {
        const uint64_t dropped = engine_.metrics().hedge_bytes_dropped_total;
        return dropped >= before.hedge_bytes_dropped_total + kSize;
      });
      const EngineMetrics after = engine_.metrics();
      EXPECT_EQ(after.hedges_cut_total, before.hedges_cut_total);
      EXPECT_EQ(after.connections_opened_total - after.connections_open,
                before.connections_opened_total - before.connections_open)
          << "none was closed";
    } else {
      learn(usual);
    }
  }
  EXPECT_TRUE(won);
}

TEST_F(HedgedReadTest, ALargeAnswerThatComesTooLateIsCut) {
  const ObjectInfo usual = server_.put("usual", some_bytes(2'000'000, 2));
  learn(usual, 200);
  const ObjectInfo info = server_.put("o", some_bytes(2'000'000));
  server_.faults(R"([{"match":{"target_contains":"/o/o?"},"count":1,"action":"stall_head"}])");
  EXPECT_THAT(read_while_learning(info, usual), Gives(some_bytes(2'000'000)));
  EXPECT_GE(engine_.metrics().hedges_cut_total, 1u);
  EXPECT_LE(engine_.metrics().hedges_cut_total, engine_.metrics().hedges_total);
}

TEST_F(HedgedReadTest, BothRequestsAskForTheSameGeneration) {
  const ObjectInfo usual = server_.put("usual", some_bytes(1000));
  learn(usual);
  const ObjectInfo info = server_.put("o", some_bytes(1000));
  server_.faults(R"([{"match":{"target_contains":"/o/o?"},"count":1,"action":"stall_head"}])");
  EXPECT_THAT(read_while_learning(info, usual), Gives(some_bytes(1000)));
  const std::vector<FaultServer::Entry> sent = requests_of("o");
  ASSERT_GE(sent.size(), 2u);
  for (const FaultServer::Entry& each : sent) {
    EXPECT_EQ(each.target, sent[0].target);
    EXPECT_THAT(each.target, ::testing::HasSubstr(info.generation));
  }
  EXPECT_NE(sent[0].connection, sent[1].connection);
}

// The server gives a part of the body and then nothing more, while it serves others.
TEST_F(HedgedReadTest, TheRestOfABodyThatIsFarSlowerThanOthersComesOverAnotherConnection) {
  constexpr size_t kSize = 4'000'000, kFirstPart = 1'000'000;
  const ObjectInfo usual = server_.put("usual", some_bytes(300'000, 2));
  learn(usual);
  const std::string bytes = some_bytes(kSize);
  // On a busy machine the head may be late, and the answer to a hedge, which does not stall, be
  // taken instead: once no hedge wins.
  bool was_replaced = false;
  for (int round = 0; round < 10 && !was_replaced; ++round) {
    const std::string name = cat("o", round);
    const ObjectInfo info = server_.put(name, bytes);
    server_.faults(cat(R"([{"match":{"target_contains":"/o/)", name,
                       R"(?"},"count":1,"action":{"stall_after_bytes":1000000}}])"));
    std::string into(kSize, '?');
    ReadTarget target = listed(info);
    target.into = std::as_writable_bytes(std::span(into));
    target.has_into = true;
    const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
    const EngineMetrics before = engine_.metrics();
    store_->read(batch);
    wait_while_learning(*batch, usual);
    ASSERT_FALSE(batch->slot(0).error) << batch->slot(0).error->to_string();
    EXPECT_TRUE(into == bytes);
    EXPECT_EQ(engine_.metrics().retries_total, 0u) << "it has not failed";
    const std::vector<FaultServer::Entry> sent = requests_of(name);
    const auto rest = std::ranges::find_if(sent, [&](const FaultServer::Entry& each) {
      const auto range = each.headers.find("range");
      return range != each.headers.end() &&
             range->second == cat("bytes=", kFirstPart, "-", kSize - 1);
    });
    was_replaced = rest != sent.end() && sent.size() == 2;  // the rest alone: nothing comes twice
    if (!was_replaced) {
      const EngineMetrics after = engine_.metrics();
      EXPECT_GT(after.hedges_total + after.bodies_replaced_total,
                before.hedges_total + before.bodies_replaced_total);
      continue;
    }
    EXPECT_GE(engine_.metrics().bodies_replaced_total, 1u);
    EXPECT_NE(rest->connection, sent[0].connection);
    EXPECT_THAT(rest->target, ::testing::HasSubstr(info.generation));
  }
  EXPECT_TRUE(was_replaced);
}

// An object that changes all the time, of which nothing is known: some of its answers are late, so
// that two requests find different generations.
TEST_F(HedgedReadTest, AnswersOfTwoGenerationsNeverMix) {
  constexpr size_t kSize = 300'000;
  const auto version = [](char letter) { return std::string(kSize, letter); };
  server_.put("o", version('a'));
  learn_by(named("o"), 400);
  // Rarer than one in twenty, or it would be what is usual.
  server_.post("latency", R"({"first_byte_ms":0,"tail_fraction":0.03,"tail_ms":400,"seed":1})");
  const std::vector<ReadTarget> unknown(64, named("o"));
  for (int round = 0; round < 8 || (round < 60 && engine_.metrics().hedges_total == 0); ++round) {
    std::vector<std::string> buffers(64, std::string(kSize, '?'));
    std::vector<ReadTarget> targets = unknown;
    for (size_t i = 0; i < targets.size(); ++i) {
      targets[i].into = std::as_writable_bytes(std::span(buffers[i]));
      targets[i].has_into = true;
    }
    const std::shared_ptr<ReadBatch> batch = batch_of(targets);
    store_->read(batch);
    server_.put("o", version(static_cast<char>('b' + round % 20)));
    wait_for(*batch);
    for (size_t i = 0; i < targets.size(); ++i) {
      if (batch->slot(i).error) continue;  // it has changed between two requests
      // Without a loop of the test's own, which sanitizers make slow.
      const char letter = buffers[i].front();
      EXPECT_EQ(buffers[i].find_first_not_of(letter), std::string::npos)
          << "round " << round << ", target " << i;
      EXPECT_NE(letter, '?');
    }
  }
  EXPECT_GE(engine_.metrics().hedges_total, 1u);
}

TEST_F(HedgedReadTest, WhenEveryAnswerIsSlowHedgesStayWithinThreePercent) {
  const ObjectInfo usual = server_.put("usual", some_bytes(1000));
  learn(usual);
  server_.post("latency", R"({"first_byte_ms":60,"tail_fraction":0,"tail_ms":0,"seed":1})");
  learn(usual, 600);
  const EngineMetrics metrics = engine_.metrics();
  EXPECT_LE(metrics.hedges_total, (metrics.requests_total - metrics.hedges_total) * 3 / 100);
}

TEST_F(HedgedReadTest, APageOfAListingIsHedged) {
  for (int i = 0; i < 5; ++i) server_.put(cat("o", i), "x");
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(take(store_->list({})));
  server_.faults(R"([{"match":{"kind":"list"},"count":1,"action":"stall_head"}])");
  const auto pending = store_->list({});
  // Other pages meanwhile, as in wait_while_learning().
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!pending->wait_until(std::chrono::steady_clock::now(), MayBlock::on_this_thread())) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    ASSERT_TRUE(take(store_->list({})));
  }
  const Result<ColumnPage> page = take(pending);
  ASSERT_TRUE(page) << page.error().to_string();
  EXPECT_THAT(page->objects(), SizeIs(5));
  EXPECT_GE(engine_.metrics().hedges_won_total, 1u);
}

TEST_F(HedgedReadTest, AWriteIsNotHedged) {
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(take(store_->write({.name = "w"}, bytes_of("x"))));
  }
  server_.faults(R"([{"match":{"kind":"upload"},"count":1,"action":{"delay_ms":300}}])");
  ASSERT_TRUE(take(store_->write({.name = "w"}, bytes_of("y"))));
  EXPECT_EQ(engine_.metrics().hedges_total, 0u);
}

TEST_F(HedgedReadTest, ACancelledReadWithAHedgeReturnsItsMemory) {
  const ObjectInfo usual = server_.put("usual", some_bytes(1000));
  learn(usual);
  const ObjectInfo info = server_.put("o", some_bytes(1000));
  server_.faults(R"([{"match":{"target_contains":"/o/o?"},"action":"stall_head"}])");
  const std::vector<ReadTarget> targets{listed(info)};
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  store_->read(batch);
  learn_until(usual, [&] { return requests_of("o").size() >= 2; });
  EXPECT_GE(engine_.metrics().hedges_total, 1u);
  batch->cancel();
  wait_for(*batch);
  EXPECT_EQ(batch->slot(0).error->code(), Code::kCancelled);
  wait_until_all_is_given_back(engine_.pool());
}

TEST_F(HedgedReadTest, AnEngineThatStopsAmidAHedgeEndsAtOnce) {
  const ObjectInfo usual = server_.put("usual", some_bytes(1000));
  learn(usual);
  const ObjectInfo info = server_.put("o", some_bytes(1000));
  server_.faults(R"([{"match":{"target_contains":"/o/o?"},"count":1,"action":"stall_head"}])");
  EXPECT_THAT(read_while_learning(info, usual), Gives(some_bytes(1000)));
  engine_.stop();  // while the first answer is still waited for, so that it can be dropped
  EXPECT_EQ(engine_.metrics().connections_open, 0u);
}

}  // namespace
}  // namespace headrace
