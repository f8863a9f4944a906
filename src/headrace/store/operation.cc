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
  // The beginning is kept; what is more is read into the same last half and forgotten.
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

Result<void> TextAttempt::begin_body(const ResponseHead& head) {
  filled_ = 0;
  if (head.content_length && *head.content_length > kMaxTextBytes) {
    return corrupt("an answer of ", *head.content_length, " bytes where metadata was expected");
  }
  text_.resize(std::max<size_t>(16 * 1024, head.content_length.value_or(0)));
  return {};
}

Result<std::span<std::byte>> TextAttempt::body_space(uint64_t) {
  if (filled_ == text_.size()) {
    if (filled_ >= kMaxTextBytes) return corrupt("an endless answer where metadata was expected");
    text_.resize(text_.size() * 2);
  }
  return std::as_writable_bytes(std::span(text_).subspan(filled_));
}

Result<void> TextAttempt::took_body(size_t count) {
  filled_ += count;
  return {};
}

Operation::Operation(HostLane& lane, StoreContext& store, const void* owner)
    : Activity(lane.thread(), owner, steady_clock::now() + store.timeout.total),
      lane_(lane),
      store_(store) {}

void Operation::interrupt(const Error& why) {
  if (!connection_) return;
  if (connection_->waits_for_answer() && attempt_->linger_when_stopped().count() > 0 &&
      !thread().stopping()) {
    patient_until_ = steady_clock::now() + attempt_->linger_when_stopped();
  } else {
    connection_->abort(why);
  }
}

void Operation::sweep(steady_clock::time_point now) {
  if (!connection_) return;
  if (patient_until_ && now >= *patient_until_) connection_->abort(*stopped());
  connection_->check_stall(now);
}

Error Operation::finished(const Attempt& attempt, Error error) const {
  if (stopped()) {
    // What says more than the bare reason, such as what it was waiting for, is kept.
    const bool says_more = error.message().starts_with(stopped()->message());
    std::string message = says_more ? error.message() : stopped()->message();
    if (last_) message += cat("; the last attempt failed with: ", last_->message());
    // Throttled to the end is what the caller must know, wherever the deadline found us.
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
  return std::move(error).with_url(attempt.url()).with_attempts(attempts_);
}

awaitable<Result<void>> Operation::authorize() {
  while (true) {
    Credentials::Current current = store_.credentials->current(steady_clock::now(), waker());
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

awaitable<Result<void>> Operation::run(Attempt& attempt, HttpRequest& request) {
  attempt_ = &attempt;
  bool token_rejected = false;
  // A connection that died while idle costs no attempt, once; then a fresh one is used, and what
  // fails on a reused one again fails for another reason than its idleness.
  bool stale_before = false, fresh_next = false;
  uint64_t token_version = 0;  // of the token that this attempt carries; the thread's may change
  while (true) {
    if (stopped()) co_return std::unexpected(finished(attempt, *stopped()));

    // Admission: the pace, if the server has ever asked for one.
    auto now = steady_clock::now();
    for (bool granted = false; !granted && !stopped();) {
      const Admission::Turn turn = lane_.host().admission.reserve(now);
      granted = turn.granted;
      if (turn.at > now) {
        co_await park(turn.at);
        now = steady_clock::now();
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

    // One attempt.
    ++attempts_;
    connection_ = std::exchange(fresh_next, false)
                      ? std::make_unique<Connection>(lane_.thread(), lane_.host().route)
                      : lane_.take_connection(now);
    Result<void> exchanged;
    bool sent = false;
    if (!connection_->reusable()) exchanged = co_await connection_->open(*this, lane_.resolver());
    if (exchanged) {
      count(thread().metrics().requests_total);
      sent = true;
      exchanged = co_await connection_->exchange(request, attempt);
    }
    Result<Attempt::Verdict> verdict;
    if (exchanged) {
      verdict = attempt.end();
    } else {
      verdict = std::unexpected(std::move(exchanged.error()));
    }
    const bool stale = !verdict && connection_->went_stale();
    const bool throttled = !verdict && verdict.error().code() == Code::kThrottled;
    if (exchanged) {
      lane_.record_outcome({.completed = throttled ? 0u : 1u,
                            .throttled = throttled ? 1u : 0u,
                            .bytes = attempt.body_bytes(),
                            .latency_sum = connection_->first_byte_latency()},
                           steady_clock::now());
    }
    lane_.give_back(std::move(connection_));

    // Classify.
    if (verdict) {
      lane_.host().retry_budget.earn();
      if (*verdict == Attempt::Verdict::kDone) co_return Result<void>();
      continue;
    }
    Error error = std::move(verdict.error());
    if (stopped()) continue;
    if (stale && !std::exchange(stale_before, true)) {
      fresh_next = true;
      --attempts_;
      attempt.will_retry();
      continue;
    }
    if (throttled) count(thread().metrics().throttled_total);
    if (error.http_status() == 401 && store_.credentials && !token_rejected) {
      token_rejected = true;
      store_.credentials->reject(token_version);
      continue;
    }
    if (!is_retryable(error) || std::cmp_greater_equal(attempts_, store_.retry.max_attempts)) {
      // Being throttled is no failure of the request: it goes on until its deadline.
      if (!throttled) co_return std::unexpected(finished(attempt, std::move(error)));
    }
    if (!throttled && !lane_.host().retry_budget.try_spend()) {
      error = Error(error.code(), cat(error.message(), " (the host's retry budget is used up)"))
                  .with_http_status(error.http_status())
                  .with_request_id(error.request_id());
      co_return std::unexpected(finished(attempt, std::move(error)));
    }
    // Back off.
    const auto wait = backoff(store_.retry, attempts_, error, lane_.rng());
    if (steady_clock::now() + wait >= deadline()) {
      error = Error(error.code() == Code::kThrottled ? Code::kThrottled : Code::kTimedOut,
                    cat("its deadline is too near for another attempt; the last one failed with: ",
                        error.message()))
                  .with_http_status(error.http_status())
                  .with_request_id(error.request_id());
      co_return std::unexpected(finished(attempt, std::move(error)));
    }
    last_ = std::move(error);
    // Throttled, or never sent: nothing was done, so there is nothing to settle.
    if (sent && !throttled) attempt.will_retry();
    count(thread().metrics().retries_total);
    co_await park(steady_clock::now() + wait);
  }
}

}  // namespace headrace
