#include "headrace/store/operation.h"

#include <algorithm>
#include <utility>

namespace headrace {

using std::chrono::steady_clock;

Result<void> Attempt::on_head(const ResponseHead& head) {
  status_ = head.status;
  accepted_ = accepts(head.status);
  body_bytes_ = 0;
  if (accepted_) return begin_body(head);
  refusal_.resize(kMaxRefusalBytes);
  refusal_filled_ = 0;
  retry_after_ = head.find("retry-after").value_or("");
  request_id_ = head.find("x-guploader-uploadid").value_or("");
  refusal_head(head);
  return {};
}

Result<std::span<std::byte>> Attempt::space(uint64_t outstanding_bytes) {
  if (accepted_) return body_space(outstanding_bytes);
  // The beginning is kept; the rest is read into the second half over and over, and dropped.
  if (refusal_filled_ == refusal_.size()) refusal_filled_ /= 2;
  return std::as_writable_bytes(std::span(refusal_).subspan(refusal_filled_));
}

Result<void> Attempt::on_bytes(size_t count) {
  if (accepted_) {
    body_bytes_ += count;
    return took_body(count);
  }
  refusal_filled_ += count;
  return {};
}

Result<Attempt::Verdict> Attempt::end() {
  if (accepted_) return finish();
  return refused(protocol_.to_error({.http_status = status_,
                                     .body = std::string_view(refusal_).substr(0, refusal_filled_),
                                     .retry_after = retry_after_,
                                     .request_id = request_id_,
                                     .of_removal = removes()}));
}

uint64_t TextAttempt::most_bytes() const {
  const uint64_t share = pool() != nullptr ? pool()->budget_bytes() / 4 : kMaxTextBytes;
  return std::clamp(share, kAlwaysBytes, kMaxTextBytes);
}

void TextAttempt::resize(uint64_t size_bytes) {
  charge_.reset();
  text_.resize(size_bytes);
  if (pool() != nullptr) charge_.emplace(pool()->shared_from_this(), size_bytes);
}

Result<void> TextAttempt::begin_body(const ResponseHead& head) {
  filled_ = 0;
  const uint64_t announced = head.content_length.value_or(0);
  if (announced > most_bytes()) {
    return fail(announced > kMaxTextBytes ? Code::kCorrupt : Code::kExhausted, "an answer of ",
                announced, " bytes where metadata was expected; ", most_bytes(),
                " are taken, a quarter of memory_budget_bytes");
  }
  resize(std::clamp<uint64_t>(announced, 16 * kKiB, kAlwaysBytes));
  return {};
}

Result<std::span<std::byte>> TextAttempt::body_space(uint64_t outstanding_bytes) {
  if (filled_ == text_.size()) {
    if (filled_ >= most_bytes()) {
      return corrupt("an answer of more than ", most_bytes(), " bytes where metadata was expected");
    }
    const uint64_t wanted = outstanding_bytes == 0 ? filled_ * 2 : filled_ + outstanding_bytes;
    resize(std::min({uint64_t{filled_} * 2, wanted, most_bytes()}));
  }
  return std::as_writable_bytes(std::span(text_).subspan(filled_));
}

Result<void> TextAttempt::took_body(size_t count) {
  filled_ += count;
  return {};
}

Operation::Operation(HostLane& lane, StoreContext& store, const void* owner)
    : Activity(lane.thread(), owner, lane.thread().now() + store.timeout.total),
      lane_(lane),
      store_(store),
      retries_(store.retry, lane.host().retry_budget, lane.rng(), store.credentials != nullptr) {
  count(thread().metrics().in_flight);
}

Operation::~Operation() { thread().metrics().in_flight.fetch_sub(1, std::memory_order_relaxed); }

void Operation::interrupt(const Error& why) {
  if (!connection_) return;
  if (connection_->waits_for_answer() && attempt_->linger_when_stopped().count() > 0 &&
      !thread().stopping()) {
    linger_until_ = thread().now() + attempt_->linger_when_stopped();
  } else {
    connection_->abort(why);
  }
}

void Operation::sweep(steady_clock::time_point now) {
  HostLog& log = lane_.host().log;
  if (opening_since_ && now - *opening_since_ >= HostLog::kConnectingAfter) {
    log.failed(Error(Code::kTimedOut, "no connection yet"), *opening_since_);
    opening_since_.reset();
  }
  if (log.failing()) log.tell_failing(deadline(), now);
  const auto age = now - (deadline() - store_.timeout.total);
  if (!told_slow_ && age >= HostLog::kSlowAfter && retries_.attempts() > 0) {
    told_slow_ = true;
    log.slow(attempt_->url(), retries_.attempts(), age, now);
  }
  if (!connection_) return;
  if (linger_until_ && now >= *linger_until_) connection_->abort(*stopped());
  connection_->check_stall(now);
}

Error Operation::finished(const Attempt& attempt, Error error) const {
  if (stopped()) {
    // A message that says more than the bare reason, such as what it was waiting for, is kept.
    const bool says_more = error.message().starts_with(stopped()->message());
    std::string message = says_more ? error.message() : stopped()->message();
    if (last_) message += cat("; the last attempt failed with: ", last_->message());
    // If it was throttled to the end, the caller must know, wherever the deadline found us.
    const bool throttled = last_ && last_->code() == Code::kThrottled;
    const bool timed_out = stopped()->code() == Code::kTimedOut;
    error =
        Error(throttled && timed_out ? Code::kThrottled : stopped()->code(), std::move(message));
    if (last_) {
      error = std::move(error)
                  .with_http_status(last_->http_status())
                  .with_request_id(last_->request_id());
    }
  }
  return std::move(error).with_url(attempt.url()).with_attempts(retries_.attempts());
}

awaitable<Result<void>> Operation::authorize() {
  while (true) {
    Credentials::Current current = store_.credentials->current(thread().now(), waker());
    store_.token = current.token;
    store_.token_version = current.version;
    store_.token_fresh_until = current.fresh_until;
    if (current.token) co_return Result<void>();
    if (current.error) co_return std::unexpected(std::move(*current.error));
    co_await park(deadline());
    if (stopped()) {
      co_return fail(stopped()->code(), stopped()->message(), " while waiting for credentials");
    }
  }
}

RetryState::Outcome Operation::end_attempt(Attempt& attempt, const HttpRequest& request,
                                           Result<void> exchanged) {
  RetryState::Outcome outcome;
  if (!exchanged) {
    outcome.error = std::move(exchanged.error());
  } else if (Result<Attempt::Verdict> verdict = attempt.end(); !verdict) {
    outcome.error = std::move(verdict.error());
  } else {
    outcome.follow_up = *verdict == Attempt::Verdict::kAgain;
  }
  outcome.stale = outcome.error && connection_->went_stale();
  if (exchanged) {
    const bool throttled = outcome.error && outcome.error->code() == Code::kThrottled;
    lane_.record_outcome({.completed = throttled ? 0u : 1u,
                          .throttled = throttled ? 1u : 0u,
                          .bytes = attempt.body_bytes() + request.body_bytes(),
                          .latency_sum = connection_->first_byte_latency()},
                         thread().now());
  }
  lane_.give_back(std::move(connection_));
  return outcome;
}

// For the log: whether the host answers, and whether it throttles.
void Operation::note_outcome(const RetryState::Outcome& outcome, steady_clock::time_point now) {
  Host& host = lane_.host();
  if (!outcome.error || !is_retryable(*outcome.error)) {
    host.log.answered(now);
  } else if (outcome.error->code() == Code::kThrottled) {
    count(thread().metrics().throttled_total);
    host.log.answered(now);
    host.log.throttled(host.admission.pace_per_s(), now);
  } else if (!outcome.stale) {
    host.log.failed(*outcome.error, now);
  }
}

awaitable<Result<void>> Operation::run(Attempt& attempt, HttpRequest& request) {
  using Next = RetryState::Next;
  attempt_ = &attempt;
  attempt.charge_to(lane_.pool());
  bool fresh_next = false;
  uint64_t token_version = 0;  // of the token that this attempt carries; the thread's may change
  while (true) {
    if (stopped()) co_return std::unexpected(finished(attempt, *stopped()));

    // Admission: the pace, if the server has ever asked for one.
    auto now = thread().now();
    for (bool granted = false; !granted && !stopped();) {
      const Admission::Turn turn = lane_.host().admission.reserve(now);
      granted = turn.granted;
      if (turn.at > now) {
        co_await park(turn.at);
        now = thread().now();
      }
    }
    if (stopped()) continue;

    request.clear();
    attempt.build(request);
    if (store_.credentials) {
      const bool valid = store_.token && now < store_.token_fresh_until &&
                         store_.token_version == store_.credentials->version();
      if (!valid) {
        if (Result<void> done = co_await authorize(); !done) {
          co_return std::unexpected(finished(attempt, std::move(done.error())));
        }
      }
      request.add_header("Authorization", store_.token->authorization);
      token_version = store_.token_version;
    }

    retries_.begin_attempt();
    reached_server_ = false;
    connection_ =
        std::exchange(fresh_next, false) ? lane_.new_connection() : lane_.take_connection();
    Result<void> exchanged;
    if (!connection_->reusable()) {
      opening_since_ = now;
      exchanged = co_await connection_->open(*this, lane_.resolver());
      opening_since_.reset();
    }
    if (exchanged) {
      count(thread().metrics().requests_total);
      reached_server_ = true;
      exchanged = co_await connection_->exchange(request, attempt);
    }
    RetryState::Outcome outcome = end_attempt(attempt, request, std::move(exchanged));
    if (stopped() && outcome.error) continue;

    now = thread().now();
    note_outcome(outcome, now);
    RetryState::Step step = retries_.after(std::move(outcome), now, deadline());
    switch (step.next) {
      case Next::kDone: co_return Result<void>();
      case Next::kFollowUp: break;
      case Next::kFreshConnection:
        fresh_next = true;
        attempt.will_retry();
        break;
      case Next::kNewToken: store_.credentials->reject(token_version); break;
      case Next::kRetry:
        last_ = std::move(step.error);
        // If it was throttled or never sent, the server did nothing that would have to be looked
        // for.
        if (reached_server_ && last_->code() != Code::kThrottled) attempt.will_retry();
        count(thread().metrics().retries_total);
        lane_.host().log.retrying(attempt.url(), retries_.attempts(), *last_, step.wait, now);
        break;
      case Next::kFail: co_return std::unexpected(finished(attempt, std::move(*step.error)));
    }
    if (step.next == Next::kRetry || step.wait.count() > 0) co_await park(now + step.wait);
  }
}

}  // namespace headrace
