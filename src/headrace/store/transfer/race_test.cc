// Requests that are late and sent again: no socket, no server, no thread, and a clock that the test
// moves.
#include "headrace/store/transfer/race.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "headrace/http/answer_test_support.h"
#include "headrace/store/gcs/gcs_protocol.h"
#include "headrace/store/transfer/lane_test_support.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What becomes of one request, in the order in which they are sent.
struct Answer {
  milliseconds head_after{30};
  std::string body = "";
  std::string status = "200 OK";
  milliseconds body_after{0};      // after the head
  size_t breaks_after = SIZE_MAX;  // so many bytes of the body
  bool fails = false;              // in place of a head
  bool is_unread = false;          // it has come, but the thread has not got to it
};

struct Script {
  std::deque<Answer> answers;
  std::vector<int> sent_over;  // of each request, its connection
  int opened = 0, closed = 0;
  bool refuses_connections = false;
  bool lacks_memory = false;  // for a connection
  milliseconds opens_after{0};
  std::map<int, int> address_of;  // of connections; 0 where not told
  std::vector<int> avoided;       // addresses
};

class TimedConnection final : public Transport {
 public:
  TimedConnection(IoThread& thread, Script& script)
      : thread_(thread),
        script_(script),
        number_(++script.opened),
        timer_(std::make_shared<Timer>(thread.context())) {}
  ~TimedConnection() override { ++script_.closed; }

  awaitable<Result<void>> open(Activity&, Resolver&) override {
    if (script_.refuses_connections) co_return fail(Code::kUnavailable, "refused");
    const auto open_at = thread_.now() + script_.opens_after;
    waiting_ = true;  // as while a proxy opens a tunnel
    while (thread_.now() < open_at && !aborted_) co_await wait(open_at);
    waiting_ = false;
    if (aborted_) co_return std::unexpected(*aborted_);
    reusable_ = true;
    co_return Result<void>();
  }

  awaitable<Result<void>> exchange(const HttpRequest& request, ResponseSink& sink) override {
    request_ = &request;
    if (!due_) {
      script_.sent_over.push_back(number_);
      EXPECT_FALSE(script_.answers.empty()) << "a request that nobody expected";
      answer_ = script_.answers.empty() ? Answer() : script_.answers.front();
      if (!script_.answers.empty()) script_.answers.pop_front();
      sent_at_ = thread_.now();
      due_ = sent_at_ + answer_.head_after;
    }
    reusable_ = false;
    waiting_ = true;
    while (thread_.now() < *due_ && !aborted_ && !let_go_) co_await wait(*due_);
    waiting_ = false;
    if (aborted_) co_return std::unexpected(*aborted_);
    if (std::exchange(let_go_, false)) co_return fail(Code::kCancelled, "let go");
    due_.reset();
    if (answer_.fails) co_return fail(Code::kUnavailable, "reset");
    last_used_ = thread_.now();
    first_byte_latency_ = last_used_ - sent_at_;
    Result<void> head = give_head(sink, answer_.status, "", answer_.body.size());
    if (!head) co_return head;
    const auto body_at = thread_.now() + answer_.body_after;
    while (thread_.now() < body_at && !aborted_) co_await wait(body_at);
    if (aborted_) co_return std::unexpected(*aborted_);
    size_t sent = 0;
    while (sent < answer_.body.size()) {
      if (sent >= answer_.breaks_after) co_return fail(Code::kUnavailable, "the body broke off");
      const Result<std::span<std::byte>> space = sink.space(answer_.body.size() - sent);
      if (!space) co_return std::unexpected(space.error());
      const size_t count =
          std::min({space->size(), answer_.body.size() - sent, answer_.breaks_after - sent});
      std::memcpy(space->data(), answer_.body.data() + sent, count);
      if (Result<void> taken = sink.on_bytes(count); !taken) co_return taken;
      sent += count;
    }
    reusable_ = true;
    co_return Result<void>();
  }

