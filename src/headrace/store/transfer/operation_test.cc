// One operation alone: no socket, no server, no thread, and a clock that the test moves.
#include "headrace/store/transfer/operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "headrace/http/answer_test_support.h"
#include "headrace/store/gcs/gcs_protocol.h"
#include "headrace/store/placement.h"
#include "headrace/store/transfer/lane_test_support.h"

namespace headrace {
namespace {

using std::chrono::duration_cast;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// What becomes of one request.
struct Answer {
  std::string status = "200 OK";
  std::string headers = "";              // lines, each with its end
  std::string body = "";                 // refusals have one
  std::optional<Error> failure = {};     // in place of an answer
  std::optional<Error> not_opened = {};  // no connection: the request is not sent
  bool stale = false;                    // the failure is that of a connection that was idle
  bool silent = false;                   // no answer comes
};

Answer refusal(std::string status, std::string headers = "") {
  return {.status = std::move(status), .headers = std::move(headers), .body = "why"};
}

Answer failure(std::string message) {
  return {.failure = Error(Code::kUnavailable, std::move(message))};
}

// What the test says, and what it is told, in the order of requests.
struct Script {
  std::deque<Answer> answers;
  std::vector<std::string> header_lines, targets;  // of each request that was sent
  int connections = 0, closed = 0;
};

class ScriptedConnection final : public Transport {
 public:
  ScriptedConnection(IoThread& thread, Script& script)
      : thread_(thread), script_(script), silence_(thread.context()) {
    ++script_.connections;
  }
  ~ScriptedConnection() override { ++script_.closed; }

  awaitable<Result<void>> open(Activity&, Resolver&) override {
    if (script_.answers.at(0).not_opened) {
      const Answer answer = take();
      co_return std::unexpected(*answer.not_opened);
    }
    reusable_ = true;
    co_return Result<void>();
  }

  awaitable<Result<void>> exchange(const HttpRequest& request, ResponseSink& sink) override {
    script_.header_lines.push_back(request.header_lines);
    script_.targets.push_back(request.target);
    const Answer answer = take();
    reusable_ = false;
    if (answer.silent) {
      waiting_ = true;
      silence_.expires_at(std::chrono::steady_clock::time_point::max());
      co_await silence_.async_wait(kAwait);
      waiting_ = false;
      co_return std::unexpected(*aborted_);
    }
    went_stale_ = answer.stale;
    if (answer.failure) co_return std::unexpected(*answer.failure);
    Result<void> taken = give_head(sink, answer.status, answer.headers, answer.body.size());
    if (taken) taken = give_body(sink, answer.body);
    if (!taken) co_return taken;
    last_used_ = thread_.now();
    reusable_ = true;
    co_return Result<void>();
  }

  void abort(const Error& why) override {
    if (!aborted_) aborted_ = why;
    silence_.cancel();
  }
  void check_stall(TimePoint) override {}
  bool waits_for_answer() const override { return waiting_; }
  bool has_unread() override { return false; }
  void let_go() override {}  // these tests do without hedges: see race_test.cc
  bool still_silent(bool) override { return true; }

 private:
  Answer take() {
    Answer answer = std::move(script_.answers.at(0));
    script_.answers.pop_front();
    return answer;
  }

  IoThread& thread_;
  Script& script_;
  Timer silence_;
  std::optional<Error> aborted_;
  bool waiting_ = false;
};

// As GCS, and 307 sends one request elsewhere.
class RedirectingProtocol : public Protocol {
 public:
  RedirectingProtocol() : Protocol(Root()) {}
  Refusal refusal(const ErrorResponse& response) const override {
    Refusal refusal = gcs_.refusal(response);
    const std::string_view location = response.head.find("location").value_or("");
    if (response.head.status != 307 || location.empty()) return refusal;
    const size_t path = location.find('/', location.find("://") + 3);
    refusal.elsewhere = std::make_shared<Elsewhere>(
        Elsewhere{.endpoint = parse_endpoint(location.substr(0, path), false).value(),
                  .target = std::string(location.substr(path))});
    return refusal;
  }
  std::unique_ptr<Signer> make_signer() const override { return gcs_.make_signer(); }
  std::string url_of(std::string_view name) const override { return gcs_.url_of(name); }

  // What these tests never send.
  void build_read(HttpRequest&, std::string_view, std::string_view,
                  std::optional<ByteRange>) const override {}
  ReadFacts read_facts(const ResponseHead&) const override { return {}; }
  ListBounds list_bounds() const override { return ListBounds::kExact; }
  void build_list(HttpRequest&, const ListRequest&) const override {}
  Result<ColumnPage> parse_list(const Response&, const ListRequest&) const override {
    return ColumnPage();
  }
  void build_stat(HttpRequest&, std::string_view) const override {}
  Result<ObjectInfo> parse_stat(const Response&, std::string_view) const override { return {}; }
  void build_write(HttpRequest&, const WriteRequest&, std::span<const std::span<const std::byte>>,
                   const SentSums&, std::string&) const override {}
  Result<ObjectInfo> parse_written(const Response&, const WriteRequest&, uint64_t) const override {
    return {};
  }
  Result<void> check_new_name(std::string_view) const override { return {}; }
  void build_remove(HttpRequest&, std::string_view, const Precondition&) const override {}
  UploadMethod default_upload_method() const override { return UploadMethod::kParts; }

 private:
  const GcsProtocol gcs_{"bucket", ""};
};

// The same for a cluster, one of whose hosts has everything.
class PlacingProtocol final : public RedirectingProtocol, public Placement {
 public:
  const Placement* placement() const override { return this; }
  void build_map(HttpRequest&) const override {}
  Result<std::shared_ptr<const HostMap>> parse_map(const Response&) const override {
    return std::make_shared<HostMap>();
  }
  std::optional<size_t> owner(const HostMap&, std::string_view) const override { return 0; }
  std::optional<size_t> send_to(const HostMap&, const HttpRequest& request) const override {
    return request.method == "GET" ? std::optional<size_t>(0) : std::nullopt;
  }
};

class ScriptedAttempt final : public TextAttempt {
 public:
  ScriptedAttempt(const Protocol& protocol, Clock& clock) : TextAttempt(protocol), clock_(clock) {}
  void build(HttpRequest& request) override {
    request.method = method;
    request.target = "/o";
    request.object = "o";
    request.refused = refused;
    times.push_back(clock_.now());
  }
  std::string url() const override { return "gs://bucket/o"; }
  void will_retry() override { ++retried; }
  milliseconds linger_when_stopped() const override { return linger; }
  bool is_known_to_exist() const override { return known; }
  bool asks_for_map() const override { return for_map; }

