#include "headrace/store/transfer/retry.h"

#include <cmath>

#include "headrace/format/http_date.h"
#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// ── Pure ─────────────────────────────────────────────────────────────────────────────────────

TEST(IsRetryable, IsTheLastColumnOfTheErrorTable) {
  for (const Code code : {Code::kThrottled, Code::kUnavailable, Code::kTimedOut}) {
    EXPECT_TRUE(is_retryable(Error(code, "x"))) << to_string(code);
  }
  for (const Code code :
       {Code::kInvalidArgument, Code::kNotFound, Code::kPermissionDenied, Code::kPreconditionFailed,
        Code::kCorrupt, Code::kCancelled, Code::kExhausted, Code::kInternal}) {
    EXPECT_FALSE(is_retryable(Error(code, "x"))) << to_string(code);
  }
}

TEST(Backoff, IsUniformBelowABoundThatGrowsAndIsCapped) {
  const RetryOptions options{.initial_backoff = milliseconds(100),
                             .max_backoff = milliseconds(1000),
                             .backoff_multiplier = 2};
  const Error error(Code::kUnavailable, "x");
  Rng rng(7);
  for (int attempt = 1; attempt <= 8; ++attempt) {
    const double bound = std::min(1000.0, 100 * std::pow(2, attempt - 1));
    double sum = 0, highest = 0;
    constexpr int kDraws = 2000;
    for (int i = 0; i < kDraws; ++i) {
      const auto wait = static_cast<double>(backoff(options, attempt, error, rng).count());
      ASSERT_GE(wait, 0);
      ASSERT_LE(wait, bound);
      sum += wait;
      highest = std::max(highest, wait);
    }
    EXPECT_NEAR(sum / kDraws, bound / 2, bound * 0.05) << "attempt " << attempt;
    EXPECT_GT(highest, bound * 0.95);
  }
}

TEST(Backoff, IsTheSameForTheSameSeed) {
  const RetryOptions options;
  const Error error(Code::kUnavailable, "x");
  Rng one(3), other(3);
  for (int attempt = 1; attempt < 6; ++attempt) {
    EXPECT_EQ(backoff(options, attempt, error, one), backoff(options, attempt, error, other));
  }
}