  void abort(const Error& why) override {
    if (!aborted_) aborted_ = why;
    reusable_ = false;
    timer_->cancel();
  }
  void check_stall(TimePoint) override {}
  bool waits_for_answer() const override { return waiting_; }
  bool has_unread() override { return answer_.is_unread; }
  void let_go() override {
    let_go_ = true;
    timer_->cancel();
  }
  bool still_silent(bool) override { return true; }
  void avoid(const Transport& other) override {
    script_.avoided.push_back(dynamic_cast<const TimedConnection&>(other).address());
  }
  bool shares_address(const Transport& other) const override {
    return dynamic_cast<const TimedConnection&>(other).address() == address();
  }

 private:
  int address() const { return script_.address_of[number_]; }
  awaitable<void> wait(TimePoint until) {
    thread_.clock().set(timer_, until);
    co_await timer_->async_wait(kAwait);
  }

  IoThread& thread_;
  Script& script_;
  const int number_;
  const std::shared_ptr<Timer> timer_;
  std::optional<TimePoint> due_;
  Answer answer_;
  bool waiting_ = false, let_go_ = false;
  std::optional<Error> aborted_;
};

// A read of `expected.bytes`, into memory in which every byte is written once.
class ReadsText final : public Attempt {
 public:
  explicit ReadsText(const Protocol& protocol) : Attempt(protocol) {}
  void build(HttpRequest& request) override {
    request.target = "/o";
    request.object = "o";
    ++built;
    text.clear();
  }
  std::string url() const override { return "gs://bucket/o"; }
  std::optional<ExpectedAnswer> hedgeable() const override {
    return may_be_hedged ? std::optional(expected) : std::nullopt;
  }
  ExpectedAnswer expected{.kind = AnswerKind::kUpTo64KiB, .bytes = 1};
  bool may_be_hedged = true;
  std::string text;
  int built = 0, heads = 0;

 private:
  Result<void> begin_body(const ResponseHead&) override {
    ++heads;
    EXPECT_EQ(text, "") << "two answers are mixed";
    return {};
  }
  Result<std::span<std::byte>> body_space(uint64_t) override {
    return std::as_writable_bytes(std::span(piece_));
  }
  Result<void> took_body(size_t count) override {
    text.append(piece_.data(), count);
    return {};
  }
  Result<Verdict> finish() override { return Verdict::kDone; }
  std::array<char, 3> piece_{};
};

class RaceTest : public LaneTest {
 protected:
  RaceTest()
      : LaneTest(/*permits=*/64, /*reads=*/true,
                 [this](IoThread& thread, const std::shared_ptr<const Route>&) {
                   if (script_.lacks_memory) throw std::bad_alloc();
                   return std::make_unique<TimedConnection>(thread, script_);
                 }) {
    learn();
  }
  void TearDown() override {
    operation_.reset();
    permits_.clear();
    permit_.release();
    pass(seconds(20));  // the losers end
    EXPECT_EQ(lane().hedges().running(), 0u);
    LaneTest::TearDown();
  }

  // A host that answers within 30 ms, and enough requests to pay for hedges.
  void learn(int requests = 500) {
    for (int i = 0; i < requests; ++i) {
      lane().hedges().took(AnswerKind::kUpTo64KiB, milliseconds(30), clock_.now());
      lane().hedges().took(AnswerKind::kUpTo16MiB, milliseconds(30), clock_.now());
      lane().hedges().earn(1 * kMiB);
    }
  }
  static const Protocol& protocol() {
    static const GcsProtocol protocol{"bucket", ""};
    return protocol;
  }