  std::string_view method = "GET";
  std::vector<Clock::TimePoint> times;  // of each attempt
  int retried = 0;
  int follow_ups = 0;  // that are still wanted
  milliseconds linger{0};
  bool known = false, for_map = false;
  std::optional<Error> refused;
  int others = 0;  // answers with another object than that which was asked for

 private:
  Result<void> begin_body(const ResponseHead& head) override {
    if (others > 0 && others-- > 0) return fail(Code::kPreconditionFailed, "has changed");
    return TextAttempt::begin_body(head);
  }
  Result<Verdict> finish() override { return follow_ups-- > 0 ? Verdict::kAgain : Verdict::kDone; }
  Clock& clock_;
};

class OperationTest : public LaneTest {
 protected:
  explicit OperationTest(const Protocol& spoken = protocol())
      : LaneTest(/*permits=*/4, /*reads=*/false,
                 [this](IoThread& thread, const std::shared_ptr<const Route>&) {
                   return std::make_unique<ScriptedConnection>(thread, script_);
                 }),
        attempt_(spoken, clock_) {}

  virtual std::unique_ptr<Signer> signer() { return protocol().make_signer(); }
  static const Protocol& protocol() {
    static const RedirectingProtocol protocol;
    return protocol;
  }
  void answer_with(std::deque<Answer> answers) { script_.answers = std::move(answers); }

  void start() {
    store_.emplace(StoreContext{.retry = retry_,
                                .timeout = timeout_,
                                .credentials = credentials_,
                                .signer = signer(),
                                .elsewhere = LanesElsewhere(reach_),
                                .pace = pace_});
    if (const Placement* placement = attempt_.protocol().placement()) {
      store_->cluster =
          std::make_unique<ClusterLanes>(*placement, host_.map, store_->elsewhere, fetch_map_);
    }
    begin(attempt_);
  }
  // Lets time pass until the operation has ended.
  Result<void> finish() {
    while (!result_) {
      if (!clock_.advance_to_next()) return fail(Code::kInternal, "it waits for nothing");
      poll();
    }
    operation_.reset();
    return *result_;
  }
  Result<void> run() {
    start();
    return finish();
  }

  // From the first attempt to the n-th, counted from 1, and between it and the one before.
  milliseconds at(size_t n) const {
    return duration_cast<milliseconds>(attempt_.times.at(n - 1) - attempt_.times.front());
  }
  milliseconds wait_before(size_t n) const { return at(n) - at(n - 1); }
  milliseconds passed() const {
    return duration_cast<milliseconds>(clock_.now() - attempt_.times.front());
  }