TEST(Backoff, TakesRetryAfterAsALowerBoundAndStretchesItByAQuarterAtMost) {
  const RetryOptions options{.initial_backoff = milliseconds(10'000),
                             .max_backoff = milliseconds(20'000)};
  const Error error = Error(Code::kThrottled, "x").with_retry_after(milliseconds(30'000));
  Rng rng(11);
  int64_t lowest = INT64_MAX, highest = 0;
  for (int i = 0; i < 2000; ++i) {
    const int64_t wait = backoff(options, 3, error, rng).count();
    ASSERT_GE(wait, 30'000);
    ASSERT_LE(wait, 37'500);
    lowest = std::min(lowest, wait);
    highest = std::max(highest, wait);
  }
  EXPECT_LT(lowest, 30'500);   // not everybody later than asked
  EXPECT_GT(highest, 37'000);  // and not all together
}

TEST(Backoff, TakesBothFormsOfRetryAfter) {
  const RetryOptions options{.initial_backoff = milliseconds(1), .max_backoff = milliseconds(1)};
  const auto now = parse_rfc3339("2026-11-21T06:00:00Z").value();
  Rng rng(1);
  for (const char* text : {"90", "Sat, 21 Nov 2026 06:01:30 GMT"}) {
    const Error error =
        Error(Code::kUnavailable, "x").with_retry_after(parse_retry_after(text, now));
    const int64_t wait = backoff(options, 1, error, rng).count();
    EXPECT_GE(wait, 90'000) << text;
    EXPECT_LE(wait, 90'001) << text;
  }
}

TEST(RetryBudget, AllowsItsTokensAndEarnsATenthPerSuccess) {
  RetryBudget budget(3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.try_spend());
  EXPECT_FALSE(budget.try_spend());
  for (int i = 0; i < 9; ++i) budget.earn();
  EXPECT_FALSE(budget.try_spend());
  budget.earn();
  EXPECT_TRUE(budget.try_spend());
  EXPECT_FALSE(budget.try_spend());
}

TEST(RetryBudget, SavesUpNoMoreThanItsTokens) {
  RetryBudget budget(2);
  for (int i = 0; i < 1000; ++i) budget.earn();
  EXPECT_TRUE(budget.try_spend());
  EXPECT_TRUE(budget.try_spend());
  EXPECT_FALSE(budget.try_spend());
}

// ── Against a server ─────────────────────────────────────────────────────────────────────────

class RetryTest : public StoreTest {
 protected:
  const std::string bytes_ = some_bytes(5000);
  const ObjectInfo object_ = server_.put("a/b", bytes_);
};

class RetriedStatus : public RetryTest, public ::testing::WithParamInterface<int> {};

TEST_P(RetriedStatus, IsTriedAgainUntilItSucceeds) {
  server_.faults(
      cat(R"([{"match":{"kind":"media"},"count":3,"action":{"status":)", GetParam(), "}}]"));
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_EQ(server_.stat("/by_kind/media"), 4u);
  EXPECT_EQ(engine_.metrics().retries_total, 3u);
}

INSTANTIATE_TEST_SUITE_P(, RetriedStatus, ::testing::Values(408, 429, 500, 502, 503, 504),
                         ::testing::PrintToStringParamName());

class FinalStatus : public RetryTest, public ::testing::WithParamInterface<std::pair<int, Code>> {};

TEST_P(FinalStatus, IsAskedOnce) {
  const auto [status, code] = GetParam();
  server_.faults(cat(R"([{"match":{"kind":"media"},"action":{"status":)", status, "}}]"));
  const Result<std::string> got = read(*open(), listed(object_));
  EXPECT_THAT(got, FailsWith(code, AllOf(HasSubstr("gs://bucket/a/b"), HasSubstr("1 attempt"))));
  EXPECT_EQ(got.error().http_status(), status);
  EXPECT_EQ(server_.stat("/by_kind/media"), 1u);
}

INSTANTIATE_TEST_SUITE_P(, FinalStatus,
                         ::testing::Values(std::pair(400, Code::kInvalidArgument),
                                           std::pair(401, Code::kPermissionDenied),
                                           std::pair(403, Code::kPermissionDenied),
                                           std::pair(404, Code::kNotFound),
                                           std::pair(410, Code::kNotFound),
                                           std::pair(412, Code::kPreconditionFailed)),
                         [](const auto& info) { return std::to_string(info.param.first); });

TEST_F(RetryTest, EndsAtMaxAttemptsAndSaysHowManyThereWere) {
  options_.retry.max_attempts = 4;
  server_.faults(R"([{"match":{"kind":"media"},"action":{"status":503}}])");
  const Result<std::string> got = read(*open(), listed(object_));
  EXPECT_THAT(got, FailsWith(Code::kUnavailable, HasSubstr("4 attempts")));
  EXPECT_EQ(got.error().attempts(), 4);
  EXPECT_EQ(got.error().http_status(), 503);
  EXPECT_EQ(server_.stat("/by_kind/media"), 4u);
}

TEST_F(RetryTest, TheLargestNumberOfAttemptsIsNotTakenForNone) {
  options_.retry.max_attempts = UINT32_MAX;
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"status":503}}])");
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_EQ(server_.stat("/by_kind/media"), 2u);
}

TEST_F(RetryTest, StopsWhenTheHostsRetryBudgetIsUsedUp) {
  options_.retry.budget_tokens = 5;
  options_.retry.max_attempts = 100;
  server_.faults(R"([{"match":{"kind":"media"},"action":{"status":500}}])");
  const std::shared_ptr<ObjectStore> store = open();
  EXPECT_THAT(read(*store, listed(object_)),
              FailsWith(Code::kUnavailable, HasSubstr("retry budget is used up")));
  EXPECT_EQ(server_.stat("/by_kind/media"), 6u);
  // Nor has the next request any left.
  EXPECT_THAT(read(*store, listed(object_)), FailsWith(Code::kUnavailable, HasSubstr("budget")));
  EXPECT_EQ(server_.stat("/by_kind/media"), 7u);
}

TEST_F(RetryTest, GivesUpAtOnceWhenTheDeadlineIsTooNear) {
  options_.timeout.total = milliseconds(60'000);
  server_.faults(R"([{"match":{"kind":"media"},"action":{"status":503,"retry_after_s":3000}}])");
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kTimedOut, HasSubstr("deadline is too near for another attempt")));
  EXPECT_EQ(server_.stat("/by_kind/media"), 1u);
}

TEST_F(RetryTest, TakesAnHttpDateInRetryAfterFromTheWire) {
  options_.timeout.total = milliseconds(60'000);
  server_.faults(
      R"([{"match":{"kind":"media"},"action":{"status":503,"retry_after_date_s":3000}}])");
  EXPECT_THAT(read(*open(), listed(object_)), FailsWith(Code::kTimedOut, HasSubstr("too near")));
}

TEST_F(RetryTest, ThrottlingIsNoFailureAndGoesOnBeyondMaxAttempts) {
  options_.retry.max_attempts = 2;
  options_.retry.budget_tokens = 1;
  server_.faults(R"([{"match":{"kind":"media"},"count":8,"action":{"status":429}}])");
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_EQ(server_.stat("/by_kind/media"), 9u);
  EXPECT_EQ(engine_.metrics().throttled_total, 8u);
}

TEST_F(RetryTest, ThrottlingByRequestRateNamesItsRemedy) {
  options_.timeout.total = milliseconds(60'000);
  server_.faults(R"([{"match":{"kind":"media"},"action":{"status":429,"retry_after_s":3000,
      "reason":"rateLimitExceeded","message":"The rate of requests is too high."}}])");
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kThrottled,
                        AllOf(HasSubstr("The rate of requests is too high."),
                              HasSubstr("request-rate limit"), HasSubstr("gradual ramp-up"))));
}

TEST_F(RetryTest, ThrottlingByBandwidthNamesItsRemedy) {
  options_.timeout.total = milliseconds(60'000);
  server_.faults(R"([{"match":{"kind":"media"},"action":{"status":429,"retry_after_s":3000,
      "reason":"rateLimitExceeded","message":"The total egress bandwidth limit was exceeded."}}])");
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kThrottled, AllOf(HasSubstr("bandwidth (egress) limit"),
                                                HasSubstr("higher egress quota"))));
}