  // A millisecond at a time, so that what is due happens when it is.
  void pass(milliseconds time) {
    for (milliseconds passed{0}; passed < time; passed += milliseconds(1)) {
      clock_.advance(milliseconds(1));
      poll();
    }
  }
  void start(std::deque<Answer> answers) {
    script_.answers = std::move(answers);
    result_.reset();
    operation_.reset();
    store_.emplace(StoreContext{.retry = retry_,
                                .timeout = timeout_,
                                .credentials = nullptr,
                                .signer = nullptr,
                                .elsewhere = LanesElsewhere({}),
                                .pace = pace_,
                                .hedge = hedge_,
                                .gate = gate_});
    began_ = clock_.now();
    begin(attempt_);
  }
  // How long it takes.
  milliseconds finish() {
    for (int i = 0; i < 10'000 && !result_; ++i) pass(milliseconds(1));
    if (!result_) {
      ADD_FAILURE() << "it does not end";
      thread_->stop_all();  // or it would outlive the operation
      poll();
    }
    operation_.reset();
    return std::chrono::duration_cast<milliseconds>(clock_.now() - began_);
  }
  milliseconds run(std::deque<Answer> answers) {
    start(std::move(answers));
    return finish();
  }
  // Other requests, which take permits as soon as they can, and keep them.
  void take_permits(int count) {
    for (int i = 0; i < count; ++i) {
      RequestPermit& permit = permits_.emplace_back(lane(), this);
      asio::co_spawn(
          thread_->context(),
          [](RaceTest& test, RequestPermit& permit) -> awaitable<void> {
            const Result<void> taken = co_await permit.take(test.pace_);
            EXPECT_TRUE(taken);
            ++test.permits_taken_;
          }(*this, permit),
          asio::detached);
    }
    poll();
  }

  Script script_;
  RetryOptions retry_{
      .max_attempts = 3, .initial_backoff = milliseconds(1), .max_backoff = milliseconds(2)};
  TimeoutOptions timeout_{.total = seconds(60)};
  bool hedge_ = true;
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  ReadsText attempt_{protocol()};
  std::list<RequestPermit> permits_;
  int permits_taken_ = 0;
  Clock::TimePoint began_{};
};

#define EXPECT_GOOD(result) EXPECT_TRUE(*(result)) << (result)->error().to_string()

// ── Who wins ─────────────────────────────────────────────────────────────────────────────────

TEST_F(RaceTest, ARequestThatIsLateIsSentAgainAndTheFirstAnswerCounts) {
  const milliseconds took = run({{.head_after = seconds(1), .body = "first"}, {.body = "second"}});
  EXPECT_GOOD(result_);
  EXPECT_EQ(attempt_.text, "second");
  EXPECT_EQ(attempt_.heads, 1);
  EXPECT_EQ(attempt_.built, 1) << "the same request, signed once";
  EXPECT_THAT(script_.sent_over, ElementsAre(1, 2)) << "each over a connection of its own";
  EXPECT_GE(took, milliseconds(80)) << "late 20 ms after the median";
  EXPECT_LE(took, milliseconds(110));
  EXPECT_EQ(metrics().requests_total, 2u);
  EXPECT_EQ(metrics().hedges_total, 1u);
  EXPECT_EQ(metrics().hedges_won_total, 1u);
  EXPECT_EQ(metrics().retries_total, 0u);
}

TEST_F(RaceTest, ASmallAnswerThatIsNotNeededIsDroppedAndItsConnectionUsedAgain) {
  run({{.head_after = seconds(1), .body = "first"}, {.body = "second"}});
  EXPECT_EQ(script_.closed, 0);
  EXPECT_EQ(lane().hedges().running(), 1u) << "what is drained counts";
  pass(seconds(1));
  EXPECT_EQ(metrics().hedge_bytes_dropped_total, 5u);
  EXPECT_EQ(lane().hedges().running(), 0u);
  run({{.head_after = seconds(1), .body = "third"}, {.body = "fourth"}});
  EXPECT_EQ(attempt_.text, "fourth");
  EXPECT_EQ(script_.opened, 2) << "no connection more";
  EXPECT_EQ(script_.closed, 0);
}

TEST_F(RaceTest, TheFirstAttemptMayStillWin) {
  run({{.head_after = milliseconds(75), .body = "first"}, {.body = "second"}});
  EXPECT_EQ(attempt_.text, "first");
  pass(milliseconds(100));
  EXPECT_EQ(metrics().hedges_won_total, 0u);
  EXPECT_EQ(metrics().hedge_bytes_dropped_total, 6u);
  EXPECT_EQ(script_.opened, 2);
  EXPECT_EQ(script_.closed, 0);
}

TEST_F(RaceTest, AnAnswerThatComesWhileTheBodyOfAnotherArrivesTouchesNothing) {
  run({{.head_after = milliseconds(100), .body = "wrong", .body_after = milliseconds(5)},
       {.head_after = milliseconds(30), .body = "right", .body_after = milliseconds(50)}});
  EXPECT_EQ(attempt_.text, "right");
  EXPECT_EQ(attempt_.heads, 1);
}

TEST_F(RaceTest, ALargeAnswerThatIsNotNeededIsCut) {
  attempt_.expected = {.kind = AnswerKind::kUpTo16MiB, .bytes = 8 * kMiB};
  run({{.head_after = seconds(1), .body = "first"}, {.body = "second"}});
  EXPECT_EQ(attempt_.text, "second");
  EXPECT_EQ(script_.closed, 1);
  EXPECT_EQ(metrics().hedges_cut_total, 1u);
  EXPECT_EQ(lane().hedges().running(), 0u);

  run({{.head_after = milliseconds(75), .body = "third"}, {.body = "fourth"}});
  EXPECT_EQ(attempt_.text, "third");
  pass(milliseconds(10));
  EXPECT_EQ(script_.closed, 2) << "the hedge's";
  EXPECT_EQ(metrics().hedge_bytes_dropped_total, 0u);
}

TEST_F(RaceTest, AnAnswerThatTurnsOutToBeLargeIsCutAtItsHead) {
  run({{.head_after = seconds(1), .body = std::string(HedgeRules::kMostDrainedBytes + 1, 'x')},
       {.body = "second"}});
  EXPECT_EQ(attempt_.text, "second");
  pass(seconds(1));
  EXPECT_EQ(metrics().hedges_cut_total, 1u);
  EXPECT_EQ(metrics().hedge_bytes_dropped_total, 0u);
}

TEST_F(RaceTest, OneOfJustThatSizeIsReadToItsEnd) {
  run({{.head_after = seconds(1), .body = std::string(HedgeRules::kMostDrainedBytes, 'x')},
       {.body = "second"}});
  EXPECT_EQ(attempt_.text, "second");
  pass(seconds(1));
  EXPECT_EQ(metrics().hedges_cut_total, 0u);
  EXPECT_EQ(metrics().hedge_bytes_dropped_total, HedgeRules::kMostDrainedBytes);
}

TEST_F(RaceTest, AHedgeThatIsLateGetsAThirdAttemptAndNoFourth) {
  const milliseconds took =
      run({{.head_after = seconds(1)}, {.head_after = seconds(1)}, {.body = "third"}});
  EXPECT_EQ(attempt_.text, "third");
  EXPECT_LE(took, milliseconds(190));
  pass(seconds(1));
  EXPECT_EQ(script_.closed, 0);

  const milliseconds took_again = run({{.head_after = milliseconds(900), .body = "a"},
                                       {.head_after = milliseconds(900), .body = "b"},
                                       {.head_after = milliseconds(900), .body = "c"}});
  EXPECT_GE(took_again, milliseconds(900));
  EXPECT_EQ(attempt_.text, "a");
  EXPECT_EQ(metrics().hedges_total, 4u);
}

TEST_F(RaceTest, AnotherAddressIsTriedIfThereIsOne) {
  script_.address_of = {{1, 7}, {2, 8}, {3, 7}};
  // Three idle connections, the newest of which has the address of the first attempt.
  for (int i = 1; i <= 3; ++i) {
    std::unique_ptr<Transport> connection = lane().connections().make();
    asio::co_spawn(
        thread_->context(),
        [](Transport& transport, Resolver& resolver, HostLane& lane) -> awaitable<void> {
          RequestPermit activity(lane, nullptr);
          EXPECT_TRUE(co_await transport.open(activity, resolver));
        }(*connection, resolver_, lane()),
        asio::detached);
    poll();
    lane().connections().give_back(std::move(connection));
  }
  run({{.head_after = seconds(1)}, {.body = "second"}});
  EXPECT_THAT(script_.sent_over, ElementsAre(3, 2));
  pass(seconds(1));
  EXPECT_THAT(script_.avoided, ElementsAre()) << "no new connection";
}

TEST_F(RaceTest, ANewConnectionAvoidsTheAddressOfTheFirst) {
  script_.address_of = {{1, 7}};
  run({{.head_after = seconds(1)}, {.body = "second"}});
  EXPECT_THAT(script_.avoided, ElementsAre(7));
}

// ── Failures ─────────────────────────────────────────────────────────────────────────────────

TEST_F(RaceTest, IfTheFirstFailsTheHedgeIsWaitedFor) {
  run({{.head_after = milliseconds(70), .fails = true}, {.body = "second"}});
  EXPECT_GOOD(result_);
  EXPECT_EQ(attempt_.text, "second");
  EXPECT_EQ(metrics().retries_total, 0u);
}

TEST_F(RaceTest, IfTheHedgeFailsTheFirstIsWaitedFor) {
  run({{.head_after = milliseconds(200), .body = "first"},
       {.fails = true},
       {.head_after = milliseconds(500), .body = "third"}});
  EXPECT_EQ(attempt_.text, "first");
  EXPECT_EQ(metrics().retries_total, 0u);
}

TEST_F(RaceTest, IfBothFailTheRequestIsRetried) {
  run({{.head_after = milliseconds(75), .fails = true},
       {.head_after = milliseconds(40), .fails = true},
       {.body = "third"}});
  EXPECT_GOOD(result_);
  EXPECT_EQ(attempt_.text, "third");
  EXPECT_EQ(metrics().retries_total, 1u) << "one attempt has failed, not two";
}

TEST_F(RaceTest, AHedgeThatGetsNoConnectionChangesNothing) {
  start({{.head_after = milliseconds(200), .body = "first"}});
  script_.refuses_connections = true;
  finish();
  EXPECT_GOOD(result_);
  EXPECT_EQ(attempt_.text, "first");
  EXPECT_EQ(metrics().requests_total, 1u);
}

TEST_F(RaceTest, AHedgeForWhichThereIsNoMemoryChangesNothing) {
  start({{.head_after = seconds(5), .body = "first"}, {.body = "second"}});
  script_.lacks_memory = true;
  pass(milliseconds(100));
  EXPECT_EQ(lane().hedges().running(), 0u);
  EXPECT_THAT(script_.sent_over, ElementsAre(1));
  script_.lacks_memory = false;
  finish();
  EXPECT_GOOD(result_);
  EXPECT_EQ(attempt_.text, "second") << "it is tried again when requests are next looked through";
}

TEST_F(RaceTest, ARefusalForNowLosesToAnAnswer) {
  for (const char* const status : {"503 Slow Down", "500 Error", "429 Too Many", "408 Timeout"}) {
    SCOPED_TRACE(status);
    run({{.head_after = milliseconds(75), .body = "why", .status = status}, {.body = "second"}});
    EXPECT_GOOD(result_);
    EXPECT_EQ(attempt_.text, "second");
    EXPECT_EQ(metrics().retries_total, 0u);
    clock_.advance(seconds(31));  // hedges are held after a refusal
    learn();
  }
}

TEST_F(RaceTest, ARefusalForGoodIsAnAnswer) {
  run({{.head_after = seconds(1), .body = "first"}, {.body = "why", .status = "404 Not Found"}});
  EXPECT_EQ(result_->error().code(), Code::kNotFound);
}

TEST_F(RaceTest, TheRefusalOfTheLastOneIsTheOutcome) {
  retry_.max_attempts = 1;
  run({{.head_after = milliseconds(75), .fails = true}, {.body = "why", .status = "500 Error"}});
  EXPECT_EQ(result_->error().http_status(), 500);
}

TEST_F(RaceTest, ABodyOfTheHedgeThatBreaksOffIsRetriedAsEver) {
  run({{.head_after = seconds(1), .body = "first"},
       {.body = "second", .breaks_after = 3},
       {.body = "third"}});
  EXPECT_GOOD(result_);
  EXPECT_EQ(attempt_.text, "third");
  EXPECT_EQ(metrics().retries_total, 1u);
}

// ── What is not hedged ───────────────────────────────────────────────────────────────────────

TEST_F(RaceTest, NothingIsSentTwiceWithoutTheOption) {
  hedge_ = false;
  run({{.head_after = seconds(1), .body = "first"}});
  EXPECT_EQ(attempt_.text, "first");
  EXPECT_EQ(metrics().requests_total, 1u);
}

TEST_F(RaceTest, WhatChangesSomethingIsNeverSentTwice) {
  attempt_.may_be_hedged = false;
  run({{.head_after = seconds(1), .body = "first"}});
  EXPECT_EQ(metrics().requests_total, 1u);
}

TEST_F(RaceTest, NothingIsSentTwiceWhileTheHostThrottles) {
  host_.hold_hedges(clock_.now());
  run({{.head_after = seconds(5), .body = "first"}});
  EXPECT_EQ(metrics().requests_total, 1u);
  clock_.advance(seconds(26));
  run({{.head_after = seconds(1), .body = "first"}, {.body = "second"}});
  EXPECT_EQ(metrics().requests_total, 3u) << "for half a minute";
}

TEST_F(RaceTest, ARefusedHedgeMeansThatTheHostThrottles) {
  run({{.head_after = milliseconds(200), .body = "first"},
       {.body = "why", .status = "429 Too Many Requests"}});
  EXPECT_EQ(attempt_.text, "first");
  run({{.head_after = seconds(1), .body = "again"}});
  EXPECT_EQ(metrics().requests_total, 3u);
}

TEST_F(RaceTest, AThrottledRequestMeansThatTheHostThrottles) {
  run({{.status = "429 Too Many Requests"}, {.head_after = seconds(1), .body = "again"}});
  EXPECT_EQ(attempt_.text, "again");
  EXPECT_EQ(metrics().requests_total, 2u);
}

TEST_F(RaceTest, NothingIsSentTwiceWhileRequestsQueue) {
  for (int i = 0; i < 40; ++i) {
    AdmissionReport report{.completed = 1, .limited = true};
    const milliseconds latency(i < 20 ? 30 : 90);
    report.add(latency, latency);
    host_.admission.report(report, clock_.now() + i * milliseconds(50));
  }
  ASSERT_TRUE(host_.admission.queueing());
  run({{.head_after = seconds(1), .body = "first"}});
  EXPECT_EQ(metrics().requests_total, 1u);
}

// If no answers come, nothing tells that the queue has gone.
TEST_F(RaceTest, WhatIsVeryLateIsSentTwiceThoughRequestsQueuedWhenLastSeen) {
  for (int i = 0; i < 40; ++i) {
    AdmissionReport report{.completed = 1, .limited = true};
    const milliseconds latency(i < 20 ? 30 : 90);
    report.add(latency, latency);
    host_.admission.report(report, clock_.now() + i * milliseconds(50));
  }
  ASSERT_TRUE(host_.admission.queueing());
  const milliseconds took = run({{.head_after = seconds(8), .body = "first"}, {.body = "second"}});
  EXPECT_EQ(attempt_.text, "second");
  EXPECT_GE(took, seconds(1));
  EXPECT_LE(took, milliseconds(1300));
}

TEST_F(RaceTest, NothingIsSentTwiceWhileTheConnectionIsOpened) {
  script_.opens_after = seconds(1);
  run({{.body = "first"}});
  EXPECT_EQ(attempt_.text, "first");
  EXPECT_EQ(script_.opened, 1);
}

TEST_F(RaceTest, AnAnswerThatOnlyTheThreadHasNotGotToIsNotAskedForAgain) {
  run({{.head_after = seconds(1), .body = "first", .is_unread = true}});
  EXPECT_EQ(metrics().requests_total, 1u);
}

TEST_F(RaceTest, WhenEveryAnswerIsSlowTheBucketBoundsHedges) {
  int sent = 0;
  for (int i = 0; i < 100; ++i) {
    run({{.head_after = milliseconds(500), .body = "a"},
         {.head_after = milliseconds(500), .body = "b"},
         {.head_after = milliseconds(500), .body = "c"}});
    pass(seconds(1));
    sent = static_cast<int>(script_.sent_over.size());
  }
  EXPECT_LE(sent, 100 + 10 + 3) << "what was saved up, and 3 %";
}

TEST_F(RaceTest, BeyondATwentiethOfTheLimitHedgesTakeFreePermits) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(lane().hedges().begin(attempt_.expected, 64, false));
  take_permits(64);
  run({{.head_after = seconds(1), .body = "first"}});
  EXPECT_EQ(metrics().requests_total, 1u) << "no permit is free";
  permits_.pop_front();
  start({{.head_after = seconds(1), .body = "first"}, {.head_after = milliseconds(30)}});
  pass(milliseconds(60));
  EXPECT_EQ(metrics().requests_total, 3u);
  take_permits(1);
  EXPECT_EQ(permits_taken_, 64) << "as before: the hedge has the last permit";
  finish();
  EXPECT_EQ(permits_taken_, 65) << "nothing else has woken this";
  for (int i = 0; i < 3; ++i) lane().hedges().end();
}