  Script script_;
  RetryOptions retry_{
      .max_attempts = 4, .initial_backoff = milliseconds(100), .max_backoff = milliseconds(300)};
  TimeoutOptions timeout_{.total = seconds(60)};
  std::shared_ptr<Credentials> credentials_;
  LanesElsewhere::Reach reach_;
  std::function<void()> fetch_map_;
  ScriptedAttempt attempt_;
};

std::string text_of(const Result<void>& result) {
  return result ? "went well"
                : cat(to_string(result.error().code()), ": ", result.error().to_string());
}

// ── Attempts ─────────────────────────────────────────────────────────────────────────────────

TEST_F(OperationTest, FailedAttemptsAreRepeatedAfterWaitsThatGrowUpToTheirBound) {
  answer_with({refusal("503 Unavailable"), failure("reset"), refusal("500 Error"), {}});
  EXPECT_TRUE(run().has_value());
  ASSERT_THAT(attempt_.times, SizeIs(4));
  EXPECT_LE(wait_before(2), milliseconds(100));
  EXPECT_LE(wait_before(3), milliseconds(200));
  EXPECT_LE(wait_before(4), milliseconds(300));
  EXPECT_GT(at(4), milliseconds(0));
  EXPECT_EQ(attempt_.retried, 3) << "each may have reached the server";
  EXPECT_EQ(thread_->metrics().retries_total, 3u);
  // A refusal leaves the connection as good as it was.
  EXPECT_EQ(script_.connections, 2);
}

TEST_F(OperationTest, TheNumberOfAttemptsIsBounded) {
  answer_with({failure("first"), failure("second"), failure("third"), failure("fourth"), {}});
  EXPECT_EQ(text_of(run()), "unavailable: gs://bucket/o: fourth (4 attempts)");
  EXPECT_THAT(script_.answers, SizeIs(1));
}

TEST_F(OperationTest, WhatCannotBeCuredIsNotRepeated) {
  answer_with({refusal("404 Not Found"), {}});
  EXPECT_THAT(text_of(run()), HasSubstr("not found: gs://bucket/o"));
  EXPECT_EQ(passed(), milliseconds(0));
  EXPECT_THAT(attempt_.times, SizeIs(1));
}

TEST_F(OperationTest, ARequestThatWasNotSentNeedNotBeLookedFor) {
  answer_with({{.not_opened = Error(Code::kUnavailable, "refused")}, {}});
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(attempt_.times, SizeIs(2));
  EXPECT_EQ(attempt_.retried, 0);
  EXPECT_THAT(script_.header_lines, SizeIs(1));
}

TEST_F(OperationTest, AConnectionThatWasClosedWhileIdleCostsNeitherAnAttemptNorTime) {
  answer_with({{.failure = Error(Code::kUnavailable, "closed"), .stale = true}, {}});
  EXPECT_TRUE(run().has_value());
  EXPECT_EQ(script_.connections, 2);
  EXPECT_EQ(passed(), milliseconds(0));
  EXPECT_EQ(thread_->metrics().retries_total, 0u);
  EXPECT_EQ(attempt_.retried, 1);
}

TEST_F(OperationTest, FollowUpsComeAtOnceUntilThereAreMany) {
  attempt_.follow_ups = 20;
  answer_with(std::deque<Answer>(21));
  EXPECT_TRUE(run().has_value());
  ASSERT_THAT(attempt_.times, SizeIs(21));
  EXPECT_EQ(at(17), milliseconds(0));
  EXPECT_GT(at(21), milliseconds(0));
  for (size_t n = 18; n <= 21; ++n) EXPECT_LE(wait_before(n), milliseconds(100));
  EXPECT_EQ(attempt_.retried, 0);
}

// ── What the server asks for ─────────────────────────────────────────────────────────────────

TEST_F(OperationTest, RetryAfterIsWaitedForAndStretchedByAQuarterAtMost) {
  answer_with({refusal("503 Unavailable", "Retry-After: 7\r\n"), {}});
  EXPECT_TRUE(run().has_value());
  EXPECT_GE(wait_before(2), seconds(7));
  EXPECT_LE(wait_before(2), milliseconds(8750));
}

TEST_F(OperationTest, ARetryAfterBeyondTheDeadlineEndsItAtOnce) {
  answer_with({refusal("503 Unavailable", "Retry-After: 61\r\n"), {}});
  EXPECT_THAT(text_of(run()), AllOf(HasSubstr("timed out"), HasSubstr("its deadline is too near"),
                                    HasSubstr("(HTTP 503, 1 attempt)")));
  EXPECT_EQ(passed(), milliseconds(0));
}

TEST_F(OperationTest, ThrottledItGoesOnBeyondTheNumberOfAttemptsUntilItsDeadline) {
  answer_with(std::deque<Answer>(10'000, refusal("429 Too Many Requests")));
  EXPECT_THAT(text_of(run()), AllOf(HasSubstr("throttled: "), HasSubstr("HTTP 429")));
  EXPECT_GT(attempt_.times.size(), 20u);
  EXPECT_LE(passed(), seconds(60));
  EXPECT_GT(passed(), seconds(50));
  EXPECT_EQ(attempt_.retried, 0) << "the server did nothing";
}

// ── Its end ──────────────────────────────────────────────────────────────────────────────────

TEST_F(OperationTest, AnAnswerThatDoesNotComeEndsAtTheDeadline) {
  answer_with({{.silent = true}});
  EXPECT_THAT(text_of(run()), AllOf(HasSubstr("timed out"), HasSubstr("its deadline passed")));
  EXPECT_GE(passed(), seconds(60));
  EXPECT_LE(passed(), seconds(60) + IoThread::kSweepInterval);
  EXPECT_EQ(script_.closed, 1);
}

TEST_F(OperationTest, TheDeadlineTellsOfTheLastFailure) {
  answer_with({failure("reset by peer"), {.silent = true}});
  EXPECT_THAT(text_of(run()),
              AllOf(HasSubstr("timed out"),
                    HasSubstr("its deadline passed; the last attempt failed with: reset by peer"),
                    HasSubstr("(2 attempts)")));
}

TEST_F(OperationTest, CancelledWhileItWaitsForAnotherAttemptItEndsAtOnce) {
  answer_with({refusal("503 Unavailable", "Retry-After: 7\r\n"), {}});
  start();
  ASSERT_FALSE(result_);
  clock_.advance(seconds(2));
  poll();
  ASSERT_FALSE(result_);
  thread_->stop_owned_by(this, Error(Code::kCancelled, "it was cancelled"));
  poll();
  ASSERT_TRUE(result_);
  EXPECT_THAT(text_of(*result_), AllOf(HasSubstr("cancelled"), HasSubstr("HTTP 503, 1 attempt")));
  EXPECT_EQ(passed(), seconds(2));
  EXPECT_THAT(attempt_.times, SizeIs(1));
}

TEST_F(OperationTest, CancelledWhileAnAnswerIsAwaitedItEndsAtOnce) {
  answer_with({{.silent = true}});
  start();
  operation_->stop(Error(Code::kCancelled, "it was cancelled"));
  poll();
  ASSERT_TRUE(result_);
  EXPECT_EQ(result_->error().code(), Code::kCancelled);
  EXPECT_EQ(script_.closed, 1);
}

TEST_F(OperationTest, AChangeThatWillBeMadeIsWaitedForAWhileThoughItIsCancelled) {
  attempt_.linger = seconds(1);
  answer_with({{.silent = true}});
  start();
  operation_->stop(Error(Code::kCancelled, "it was cancelled"));
  poll();
  EXPECT_FALSE(result_);
  clock_.advance(milliseconds(900));
  poll();
  EXPECT_FALSE(result_);
  clock_.advance(milliseconds(150));
  poll();
  ASSERT_TRUE(result_);
  EXPECT_EQ(result_->error().code(), Code::kCancelled);
}

// ── Credentials ──────────────────────────────────────────────────────────────────────────────

class OperationWithCredentials : public OperationTest {
 protected:
  OperationWithCredentials() { credentials_ = Credentials::from_queue(queue_, 1); }
  ~OperationWithCredentials() override {
    while (asked()) {  // the queue holds credentials that nobody has served, which hold the queue
    }
  }
  bool asked() { return queue_->next({}, MayBlock::on_this_thread()) != nullptr; }
  void provide(const char* text, std::chrono::nanoseconds life) {
    credentials_->provide({.authorization = text, .expires_at = clock_.now() + life});
  }
  // Another operation of the same store.
  Result<void> run_next() {
    answer_with({{}});
    result_.reset();
    begin(attempt_);
    return finish();
  }
  const std::shared_ptr<CredentialsQueue> queue_ = std::make_shared<CredentialsQueue>();
};

TEST_F(OperationWithCredentials, NothingIsSentBeforeThereIsAToken) {
  answer_with({{}});
  start();
  EXPECT_TRUE(asked());
  clock_.advance(seconds(59));
  poll();
  EXPECT_THAT(script_.header_lines, SizeIs(0));
  provide("Bearer 1", hours(1));
  poll();
  EXPECT_TRUE(finish().has_value());
  EXPECT_THAT(script_.header_lines, ElementsAre("Authorization: Bearer 1\r\n"));
}

TEST_F(OperationWithCredentials, WithoutATokenTheDeadlineSaysWhatItWaitedFor) {
  EXPECT_THAT(text_of(run()),
              AllOf(HasSubstr("timed out"), HasSubstr("while waiting for credentials")));
  EXPECT_EQ(script_.connections, 0);
}

TEST_F(OperationWithCredentials, ATokenIsRenewedBeforeItExpiresWhileItIsStillUsed) {
  provide("Bearer 1", hours(1));
  answer_with({{}});
  EXPECT_TRUE(run().has_value());
  clock_.advance(minutes(54));
  EXPECT_TRUE(run_next().has_value());
  EXPECT_FALSE(asked());
  clock_.advance(minutes(2));
  EXPECT_TRUE(run_next().has_value());
  EXPECT_TRUE(asked());
  provide("Bearer 2", hours(1));
  EXPECT_TRUE(run_next().has_value());
  EXPECT_THAT(script_.header_lines,
              ElementsAre("Authorization: Bearer 1\r\n", "Authorization: Bearer 1\r\n",
                          "Authorization: Bearer 1\r\n", "Authorization: Bearer 2\r\n"));
}

TEST_F(OperationWithCredentials, ARefusedTokenIsReplacedOnce) {
  provide("Bearer 1", hours(1));
  answer_with({refusal("401 Unauthorized"), refusal("401 Unauthorized"), {}});
  start();
  EXPECT_TRUE(asked());
  provide("Bearer 2", hours(1));
  poll();
  EXPECT_THAT(text_of(finish()), HasSubstr("permission denied"));
  EXPECT_THAT(script_.header_lines,
              ElementsAre("Authorization: Bearer 1\r\n", "Authorization: Bearer 2\r\n"));
  EXPECT_FALSE(asked());
}

// ── Elsewhere ────────────────────────────────────────────────────────────────────────────────

// One that is sent to another host, which has a script of its own.
class OperationElsewhere : public OperationTest {
 protected:
  explicit OperationElsewhere(const Protocol& spoken = protocol()) : OperationTest(spoken) {
    other_.lanes.push_back(std::make_unique<HostLane>(other_, *thread_, resolver_, *pool_));
    reach_ = [this](const Endpoint& at) -> Result<std::shared_ptr<HostLane>> {
      reached_.push_back(at.authority());
      if (!at.host.starts_with("other.")) return fail(Code::kCancelled, "the engine was stopped");
      const std::shared_ptr<HostLane> lane(other_.lanes[0].get(), [](HostLane*) {});
      lane_there_ = lane;
      return lane;
    };
  }
  ~OperationElsewhere() override { other_.lanes.clear(); }
  // Says what is signed, and for whom.
  class Names final : public Signer {
    void sign(HttpRequest& request, const Credential&, const Destination& to,
              std::chrono::system_clock::time_point) override {
      request.add_header("Signed", cat(to.authority, request.target));
    }
  };
  std::unique_ptr<Signer> signer() override { return std::make_unique<Names>(); }
  static Answer sent_to(std::string url) {
    return refusal("307 Temporary Redirect", cat("Location: ", url, "\r\n"));
  }
  // Another operation of the same store.
  Result<void> run_next() {
    result_.reset();
    begin(attempt_);
    return finish();
  }

  Script there_;
  Host other_{route_to("other.test"),
              4,
              4,
              100,
              std::make_shared<Log>(),
              [this](IoThread& thread, const std::shared_ptr<const Route>&) {
                return std::make_unique<ScriptedConnection>(thread, there_);
              }};
  std::vector<std::string> reached_;
  std::weak_ptr<HostLane> lane_there_;  // that was given last, as long as somebody keeps it
};

TEST_F(OperationElsewhere, ARequestGoesWhereItIsToldAndTheNextOneWhereItAlwaysWent) {
  answer_with({sent_to("https://other.test/v1/o%2F?t=1&pid=p"), {}});
  there_.answers = {{}};
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(script_.targets, ElementsAre("/o"));
  EXPECT_THAT(there_.targets, ElementsAre("/v1/o%2F?t=1&pid=p"));
  EXPECT_EQ(passed(), milliseconds(0));
  EXPECT_EQ(attempt_.retried, 0) << "the first host did nothing";
  EXPECT_EQ(thread_->metrics().retries_total, 0u);
  EXPECT_TRUE(run_next().has_value());
  EXPECT_THAT(script_.targets, ElementsAre("/o", "/o"));
  EXPECT_THAT(there_.targets, SizeIs(1));
}

TEST_F(OperationElsewhere, ToBeSentOnIsNoFailureOfTheHostThatDoes) {
  answer_with({sent_to("https://other.test/x")});
  there_.answers = {{}};
  EXPECT_TRUE(run().has_value());
  EXPECT_FALSE(lane().host().log.failing());
}

TEST_F(OperationElsewhere, ConnectionsOfEachHostAreKeptAndItsLaneIsFoundOnce) {
  for (int round = 0; round < 3; ++round) {
    answer_with({sent_to("https://other.test/x")});
    there_.answers = {{}};
    EXPECT_TRUE((round == 0 ? run() : run_next()).has_value());
  }
  EXPECT_EQ(script_.connections, 1);
  EXPECT_EQ(there_.connections, 1);
  EXPECT_THAT(reached_, ElementsAre("other.test"));
}

TEST_F(OperationElsewhere, WhatFailsThereBeginsAnewWhereRequestsBegin) {
  answer_with({sent_to("https://other.test/1"), sent_to("https://other.test/2")});
  there_.answers = {failure("reset"), {}};
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(script_.targets, SizeIs(2));
  EXPECT_THAT(there_.targets, ElementsAre("/1", "/2"));
  EXPECT_EQ(attempt_.retried, 1);
}

TEST_F(OperationElsewhere, AConnectionThatWasClosedWhileIdleIsReplacedThere) {
  answer_with({sent_to("https://other.test/1")});
  there_.answers = {{.failure = Error(Code::kUnavailable, "closed"), .stale = true}, {}};
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(script_.targets, SizeIs(1));
  EXPECT_THAT(there_.targets, ElementsAre("/1", "/1"));
}

TEST_F(OperationElsewhere, HostsThatSendItInACircleAreLeftAfterThreeHops) {
  answer_with({sent_to("https://other.test/1"), {}});
  there_.answers = {sent_to("https://other.test/2"),
                    sent_to("https://other.test/3"),
                    sent_to("https://other.test/4"),
                    {}};
  EXPECT_THAT(text_of(run()),
              AllOf(HasSubstr("sent elsewhere 4 times in a row"), HasSubstr("HTTP 307")));
  EXPECT_THAT(there_.targets, SizeIs(3));
}

TEST_F(OperationElsewhere, OnlyHopsInARowCount) {
  attempt_.follow_ups = 9;  // each is a request of its own
  std::deque<Answer> answers(10, sent_to("https://other.test/x"));
  answer_with(answers);
  there_.answers = std::deque<Answer>(10);
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(there_.targets, SizeIs(10));
}

TEST_F(OperationElsewhere, WhatIsRefusedThereSlowsDownTheRoot) {
  answer_with({sent_to("https://other.test/1"), sent_to("https://other.test/1")});
  there_.answers = {refusal("429 Too Many Requests"), {}};
  EXPECT_TRUE(run().has_value());
  EXPECT_TRUE(pace_->refused());
}

TEST_F(OperationElsewhere, ItIsSignedForTheHostAndTheTargetThatItGoesTo) {
  credentials_ = Credentials::fixed({.authorization = "Bearer 1"});
  answer_with({sent_to("https://other.test/x?y")});
  there_.answers = {{}};
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(script_.header_lines, ElementsAre("Signed: storage.test/o\r\n"));
  EXPECT_THAT(there_.header_lines, ElementsAre("Signed: other.test/x?y\r\n"));
}

TEST_F(OperationElsewhere, AHostThatCannotBeReachedAnyMoreEndsIt) {
  answer_with({sent_to("https://stopped.test/1"), {}});
  EXPECT_THAT(text_of(run()), HasSubstr("cancelled: gs://bucket/o"));
  EXPECT_THAT(script_.targets, SizeIs(1));
}

// ── Straight to the host of a cluster ────────────────────────────────────────────────────────

class OperationDirect : public OperationElsewhere {
 protected:
  OperationDirect() : OperationElsewhere(placing()) {
    fetch_map_ = [this] { ++fetches_; };
    tell_map(1);
  }
  static const Protocol& placing() {
    static const PlacingProtocol protocol;
    return protocol;
  }
  static Endpoint at(std::string host) { return {.host = std::move(host)}; }
  void tell_map(uint64_t version) {
    auto map = std::make_shared<HostMap>();
    map->version = version;
    map->hosts.push_back(at(in_map_));
    map->other_endpoints.push_back({at("other.second-net.test")});
    host_.map.begin_fetch();
    host_.map.fetched(std::shared_ptr<const HostMap>(std::move(map)), clock_.now());
  }
  // Two operations: one that the endpoint sends to this host, and one that reads.
  void write_then_read(std::string host) {
    attempt_.method = "PUT";
    answer_with({sent_to(cat("https://", host, "/o")), {}});
    there_.answers = {{}, {}};
    EXPECT_TRUE((store_ ? run_next() : run()).has_value());
    attempt_.method = "GET";
    EXPECT_TRUE(run_next().has_value());
  }
  std::string in_map_ = "other.test";
  int fetches_ = 0;
};

TEST_F(OperationDirect, ARequestGoesWhereTheMapSaysAndOneThatHasNoMapToTheEndpoint) {
  there_.answers = {{}, {}};
  EXPECT_TRUE(run().has_value());
  EXPECT_TRUE(run_next().has_value());
  EXPECT_THAT(there_.targets, ElementsAre("/o", "/o"));
  EXPECT_THAT(script_.targets, SizeIs(0));
  EXPECT_THAT(reached_, ElementsAre("other.test"));
  EXPECT_EQ(fetches_, 0);
}

TEST_F(OperationDirect, AHostThatANewMapNamesAgainIsHeldOn) {
  there_.answers = {{}, {}};
  EXPECT_TRUE(run().has_value());
  tell_map(2);
  EXPECT_TRUE(run_next().has_value());
  EXPECT_FALSE(lane_there_.expired());
  EXPECT_THAT(reached_, ElementsAre("other.test")) << "it was not asked for anew";
}

TEST_F(OperationDirect, AHostThatTheNewestMapDoesNotNameIsKeptByNobody) {
  there_.answers = {{}};
  EXPECT_TRUE(run().has_value());
  EXPECT_FALSE(lane_there_.expired()) << "for the next request";
  in_map_ = "stopped.test";
  tell_map(2);
  EXPECT_THAT(text_of(run_next()), HasSubstr("the engine was stopped"));
  EXPECT_TRUE(lane_there_.expired());
}

TEST_F(OperationDirect, WhatTheHostRefusesTheEndpointIsAskedForAtOnce) {
  for (const char* status : {"400 Bad", "401 Who", "403 No", "404 Not Found", "503 Busy"}) {
    there_.answers = {refusal(status)};
    answer_with({{}});
    result_.reset();
    EXPECT_TRUE(run().has_value()) << status;
  }
  EXPECT_THAT(script_.targets, SizeIs(5));
  EXPECT_THAT(script_.targets, ::testing::Each("/o"));
  EXPECT_EQ(passed(), milliseconds(0));
  EXPECT_EQ(attempt_.retried, 0);
  EXPECT_EQ(thread_->metrics().retries_total, 0u);
}

TEST_F(OperationDirect, ARefusalThatTheEndpointRepeatsIsTheError) {
  there_.answers = {refusal("404 Not Found")};
  answer_with({refusal("404 Not Found"), {}});
  EXPECT_THAT(text_of(run()), HasSubstr("not found: gs://bucket/o"));
  EXPECT_THAT(script_.targets, SizeIs(1));
  EXPECT_FALSE(host_.map.is_wanted(clock_.now())) << "the map was right";
}

TEST_F(OperationDirect, AWrongMapIsFetchedAnewByTheNextRequest) {
  there_.answers = {refusal("404 Not Found"), {}};
  answer_with({{}});
  EXPECT_TRUE(run().has_value());
  EXPECT_TRUE(host_.map.is_wanted(clock_.now()));
  EXPECT_EQ(fetches_, 0);
  EXPECT_TRUE(run_next().has_value());
  EXPECT_EQ(fetches_, 1);
  EXPECT_FALSE(host_.map.is_wanted(clock_.now()));
}

TEST_F(OperationDirect, AfterAWriteThatWentToTheHostOfTheMapReadsGoThere) {
  write_then_read("other.test");
  write_then_read("other.second-net.test");
  EXPECT_THAT(there_.targets, SizeIs(4));
  EXPECT_THAT(script_.targets, SizeIs(2));
  EXPECT_EQ(fetches_, 0);
}

TEST_F(OperationDirect, AfterAWriteThatWentToAnotherHostReadsGoByTheEndpointUntilThereIsANewMap) {
  in_map_ = "former.test";
  tell_map(2);
  write_then_read("other.test");
  EXPECT_EQ(fetches_, 1) << "at once";
  EXPECT_THAT(script_.targets, SizeIs(2)) << "the write, and the read";
  in_map_ = "other.test";
  tell_map(3);
  there_.answers = {{}};
  EXPECT_TRUE(run_next().has_value());
  EXPECT_THAT(script_.targets, SizeIs(2));
  EXPECT_EQ(fetches_, 1);
}

TEST_F(OperationDirect, ThatRedirectsGoOnToContradictTheMapIsLoggedOnce) {
  in_map_ = "former.test";
  tell_map(2);
  for (int round = 0; round < 4; ++round) {
    EXPECT_THAT(log_->take(), SizeIs(round == 3 ? 1 : 0)) << round;
    attempt_.method = "PUT";
    answer_with({sent_to("https://other.test/o")});
    there_.answers = {{}};
    EXPECT_TRUE((store_ ? run_next() : run()).has_value());
    tell_map(2);  // the same
  }
  EXPECT_THAT(log_->take(), SizeIs(0));
}

TEST_F(OperationDirect, AClusterThatTakesNoDirectRequestsGetsNoMore) {
  there_.answers = {refusal("401 Unauthorized"), {}};
  answer_with({{}, {}});
  EXPECT_TRUE(run().has_value());
  EXPECT_TRUE(run_next().has_value());
  EXPECT_THAT(there_.targets, SizeIs(1));
  EXPECT_THAT(script_.targets, SizeIs(2));
}

TEST_F(OperationDirect, ItIsGivenAnotherChanceAfterAWhile) {
  there_.answers = {refusal("401 Unauthorized"), {}};
  answer_with({{}});
  EXPECT_TRUE(run().has_value());
  clock_.advance(MapKeeper::kWithoutDirect + seconds(1));
  EXPECT_TRUE(run_next().has_value());
  EXPECT_THAT(there_.targets, SizeIs(2));
  EXPECT_THAT(script_.targets, SizeIs(1));
}

TEST_F(OperationDirect, AnOldMapIsFetchedAnewAndNobodyWaitsForIt) {
  there_.answers = {{}, {}, {}};
  EXPECT_TRUE(run().has_value());
  clock_.advance(MapKeeper::kMaxAge);
  EXPECT_TRUE(run_next().has_value());
  EXPECT_TRUE(run_next().has_value());
  EXPECT_EQ(fetches_, 1);
  EXPECT_THAT(there_.targets, SizeIs(3));
  EXPECT_EQ(passed(), MapKeeper::kMaxAge);
}

TEST_F(OperationDirect, AnObjectThatIsNotTheOneAskedForIsAskedForAtTheEndpoint) {
  attempt_.others = 1;
  there_.answers = {{}};
  answer_with({{}});
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(script_.targets, ElementsAre("/o"));
  EXPECT_TRUE(host_.map.is_wanted(clock_.now())) << "the map is old";
}

TEST_F(OperationDirect, AnObjectThatHasChangedAtTheEndpointTooHasChanged) {
  attempt_.others = 2;
  there_.answers = {{}};
  answer_with({{}});
  EXPECT_THAT(text_of(run()), HasSubstr("has changed"));
  EXPECT_FALSE(host_.map.is_wanted(clock_.now())) << "the map was right";
}

TEST_F(OperationDirect, ACredentialThatHasExpiredEndsNoDirectRequests) {
  const auto queue = std::make_shared<CredentialsQueue>();
  credentials_ = Credentials::from_queue(queue, 1);
  credentials_->provide({.authorization = "Bearer 1"});
  there_.answers = {refusal("401 Unauthorized"), {}};
  answer_with({refusal("401 Unauthorized"), {}});
  start();
  EXPECT_EQ(queue->next({}, MayBlock::on_this_thread()), credentials_);
  credentials_->provide({.authorization = "Bearer 2"});
  poll();
  EXPECT_TRUE(finish().has_value());
  EXPECT_TRUE(run_next().has_value());
  EXPECT_THAT(there_.targets, SizeIs(2));
  EXPECT_THAT(script_.targets, SizeIs(2));
}

TEST_F(OperationDirect, AHostThatIsNeverReachedIsPassedOverForAWhile) {
  for (uint32_t i = 0; i < Reachability::kMaxFailed; ++i) {
    there_.answers = {{.not_opened = Error(Code::kUnavailable, "refused")}};
    answer_with({{}});
    EXPECT_TRUE((i == 0 ? run() : run_next()).has_value());
  }
  const int tried = there_.connections;
  answer_with({{}});
  EXPECT_TRUE(run_next().has_value());
  EXPECT_EQ(there_.connections, tried);
  clock_.advance(Reachability::kPassedOver);
  there_.answers = {{}, {}};
  EXPECT_TRUE(run_next().has_value());
  EXPECT_TRUE(run_next().has_value());
  EXPECT_THAT(there_.targets, SizeIs(2));
}

TEST_F(OperationDirect, WhatIsRefusedBeforeItIsSentSaysNothingAboutTheMap) {
  attempt_.refused = Error(Code::kNotFound, "no such name");
  answer_with({{.failure = Error(Code::kNotFound, "no such name")}});
  EXPECT_THAT(text_of(run()), HasSubstr("no such name"));
  EXPECT_THAT(there_.targets, SizeIs(0));
  EXPECT_FALSE(host_.map.is_wanted(clock_.now()));
}

TEST_F(OperationDirect, ToBeSentOnIsNoAttemptOfItsOwn) {
  there_.answers = {refusal("404 Not Found")};
  answer_with({refusal("404 Not Found")});
  const Result<void> result = run();
  EXPECT_EQ(result.error().attempts(), 1);
}

TEST_F(OperationDirect, AHostThatCannotBeReachedIsPassedOverAtOnce) {
  there_.answers = {{.not_opened = Error(Code::kUnavailable, "refused")}};
  answer_with({{}});
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(script_.targets, ElementsAre("/o"));
  EXPECT_EQ(passed(), milliseconds(0));
  EXPECT_EQ(fetches_, 1);
}

TEST_F(OperationDirect, WhatMayHaveReachedTheHostIsRepeatedByTheEndpoint) {
  there_.answers = {failure("reset")};
  answer_with({{}});
  EXPECT_TRUE(run().has_value());
  EXPECT_EQ(attempt_.retried, 1);
  EXPECT_THAT(script_.targets, ElementsAre("/o"));
}

TEST_F(OperationDirect, AnIdleConnectionThatTheHostClosedIsReplacedThere) {
  there_.answers = {{.failure = Error(Code::kUnavailable, "closed"), .stale = true}, {}};
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(there_.targets, SizeIs(2));
  EXPECT_THAT(script_.targets, SizeIs(0));
}

TEST_F(OperationDirect, TheRequestForTheMapDoesNotWaitForItself) {
  attempt_.for_map = true;
  attempt_.method = "HEAD";  // by the endpoint
  EXPECT_TRUE(host_.map.begin_fetch());
  answer_with({sent_to("https://other.test/v1/daemon"), {}});
  there_.answers = {{.not_opened = Error(Code::kUnavailable, "refused")}};
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(script_.targets, SizeIs(2));
  EXPECT_LE(passed(), retry_.max_backoff);
  EXPECT_EQ(fetches_, 0);
}

TEST_F(OperationDirect, WhatIsGoneIsMissingOnceTheMapTurnsOutToBeTheSame) {
  attempt_.known = true;
  there_.answers = {refusal("404 Not Found")};
  answer_with({refusal("404 Not Found"), {}});
  start();
  ASSERT_FALSE(result_) << "it waits for the map";
  EXPECT_EQ(fetches_, 1);
  tell_map(1);
  poll();
  EXPECT_THAT(text_of(finish()), HasSubstr("not found"));
  EXPECT_EQ(passed(), milliseconds(0));
}

TEST_F(OperationDirect, WhatAClusterThatChangesDoesNotFindIsAskedForUntilItHasSettled) {
  attempt_.known = true;
  there_.answers = {refusal("404 Not Found")};
  std::deque<Answer> answers(12, refusal("404 Not Found"));
  answers.emplace_back();
  answer_with(std::move(answers));
  start();
  EXPECT_EQ(fetches_, 1);
  tell_map(2);
  poll();
  EXPECT_TRUE(finish().has_value());
  EXPECT_THAT(script_.targets, SizeIs(13)) << "more than a request has attempts";
  EXPECT_EQ(fetches_, 1);
}

TEST_F(OperationDirect, WhatIsStillMissingThenIsMissing) {
  attempt_.known = true;
  there_.answers = {refusal("404 Not Found")};
  answer_with(std::deque<Answer>(1000, refusal("404 Not Found")));
  start();
  tell_map(2);
  poll();
  int told = 1;
  while (!result_ && passed() <= MapKeeper::kUnsettled + seconds(2)) {
    ASSERT_TRUE(clock_.advance_to_next());
    poll();
    if (fetches_ > told) tell_map(2);
    told = fetches_;
    poll();
  }
  ASSERT_TRUE(result_);
  EXPECT_THAT(text_of(*result_), HasSubstr("not found"));
  EXPECT_GE(passed(), MapKeeper::kUnsettled - seconds(1));
}

TEST_F(OperationDirect, WhatNobodyHasToldOfIsMissingAtOnce) {
  there_.answers = {refusal("404 Not Found")};
  answer_with({refusal("404 Not Found")});
  EXPECT_THAT(text_of(run()), HasSubstr("not found"));
  EXPECT_EQ(fetches_, 0);
}

// ── Another way into the cluster ─────────────────────────────────────────────────────────────

// A cluster with two entrances, the endpoint and another one, to which writes go.
class OperationDetour : public OperationElsewhere {
 protected:
  OperationDetour() : OperationElsewhere(placing()) {
    fetch_map_ = [] {};
    attempt_.method = "PUT";
    reach_ = [this,
              reach_others = reach_](const Endpoint& at) -> Result<std::shared_ptr<HostLane>> {
      if (at == host_.route->endpoint) {
        return std::shared_ptr<HostLane>(&lane_, [](HostLane*) {});
      }
      return reach_others(at);
    };
    tell_entrances({host_.route->endpoint, {.host = "other.test"}});
  }
  static const Protocol& placing() {
    static const PlacingProtocol protocol;
    return protocol;
  }
  void tell_entrances(std::vector<Endpoint> entrances) {
    auto map = std::make_shared<HostMap>();
    map->version = ++version_;
    map->hosts.push_back({.host = "other.target.test"});
    map->other_endpoints.emplace_back();
    map->entrances = std::move(entrances);
    host_.map.begin_fetch();
    host_.map.fetched(std::shared_ptr<const HostMap>(std::move(map)), clock_.now());
  }
  static Answer not_opened() { return {.not_opened = Error(Code::kUnavailable, "refused")}; }
  static Answer no_answer() { return {.failure = Error(Code::kTimedOut, "no answer came")}; }

 private:
  uint64_t version_ = 0;
};

TEST_F(OperationDetour, WhatCannotReachTheEndpointGoesByAnotherEntranceAtOnceAndIsSentOnce) {
  answer_with({not_opened()});
  there_.answers = {{}};
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(script_.targets, SizeIs(0));
  EXPECT_THAT(there_.targets, ElementsAre("/o"));
  EXPECT_EQ(passed(), milliseconds(0));
  EXPECT_EQ(attempt_.retried, 0) << "nothing was sent that would have to be looked for";
  EXPECT_EQ(thread_->metrics().retries_total, 0u);
}

TEST_F(OperationDetour, ItIsLoggedOnceAndThatTheEndpointAnswersAgainToo) {
  answer_with({not_opened()});
  there_.answers = {{}};
  EXPECT_TRUE(run().has_value());
  answer_with({not_opened()});
  there_.answers = {{}};
  EXPECT_TRUE(run_next().has_value());
  const std::vector<LogRecord> records = log_->take();
  ASSERT_THAT(records, SizeIs(1));
  EXPECT_THAT(records[0].text,
              AllOf(HasSubstr("storage.test cannot be reached (refused)"),
                    HasSubstr("another proxy of the cluster, https://other.test")));
  EXPECT_TRUE(lane().host().log.failing());
  answer_with({{}});
  EXPECT_TRUE(run_next().has_value());
  EXPECT_FALSE(lane().host().log.failing());
}

TEST_F(OperationDetour, ItIsSignedForTheEntranceThatItGoesTo) {
  credentials_ = Credentials::fixed({.authorization = "Bearer 1"});
  answer_with({not_opened()});
  there_.answers = {{}};
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(there_.header_lines, ElementsAre("Signed: other.test/o\r\n"));
}

TEST_F(OperationDetour, AnEndpointThatIsNeverReachedIsPassedOverForAWhile) {
  for (uint32_t i = 0; i < Reachability::kMaxFailed; ++i) {
    answer_with({not_opened()});
    there_.answers = {{}};
    EXPECT_TRUE((i == 0 ? run() : run_next()).has_value());
  }
  const int tried = script_.connections;
  there_.answers = {{}};
  EXPECT_TRUE(run_next().has_value());
  EXPECT_EQ(script_.connections, tried);
  clock_.advance(Reachability::kPassedOver);
  answer_with({{}, {}});
  EXPECT_TRUE(run_next().has_value());
  EXPECT_TRUE(run_next().has_value());
  EXPECT_THAT(script_.targets, SizeIs(2)) << "it has been reached again";
}

TEST_F(OperationDetour, WhereNoEntranceCanBeReachedTheErrorIsThatOfTheEndpoint) {
  answer_with(std::deque<Answer>(4, not_opened()));
  there_.answers =
      std::deque<Answer>(4, {.not_opened = Error(Code::kPermissionDenied, "a certificate")});
  const Result<void> result = run();
  EXPECT_THAT(text_of(result), HasSubstr("unavailable: gs://bucket/o: refused"));
  EXPECT_EQ(result.error().attempts(), retry_.max_attempts);
  EXPECT_EQ(script_.connections, 4);
  EXPECT_EQ(there_.connections, 4);
}

TEST_F(OperationDetour, AnEntranceThatWasPassedOverIsTriedOnceNoOtherWasReached) {
  for (uint32_t i = 0; i < Reachability::kMaxFailed; ++i) other_.reachability.failed(clock_.now());
  answer_with({not_opened(), not_opened()});
  there_.answers = {{}};
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(there_.targets, SizeIs(1));
  EXPECT_EQ(thread_->metrics().retries_total, 1u);
}

TEST_F(OperationDetour, AnEndpointThatWasPassedOverIsTriedWhenNoOtherEntranceIsReached) {
  for (uint32_t i = 0; i < Reachability::kMaxFailed; ++i) host_.reachability.failed(clock_.now());
  there_.answers = {not_opened()};
  answer_with({{}});
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(script_.targets, SizeIs(1));
  EXPECT_EQ(thread_->metrics().retries_total, 0u);
}

TEST_F(OperationDetour, WhatMayHaveReachedTheEndpointIsRepeatedAsEver) {
  answer_with({failure("reset"), not_opened()});
  there_.answers = {{}};
  EXPECT_TRUE(run().has_value());
  EXPECT_EQ(attempt_.retried, 1);
  EXPECT_EQ(thread_->metrics().retries_total, 1u);
  EXPECT_THAT(there_.targets, SizeIs(1));
}

TEST_F(OperationDetour, WhatTheEndpointDoesNotAnswerInTimeIsRepeatedByAnotherEntrance) {
  answer_with({no_answer()});
  there_.answers = {{}};
  EXPECT_TRUE(run().has_value());
  EXPECT_EQ(attempt_.retried, 1);
  EXPECT_EQ(thread_->metrics().retries_total, 1u);
  EXPECT_THAT(script_.targets, SizeIs(1));
  EXPECT_THAT(there_.targets, SizeIs(1));
}

TEST_F(OperationDetour, ACertificateOfTheEndpointThatIsNotAcceptedIsNotGotRound) {
  answer_with({{.not_opened = Error(Code::kPermissionDenied, "its certificate")}});
  EXPECT_THAT(text_of(run()), HasSubstr("permission denied: gs://bucket/o: its certificate"));
  EXPECT_THAT(reached_, SizeIs(0));
}

TEST_F(OperationDetour, AnotherEntranceSendsItOnAsTheEndpointDoes) {
  answer_with({not_opened()});
  there_.answers = {sent_to("https://other.target.test/x"), {}};
  EXPECT_TRUE(run().has_value());
  EXPECT_THAT(there_.targets, ElementsAre("/o", "/x"));
  EXPECT_TRUE(host_.map.takes_direct(clock_.now())) << "the map says the same";
}

TEST_F(OperationDetour, ARedirectOfAnotherEntranceContradictsTheMapAsOneOfTheEndpointDoes) {
  answer_with({not_opened()});
  there_.answers = {sent_to("https://other.third.test/x"), {}};
  EXPECT_TRUE(run().has_value());
  EXPECT_FALSE(host_.map.takes_direct(clock_.now()));
}

TEST_F(OperationDetour, WhereTheEndpointIsTheOnlyEntranceNothingIsAnyDifferent) {
  tell_entrances({host_.route->endpoint});
  answer_with(std::deque<Answer>(4, not_opened()));
  const Result<void> result = run();
  EXPECT_THAT(text_of(result), HasSubstr("unavailable: gs://bucket/o: refused"));
  EXPECT_EQ(result.error().attempts(), retry_.max_attempts);
  EXPECT_EQ(script_.connections, 4);
  EXPECT_THAT(reached_, SizeIs(0));
}

// ── Idle connections ─────────────────────────────────────────────────────────────────────────

TEST_F(OperationTest, IdleConnectionsAreClosedAfterTwentySeconds) {
  answer_with({{}, {}});
  EXPECT_TRUE(run().has_value());
  clock_.advance(milliseconds(19'900));
  poll();
  EXPECT_EQ(script_.closed, 0);

  result_.reset();
  EXPECT_TRUE(run().has_value());  // uses it, so that the time begins anew
  EXPECT_EQ(script_.connections, 1);
  clock_.advance(milliseconds(19'900));
  poll();
  EXPECT_EQ(script_.closed, 0);
  clock_.advance(milliseconds(200));
  poll();
  EXPECT_EQ(script_.closed, 1);
}

}  // namespace
}  // namespace headrace