TEST_F(RetryTest, ListsStatsAndDeletesAreTriedAgainToo) {
  server_.faults(R"([{"match":{"kind":["list","get","delete"]},"every":2,"from":1,
                      "action":{"status":500}},
                     {"match":{"kind":["list","get","delete"]},"count":1,"action":"reset"}])");
  const std::shared_ptr<ObjectStore> store = open();
  EXPECT_EQ(take(store->list({}))->size(), 1u);
  EXPECT_EQ(take(store->stat("a/b"))->generation, object_.generation);
  EXPECT_TRUE(take(store->remove("a/b", {})).has_value());
  EXPECT_GT(engine_.metrics().retries_total, 0u);
  EXPECT_EQ(server_.object("a/b"), std::nullopt);
}

// The course of one request, with a clock of the test's own.
class RetryStateTest : public ::testing::Test {
 protected:
  using Next = RetryState::Next;
  using Remedy = RetryState::Remedy;
  RetryState::Step fail_with(Code code, int http_status = 0) {
    state_.begin_attempt();
    RetryState::Step step =
        state_.after({.error = Error(code, "the reason").with_http_status(http_status),
                      .remedy = http_status == 401 ? Remedy::kNewCredential : Remedy::kNone},
                     now_, deadline_);
    if (step.next == Next::kRetry) now_ += step.wait;
    return step;
  }
  RetryState::Step follow_up() {
    state_.begin_attempt();
    return state_.after({.follow_up = true}, now_, deadline_);
  }

  RetryOptions options_{.max_attempts = 5, .budget_tokens = 100};
  RetryBudget budget_{100};
  Rng rng_{7};
  RetryState state_{options_, budget_, rng_};
  RetryState::TimePoint now_{std::chrono::hours(1)};
  const RetryState::TimePoint deadline_ = now_ + std::chrono::minutes(5);
};

TEST_F(RetryStateTest, AFailureThatMayPassIsRepeatedUpToMaxAttempts) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(fail_with(Code::kUnavailable).next, Next::kRetry);
  const RetryState::Step last = fail_with(Code::kUnavailable);
  EXPECT_EQ(last.next, Next::kFail);
  EXPECT_EQ(last.error->message(), "the reason");
  EXPECT_EQ(state_.attempts(), 5);
}

TEST_F(RetryStateTest, WhatCannotPassIsNotRepeated) {
  EXPECT_EQ(fail_with(Code::kNotFound, 404).next, Next::kFail);
}

TEST_F(RetryStateTest, ThrottlingGoesOnUntilTheDeadlineAndCostsNothing) {
  int repeated = 0;
  RetryState::Step step;
  while ((step = fail_with(Code::kThrottled, 429)).next == Next::kRetry) ++repeated;
  EXPECT_GT(repeated, 10);
  EXPECT_EQ(step.next, Next::kFail);
  EXPECT_EQ(step.error->code(), Code::kThrottled);
  EXPECT_LT(now_, deadline_);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(budget_.try_spend()) << "the budget is untouched";
}

TEST_F(RetryStateTest, ThrottlingBeforeDoesNotUseUpTheAttempts) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(fail_with(Code::kThrottled, 429).next, Next::kRetry);
    now_ = deadline_ - std::chrono::minutes(4);
  }
  EXPECT_EQ(fail_with(Code::kUnavailable, 503).next, Next::kRetry);
}