TEST_F(RaceTest, BeyondAThirdOfTheLimitLosersAreCut) {
  for (int i = 0; i < 21; ++i) EXPECT_TRUE(lane().hedges().begin_draining(64));
  run({{.head_after = seconds(1), .body = "first"}, {.body = "second"}});
  EXPECT_EQ(attempt_.text, "second");
  EXPECT_EQ(metrics().hedges_cut_total, 1u);
  EXPECT_EQ(script_.closed, 1);
  for (int i = 0; i < 21; ++i) lane().hedges().end_draining();
}

TEST_F(RaceTest, LosersTakeNoPermitOfRequests) {
  for (int i = 0; i < 5; ++i) run({{.head_after = seconds(1), .body = "first"}, {}});
  EXPECT_EQ(lane().hedges().running(), 5u);
  take_permits(65);
  EXPECT_EQ(permits_taken_, 64) << "the limit";
  permits_.pop_front();
  poll();
  EXPECT_EQ(permits_taken_, 65);
}

TEST_F(RaceTest, AfterTheEngineHasBegunToStopNothingIsSentTwice) {
  gate_->close();
  run({{.head_after = seconds(1), .body = "first"}});
  EXPECT_EQ(metrics().requests_total, 1u);
}

// ── Ends ─────────────────────────────────────────────────────────────────────────────────────

TEST_F(RaceTest, ACancelledRequestEndsAllItsAttempts) {
  start({{.head_after = seconds(10), .body = "first"}, {.head_after = seconds(10), .body = "b"}});
  pass(milliseconds(80));
  EXPECT_EQ(metrics().hedges_total, 1u);
  operation_->stop(Error(Code::kCancelled, "the read was cancelled"));
  poll();
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->error().code(), Code::kCancelled);
  EXPECT_EQ(script_.closed, 2);
  EXPECT_EQ(lane().hedges().running(), 0u);
  EXPECT_TRUE(gate_->wait_empty(std::chrono::steady_clock::now(), MayBlock::on_this_thread()));
}

TEST_F(RaceTest, ARequestThatIsCancelledWhileAHedgeBringsTheBodyEndsOnceThatHasEnded) {
  start({{.head_after = seconds(10), .body = "first"},
         {.body = "second", .body_after = milliseconds(500)}});
  pass(milliseconds(150));
  EXPECT_EQ(attempt_.heads, 1);
  EXPECT_FALSE(result_.has_value());
  operation_->stop(Error(Code::kCancelled, "the read was cancelled"));
  poll();
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->error().code(), Code::kCancelled);
  operation_.reset();
  pass(seconds(11));
  EXPECT_EQ(attempt_.text, "") << "nothing is written afterwards";
}