TEST_F(RetryStateTest, WhatIsSentBeforeItsTimeCostsNoAttemptAndWaitsOn) {
  EXPECT_EQ(fail_with(Code::kUnavailable).next, Next::kRetry);
  const auto early = [this](Error error) {
    state_.begin_attempt();
    return state_.after({.error = std::move(error), .left_of_wait = std::chrono::milliseconds(70)},
                        now_, deadline_);
  };
  for (int i = 0; i < 20; ++i) {
    const RetryState::Step step = early(Error(Code::kUnavailable, "the reason"));
    EXPECT_EQ(step.next, Next::kRetry);
    EXPECT_EQ(step.wait, std::chrono::milliseconds(70));
  }
  EXPECT_EQ(state_.attempts(), 1);
  Error asks = Error(Code::kThrottled, "the reason").with_retry_after(std::chrono::seconds(9));
  const RetryState::Step asked = early(std::move(asks));
  EXPECT_EQ(asked.wait, std::chrono::seconds(9)) << "the service asks for more";
  EXPECT_EQ(early(Error(Code::kNotFound, "the reason")).next, Next::kFail);
  for (int i = 0; i < 99; ++i) EXPECT_TRUE(budget_.try_spend()) << "one has been spent";
  EXPECT_FALSE(budget_.try_spend());
}

TEST_F(RetryStateTest, NoAttemptBeginsBeyondTheDeadline) {
  now_ = deadline_;
  const RetryState::Step step = fail_with(Code::kUnavailable, 503);
  EXPECT_EQ(step.next, Next::kFail);
  EXPECT_EQ(step.error->code(), Code::kTimedOut);
  EXPECT_THAT(step.error->message(), ::testing::HasSubstr("the reason"));
  EXPECT_EQ(step.error->http_status(), 503);
}

TEST_F(RetryStateTest, WaitsGrowAndStayBelowTheirBound) {
  options_.max_attempts = 40;
  for (int i = 0; i < 30; ++i) {
    EXPECT_LE(fail_with(Code::kUnavailable).wait, options_.max_backoff);
    now_ = deadline_ - std::chrono::minutes(4);
  }
}

TEST_F(RetryStateTest, AnExhaustedBudgetEndsTheRequest) {
  while (budget_.try_spend()) {
  }
  const RetryState::Step step = fail_with(Code::kUnavailable);
  EXPECT_EQ(step.next, Next::kFail);
  EXPECT_THAT(step.error->message(), ::testing::HasSubstr("retry budget is used up"));
}

TEST_F(RetryStateTest, RejectedCredentialsAreReplacedOnce) {
  EXPECT_EQ(fail_with(Code::kPermissionDenied, 401).next, Next::kAgain);
  EXPECT_EQ(fail_with(Code::kPermissionDenied, 401).next, Next::kFail);
}

TEST_F(RetryStateTest, AConnectionThatDiedIdleCostsNoAttemptOnce) {
  const auto go_stale = [&] {
    state_.begin_attempt();
    return state_.after(
        {.error = Error(Code::kUnavailable, "closed"), .remedy = Remedy::kFreshConnection}, now_,
        deadline_);
  };
  EXPECT_EQ(go_stale().next, Next::kAgain);
  EXPECT_EQ(state_.attempts(), 0);
  EXPECT_EQ(go_stale().next, Next::kRetry);
  EXPECT_EQ(state_.attempts(), 1);
}

TEST_F(RetryStateTest, ADetourCostsNeitherAnAttemptNorTime) {
  for (int i = 0; i < 10; ++i) {
    state_.begin_attempt();
    const RetryState::Step step =
        state_.after({.error = Error(Code::kUnavailable, "refused"), .remedy = Remedy::kOtherWay},
                     now_, deadline_);
    EXPECT_EQ(step.next, Next::kAgain);
    EXPECT_EQ(step.wait.count(), 0);
    EXPECT_EQ(step.error->message(), "refused");
  }
  EXPECT_EQ(state_.attempts(), 0);
}

TEST_F(RetryStateTest, RequestsThatFollowEachOtherWithoutEndAreSlowedDown) {
  std::chrono::milliseconds waited{0};
  for (int i = 0; i < 100; ++i) {
    const RetryState::Step step = follow_up();
    EXPECT_EQ(step.next, Next::kAgain);
    if (i < 16) EXPECT_EQ(step.wait.count(), 0) << "a few are usual";
    waited += step.wait;
  }
  EXPECT_GT(waited, std::chrono::seconds(1));
  EXPECT_EQ(state_.after({}, now_, deadline_).next, Next::kDone);
}

}  // namespace
}  // namespace headrace