TEST_F(RaceTest, ARequestThatIsCancelledWhileOnlyTheHedgeIsLeftEnds) {
  start({{.head_after = milliseconds(70), .fails = true}, {.head_after = seconds(10)}});
  pass(milliseconds(200));
  EXPECT_FALSE(result_.has_value());
  operation_->stop(Error(Code::kCancelled, "the read was cancelled"));
  poll();
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->error().code(), Code::kCancelled);
}

TEST_F(RaceTest, TheDeadlineEndsAllAttempts) {
  timeout_.total = seconds(2);
  start({{.head_after = seconds(10)}, {.head_after = seconds(10)}, {.head_after = seconds(10)}});
  const milliseconds took = finish();
  EXPECT_EQ(result_->error().code(), Code::kTimedOut);
  EXPECT_LE(took, milliseconds(2'100));
  pass(milliseconds(100));
  EXPECT_EQ(lane().hedges().running(), 0u);
}

TEST_F(RaceTest, TheEngineStopsOnlyWhenLosersHaveEnded) {
  run({{.head_after = seconds(5), .body = "first"}, {.body = "second"}});
  const auto now = std::chrono::steady_clock::now();
  EXPECT_FALSE(gate_->wait_empty(now, MayBlock::on_this_thread()));
  thread_->stop_all();
  poll();
  EXPECT_TRUE(gate_->wait_empty(now, MayBlock::on_this_thread()));
}

}  // namespace
}  // namespace headrace
