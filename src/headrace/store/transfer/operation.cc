#include "headrace/store/transfer/operation.h"

#include <algorithm>
#include <new>
#include <utility>

#include "headrace/store/timeline/timeline.h"

namespace headrace {

using std::chrono::steady_clock;

namespace {

constexpr std::chrono::nanoseconds kLateWhileQueueing = std::chrono::seconds(1);

}  // namespace

Operation::Operation(Permit& permit, StoreContext& store, const void* owner)
    : Activity(permit.lane().thread(), owner, permit.lane().thread().now() + store.timeout.total),
      permit_(permit),
      store_(store),
      retries_(store.retry, permit.lane().host().retry_budget, permit.lane().rng()) {
  count_in_flight(true);
}

Operation::~Operation() {
  if (race()) race()->abandon();
  count_in_flight(false);
}

void Operation::count_in_flight(bool in_flight) {
  if (std::exchange(in_flight_, in_flight) == in_flight) return;
  std::atomic<uint64_t>& counter = thread().metrics().in_flight;
  tally(counter, in_flight ? 1 : -uint64_t{1});
}

uint32_t Operation::number() {
  if (number_ == 0) number_ = next_request_number();
  return number_;
}

void Operation::interrupt(const Error& why) {
  if (race()) race()->stop(why);
  if (!connection_) return;
  if (connection_->waits_for_answer() && attempt_->linger_when_stopped().count() > 0 &&
      !thread().stopping()) {
    linger_until_ = thread().now() + attempt_->linger_when_stopped();
  } else {
    connection_->abort(why);
  }
}

void Operation::sweep(steady_clock::time_point now) {
  HostLog& log = via().host().log;
  if (rare_ && rare_->opening_since && now - *rare_->opening_since >= HostLog::kConnectingAfter) {
    log.failed(Error(Code::kTimedOut, "no connection yet"), *rare_->opening_since);
    rare_->opening_since.reset();
  }
  if (log.failing()) log.tell_failing(deadline(), now);
  const auto age = now - (deadline() - store_.timeout.total);
  if (!told_slow_ && age >= HostLog::kSlowAfter && retries_.attempts() > 0) {
    told_slow_ = true;
    log.slow(attempt_->url(), retries_.attempts(), age, now);
  }
  if (!connection_) return;
  if (linger_until_ && now >= *linger_until_) connection_->abort(*stopped());
  if (attempt_->waits_in_vain(now)) {
    connection_->abort(Error(Code::kCorrupt, "the answer does not end after what it has to tell"));
  }
  connection_->check_stall(now);
  if (!store_.hedge || !reached_server_ || stopped()) return;
  if (connection_->waits_for_answer()) {
    hedge_if_late(now);
  } else if (attempt_->body_bytes() > 0) {
    replace_if_slow(now);
  }
}

// Once a request that only reads has waited for longer than almost all of its kind, it is also sent
// over another connection: see race.h.
void Operation::hedge_if_late(steady_clock::time_point now) {
  Race* const running = race();
  if (running != nullptr &&
      (running->is_decided() || running->hedge_count() == HedgeRules::kMostHedges)) {
    return;
  }
  const std::optional<ExpectedAnswer> expected = attempt_->hedgeable();
  const HttpRequest* const request = connection_->request();
  if (!expected || !request->body.empty()) return;
  HedgeRules& rules = via().hedges();
  const std::optional<std::chrono::nanoseconds> late_after = rules.late_after(expected->kind);
  if (!late_after) return;
  const auto late_at =
      (running != nullptr ? running->newest_began() : connection_->sent_at()) + *late_after;
  if (now < late_at) return thread().sweep_by(late_at);
  // Not if it is this thread that is late, nor if more requests are what makes answers late.
  if (connection_->has_unread()) return;
  Host& own = permit_.lane().host();
  // Of queues it is known what the last answers told, which may be long ago.
  const bool is_very_late = now - late_at >= std::max(kLateWhileQueueing, *late_after);
  if (own.admission.queueing() && !is_very_late) return;
  if (own.holds_hedges(now) || via().host().holds_hedges(now)) return;
  std::shared_ptr<Gate::Pass> pass;
  if (store_.gate && running == nullptr) {
    pass = store_.gate->enter();
    if (pass == nullptr) return;
  }
  const HostLane& lane = permit_.lane();
  if (!rules.begin(*expected, lane.permit_limit(), lane.has_free_permit())) return;
  try {
    if (running == nullptr) {
      rare().race = std::make_shared<Race>(via(), *attempt_, *connection_, *expected,
                                           std::move(pass), deadline());
      race()->set_number(number());
    }
    race()->add(*request);
  } catch (const std::bad_alloc&) {
    rules.end();  // the first attempt goes on alone
  }
}

// A body that comes far slower than its neighbours is asked for from where it is, over another
// connection and pinned to its generation.
void Operation::replace_if_slow(steady_clock::time_point now) {
  if (race() || !attempt_->resumes()) return;
  const std::optional<ExpectedAnswer> expected = attempt_->hedgeable();
  const uint64_t received = attempt_->body_bytes();
  if (!expected || expected->bytes < BodyRates::kLeastBytes || received >= expected->bytes) return;
  const auto began = connection_->sent_at() + connection_->first_byte_latency();
  if (!via().body_rates().is_slow(received, expected->bytes - received, began, now)) return;
  Host& own = permit_.lane().host();
  if (own.admission.queueing() || own.holds_hedges(now) || via().host().holds_hedges(now)) return;
  if (rare().replaced_bodies == HedgeRules::kMostHedges || !via().hedges().pay_for_rest()) return;
  ++rare().replaced_bodies;
  rare().is_replaced = true;
  tally(thread().metrics().bodies_replaced_total);
  connection_->abort(Error(Code::kUnavailable, "its body came far slower than others"));
}

Error Operation::finished(const Attempt& attempt, Error error) const {
  if (stopped()) {
    // A message that says more than the bare reason, such as what it was waiting for, is kept.
    const bool says_more = error.message().starts_with(stopped()->message());
    std::string message = says_more ? error.message() : stopped()->message();
    if (last() != nullptr) message += cat("; the last attempt failed with: ", last()->message());
    // If it was throttled to the end, the caller must know, wherever the deadline found us.
    const bool throttled = last() != nullptr && last()->code() == Code::kThrottled;
    const bool timed_out = stopped()->code() == Code::kTimedOut;
    error = Error(last() != nullptr ? *last() : *stopped())
                .with_code(throttled && timed_out ? Code::kThrottled : stopped()->code())
                .with_message(std::move(message));
  }
  return std::move(error).with_url(attempt.url()).with_attempts(retries_.attempts());
}

awaitable<Result<void>> authorize(Activity& waiting, StoreContext& store) {
  while (true) {
    Credentials::Current current =
        store.credentials->current(waiting.thread().now(), waiting.waker());
    store.credential = current.credential;
    store.credential_version = current.version;
    store.credential_fresh_until = current.fresh_until;
    if (current.credential) co_return Result<void>();
    if (current.error) co_return std::unexpected(std::move(*current.error));
    co_await waiting.park(waiting.deadline());
    if (const std::optional<Error>& stopped = waiting.stopped()) {
      co_return fail(stopped->code(), stopped->message(), " while waiting for credentials");
    }
  }
}

// Where the next attempt goes: what this request was told, into the cluster, or where the bucket is
// now.
Result<void> Operation::choose_lane(const Protocol& protocol, HttpRequest& request) {
  if (cluster_) cluster_->begin_attempt();
  Result<std::shared_ptr<HostLane>> lane = nullptr;
  if (const Elsewhere* const there = elsewhere()) {
    if (!there->target.empty()) {
      request.target = there->target;
    } else {
      request.target.resize(std::min(request.target.find('?'), request.target.size()));
      request.target.append("?").append(there->query);
    }
    request.waits_for_continue = false;
    lane = store_.elsewhere.to(there->endpoint);
  } else if (cluster_) {
    lane = cluster_->choose(request);
  } else if (const std::shared_ptr<const Endpoint> moved_to = protocol.moved_to()) {
    if (moved_to != store_.moved_to) {
      lane = store_.elsewhere.to(*moved_to);
      if (!lane) return std::unexpected(std::move(lane.error()));
      store_.moved_to = moved_to;
      store_.moved_lane = std::move(*lane);
    }
    lane = store_.moved_lane;
  }
  if (!lane) return std::unexpected(std::move(lane.error()));
  other_lane_ = std::move(*lane);
  return {};
}

Operation::Rare& Operation::rare() {
  if (!rare_) rare_ = std::make_unique<Rare>();
  return *rare_;
}

awaitable<void> Operation::settle_race(Result<void>& exchanged) {
  connection_ = co_await race()->settle(std::move(connection_), exchanged);
}

RetryState::Outcome Operation::end_attempt(Attempt& attempt, const HttpRequest& request,
                                           Result<void> exchanged) {
  RetryState::Outcome outcome;
  const bool is_noted = timeline_is_on();
  const steady_clock::time_point last_byte = is_noted ? thread().now() : steady_clock::time_point();
  if (const std::optional<Attempt::Verdict> enough = attempt.enough(); !exchanged && enough) {
    outcome.follow_up = *enough == Attempt::Verdict::kAgain;
  } else if (!exchanged) {
    outcome.error = std::move(exchanged.error());
  } else if (Result<Attempt::Verdict> verdict = attempt.end(); !verdict) {
    outcome.error = std::move(verdict.error());
  } else {
    outcome.follow_up = *verdict == Attempt::Verdict::kAgain;
  }
  const bool is_replaced = rare_ && std::exchange(rare_->is_replaced, false);
  if (outcome.error && connection_->went_stale()) {
    outcome.remedy = Remedy::kFreshConnection;
  } else if (outcome.error && is_replaced) {
    outcome.remedy = Remedy::kAnotherConnection;
  }
  if (const Refusal* refusal = attempt.refusal(); exchanged && outcome.error && refusal) {
    if (refusal->moved || refusal->elsewhere != nullptr) {
      outcome.remedy = Remedy::kElsewhere;
    } else if (store_.credentials != nullptr && refusal->stale_credentials) {
      outcome.remedy = Remedy::kNewCredential;
    }
    if (refusal->server_time) {
      store_.clock_offset = *refusal->server_time - thread().clock().wall_now();
    }
  }
  if (exchanged) judge_headers(attempt, request, outcome);
  if (outcome.remedy == Remedy::kNewCredential) rare().had_credentials = true;
  outcome.spoilt = outcome.error && outcome.error->code() == Code::kCorrupt && exchanged &&
                   attempt.arrived_spoilt();
  if (exchanged && request.waits_for_continue) judge_wait(attempt, outcome);
  if (cluster_) {
    cluster_->judge({.attempt = attempt,
                     .via = via(),
                     .exchanged = exchanged.has_value(),
                     .reached_server = reached_server_,
                     .stopped = stopped().has_value(),
                     .credential_version = credential_version_,
                     .error_before = last()},
                    outcome);
  }
  if (exchanged) {
    record_answer(outcome, attempt.body_bytes() + request.body_bytes());
    const bool failed = outcome.error && is_retryable(*outcome.error);
    const auto expected =
        store_.hedge && !failed ? attempt.hedgeable() : std::optional<ExpectedAnswer>();
    if (expected) {
      HedgeRules& rules = via().hedges();
      rules.earn(attempt.body_bytes());
      if (attempt.body_bytes() >= BodyRates::kLeastBytes && !race()) {
        const auto head_at = connection_->sent_at() + connection_->first_byte_latency();
        via().body_rates().took(attempt.body_bytes(), thread().now() - head_at, thread().now());
      }
      if (!race() || !race()->hedge_has_won()) {
        rules.took(expected->kind, connection_->first_byte_latency(), thread().now());
      }
    }
  }
  if (is_noted) note(request, outcome.error, last_byte);
  if (rare_) rare_->race.reset();
  via().connections().give_back(std::move(connection_));
  return outcome;
}

// Takes out what the service is known to refuse, or what is tried without.
void Operation::leave_out_headers(const Protocol& protocol, HttpRequest& request,
                                  steady_clock::time_point now) {
  if (request.optional == 0) return;
  const HeaderGroups tried_without = rare_ ? rare_->without : HeaderGroups{0};
  const auto without = static_cast<HeaderGroups>(
      request.optional & (store_.learned->refused(request.optional, now) | tried_without));
  if (without == 0) return;
  leave_out(request.header_lines, protocol.optional_headers(), without);
  request.optional &= static_cast<HeaderGroups>(~without);
}

void Operation::end_header_trial() {
  if (!rare_) return;
  rare_->without = rare_->named = rare_->guessed = 0;
  rare_->with_headers.reset();
}

// A refusal that headers may be the reason for: the same request follows without one group of them.
// If that is carried out, they were. If nothing is left to leave out, the first refusal counts.
void Operation::judge_headers(Attempt& attempt, const HttpRequest& request,
                              RetryState::Outcome& outcome) {
  const bool is_trial = rare_ && rare_->without != 0;
  const HeaderGroups sent = request.optional;
  if (sent == 0 && !is_trial) return;
  if (outcome.moved()) return end_header_trial();  // it is about the place, and the next one judges
  using Treatment = Learned::Treatment;
  LearnedOfBucket& learned = *store_.learned;
  const std::span<const OptionalHeaders> optional = attempt.protocol().optional_headers();
  const auto now = thread().now();
  const Refusal* const refusal = attempt.refusal();
  if (refusal == nullptr && outcome.error) return;  // not understood: no matter of headers
  const Code code = refusal != nullptr ? refusal->error.code() : Code::kInternal;
  // What asks for an object and hears that there is none was understood as well.
  if (refusal == nullptr || code == Code::kNotFound || code == Code::kPreconditionFailed) {
    if (is_trial) {
      const HeaderGroups news = learned.note(rare_->without, Treatment::kRefused, now);
      via().host().log.headers_left_out(optional, news, *rare_->with_headers);
      end_header_trial();
    }
    if (refusal == nullptr) static_cast<void>(learned.note(sent, Treatment::kTaken, now));
    return;
  }
  if (!attempt.may_do_without()) {
    // A service that is busy has not judged yet: the trial is sent again like any other request.
    if (!is_trial || (outcome.error && is_retryable(*outcome.error))) return;
    // Without them it gets another answer than with them, which was the one to tell, but for one
    // that is about who asks.
    if (outcome.error && code != Code::kPermissionDenied) outcome.error = rare_->with_headers;
    end_header_trial();
    return;
  }
  // The credentials first, where they may be the reason.
  if (outcome.remedy == Remedy::kNewCredential && !std::exchange(rare().had_credentials, true)) {
    return;
  }
  const HeaderGroups named = rare().named, guessed = rare().guessed;
  // 501 says that something is not known. 400 may be about anything: what was taken before is not
  // the reason.
  const bool is_sure = refusal->error.http_status() == 501;
  const auto likely =
      static_cast<HeaderGroups>((is_sure ? sent : sent & ~learned.taken(sent, now)) & ~guessed);
  HeaderGroups next = 0;
  if (const auto told =
          static_cast<HeaderGroups>(named_groups(outcome.error->message(), optional) & sent)) {
    next = rare().named = named | told;
  } else if (likely != 0) {
    const auto guess = static_cast<HeaderGroups>(likely & -likely);
    next = named | guess;
    rare().guessed |= guess;
  } else if (is_trial && rare().without != (named | guessed)) {
    next = named | guessed;  // no single one: all of them
  }
  // A service that sends requests elsewhere, and back, could have it go on for ever.
  if (next != 0 && ++rare().header_trials > 2 * kMostHeaderGroups) next = 0;
  if (next == 0) {
    rare().named = rare().guessed = 0;
    if (is_trial) {
      rare_->without = 0;
      outcome.error = *std::exchange(rare_->with_headers, std::nullopt);
    }
    Result<Attempt::Verdict> verdict = attempt.take_refusal(std::move(*outcome.error));
    outcome.error.reset();
    if (verdict) {
      outcome.follow_up = *verdict == Attempt::Verdict::kAgain;
    } else {
      outcome.error = std::move(verdict.error());
    }
    return;
  }
  if (!is_trial) rare().with_headers = *outcome.error;
  rare().without = next;
  outcome.error.reset();
  outcome.remedy = Remedy::kNone;
  outcome.follow_up = true;
}

// Whether the server knows of bodies that wait until it asks for them.
void Operation::judge_wait(const Attempt& attempt, RetryState::Outcome& outcome) {
  const bool is_refused = attempt.status() == 417;  // "Expectation Failed"
  if (connection_->sent_unasked() || is_refused) {
    via().host().asks_for_bodies.note(Learned::Treatment::kRefused, thread().now());
  }
  if (!is_refused) return;
  // The same again, without.
  outcome.error.reset();
  outcome.follow_up = true;
}

// Into the timeline: when the present attempt did what.
void Operation::note(const HttpRequest& request, const std::optional<Error>& error,
                     steady_clock::time_point last_byte) {
  AttemptRecord record;
  const Race* const running = race();
  if (retries_.attempts() == 1) record.queued = attempt_->queued();
  record.begun = running != nullptr ? running->first_begun() : connection_->begun_at();
  record.connected = running != nullptr ? running->first_opened() : connection_->opened_at();
  if (reached_server_) {
    record.sent = running != nullptr ? running->first_sent() : connection_->sent_at();
    // Where sending was not the end of it, the connection tells of the request before.
    if (record.sent < record.begun) record.sent = {};
    record.last_byte = last_byte;
  }
  record.status = static_cast<uint16_t>(attempt_->status());
  if (record.status != 0) {
    record.first_byte =
        record.sent + (running != nullptr ? running->waited() : connection_->first_byte_latency());
    record.bytes = attempt_->body_bytes() + request.body_bytes();
  }
  record.ended = thread().now();
  record.number = number();
  record.thread = thread().index();
  record.attempt = static_cast<uint16_t>(std::min(retries_.attempts(), 0xffff));
  if (error) {
    record.end = AttemptEnd::kFailed;
    record.code = error->code();
  }
  record.was_hedged = running != nullptr;
  record.method.keep_front(request.method);
  record.host.keep_front(via().host().authority);
  record.set_target(request.target);
  note_attempt(record);
}

// Whether what the cluster has just refused, or could not be reached for, may be there in a while.
awaitable<bool> Operation::may_come_back(const Attempt& attempt,
                                         const RetryState::Outcome& outcome) {
  if (!cluster_ || attempt.asks_for_map() || !outcome.error || outcome.moved()) co_return false;
  const bool is_lost = outcome.error->code() == Code::kNotFound && attempt.refusal() != nullptr &&
                       attempt.is_known_to_exist();
  // The endpoint sends requests to a host that has died until it has noticed.
  const bool is_away = elsewhere() != nullptr && !reached_server_ && is_retryable(*outcome.error);
  if (!is_lost && !is_away) co_return false;
  co_return co_await cluster_->may_come_back(*this);
}

// What it says about how many requests, and how fast, may be sent.
void Operation::record_answer(const RetryState::Outcome& outcome, uint64_t bytes) {
  HostLane& lane = permit_.lane();
  const auto now = thread().now();
  const std::chrono::nanoseconds latency =
      race() ? race()->waited() : connection_->first_byte_latency();
  Metrics& metrics = thread().metrics();
  if (retries_.attempts() == 1 && attempt_->queued() != steady_clock::time_point()) {
    const auto begun = race() ? race()->first_begun() : connection_->begun_at();
    tally_time(metrics.queue_ns_total, begun - attempt_->queued());
  }
  tally_time(metrics.first_byte_ns_total, latency);
  tally_time(metrics.body_ns_total,
             now - connection_->sent_at() - connection_->first_byte_latency());
  const bool throttled = outcome.error && outcome.error->code() == Code::kThrottled;
  // A failure says neither how much the service bears nor how fast it is.
  if (outcome.error && !throttled && !outcome.moved() && is_retryable(*outcome.error)) return;
  if (throttled) lane.host().hold_hedges(now);
  const bool paced = throttled || store_.pace->refused();
  if (paced && store_.pace->report(throttled, latency, now)) lane.set_apart(store_.pace);
  AdmissionReport report{.completed = throttled ? 0u : 1u,
                         .unhindered = paced ? 0u : 1u,
                         .throttled = throttled ? 1u : 0u,
                         .bytes = bytes};
  if (!throttled) {
    // With what it sends, but without what its connection took to open.
    const auto began = race() ? std::max(race()->first_begun(), race()->first_opened())
                              : std::max(connection_->begun_at(), connection_->opened_at());
    report.add(latency, now - began);
  }
  lane.record_outcome(report, now);
}

// For the log and for what waits: whether the host answers, and whether it throttles.
void Operation::note_outcome(const RetryState::Outcome& outcome, steady_clock::time_point now) {
  Host& host = via().host();
  // To be sent elsewhere is an answer, too.
  if (!outcome.error || outcome.moved() || !is_retryable(*outcome.error)) {
    host.log.answered(now);
    via().succeeded(host.outages);
    permit_.lane().succeeded(store_.pace->outages());
  } else if (outcome.error->code() == Code::kThrottled) {
    tally(thread().metrics().throttled_total);
    rare().outage = store_.pace->outages().failed(now, permit_.lane().rng());
    host.log.answered(now);
    host.log.throttled(store_.pace->root(), store_.pace->per_s(), now);
  } else if (!outcome.lost_connection()) {
    host.log.failed(*outcome.error, now);
    rare().outage = host.outages.failed(now, permit_.lane().rng());
  }
}

// What the service has asked for is waited for in any case.
awaitable<void> Operation::back_off(steady_clock::time_point until) {
  const std::shared_ptr<Outage> outage = std::exchange(rare().outage, nullptr);
  const auto asked = last()->retry_after().value_or(std::chrono::milliseconds(0));
  const auto asked_until = std::min(until, thread().now() + asked);
  while (!stopped() && thread().now() < asked_until) co_await park(asked_until);
  // With the others that wait for the same.
  HostLane& lane = last()->code() == Code::kThrottled ? permit_.lane() : via();
  const bool is_early = co_await lane.wait_out(*this, outage, until);
  if (is_early) rare_->due_at = until;
}

// Before the same request is sent again at once, because of `error`.
void Operation::apply(Remedy remedy, Attempt& attempt, const HttpRequest& request,
                      std::optional<Error> error) {
  switch (remedy) {
    case Remedy::kNone: break;
    case Remedy::kFreshConnection:
    case Remedy::kAnotherConnection:
      attempt.will_retry();
      end_header_trial();  // what follows may be another request
      break;
    case Remedy::kNewCredential: store_.credentials->reject(credential_version_); break;
    case Remedy::kElsewhere:
      if (goes_direct()) break;
      rare().elsewhere = attempt.refusal()->elsewhere;
      if (cluster_ && elsewhere()) cluster_->was_told(elsewhere()->endpoint, request);
      break;
    case Remedy::kOtherWay:
      if (&via() != &permit_.lane()) break;
      rare().last = std::move(error);
      via().host().log.bypassed(*last(), cluster_->entrance().host().log.host(), thread().now());
      break;
  }
}

// False if it is stopped.
awaitable<bool> Operation::wait_for_turn() {
  count_in_flight(false);
  const bool taken = co_await permit_.take(*this, store_.pace);
  count_in_flight(taken);
  co_return taken;
}

awaitable<Result<void>> Operation::run(Attempt& attempt, HttpRequest& request) {
  using Next = RetryState::Next;
  attempt_ = &attempt;
  if (store_.cluster) cluster_.emplace(*store_.cluster, permit_.lane());
  attempt.charge_to(permit_.lane().pool());
  bool fresh_next = false;
  // A connection that had been used was closed without notice: this server may do so each time.
  bool distrusts_idle = false;
  while (true) {
    if (stopped()) co_return std::unexpected(finished(attempt, *stopped()));

    // Admission: a turn, if the server has ever asked for a pace.
    if (store_.pace->refused() && !permit_.use_turn()) {
      if (!co_await wait_for_turn()) continue;
      permit_.use_turn();
    }

    auto now = thread().now();
    request.clear();
    attempt.build(request);
    if (Result<void> chosen = choose_lane(attempt.protocol(), request); !chosen) {
      co_return std::unexpected(finished(attempt, std::move(chosen.error())));
    }
    leave_out_headers(attempt.protocol(), request, now);
    attempt.begin(goes_direct(), request.optional != 0 || (rare_ && rare_->without != 0),
                  store_.credentials != nullptr && !(rare_ && rare_->had_credentials));
    if (store_.credentials) {
      const bool valid = store_.credential && now < store_.credential_fresh_until &&
                         store_.credential_version == store_.credentials->version();
      if (!valid) {
        if (Result<void> done = co_await authorize(*this, store_); !done) {
          co_return std::unexpected(finished(attempt, std::move(done.error())));
        }
      }
      store_.signer->sign(request, *store_.credential,
                          {.authority = via().host().authority,
                           .base_path = via().host().route->endpoint.base_path},
                          thread().clock().wall_now() + store_.clock_offset);
      credential_version_ = store_.credential_version;
    }

    const bool is_new =
        std::exchange(fresh_next, false) || request.on_new_connection || distrusts_idle;
    if (!is_new && via().connections().opens_ahead()) {
      rare().opening_since = now;
      co_await via().connections().wait_for_opening(*this);
      rare_->opening_since.reset();
      if (stopped()) continue;
      now = thread().now();
    }
    retries_.begin_attempt();
    reached_server_ = false;
    const bool changes = request.method != "GET" && request.method != "HEAD";
    if (request.waits_for_continue) {
      request.waits_for_continue =
          via().host().asks_for_bodies.at(now) != Learned::Treatment::kRefused;
    }
    connection_ =
        is_new ? via().connections().make() : via().connections().take(/*must_look=*/changes);
    connection_->begin_use(now);
    Result<void> exchanged;
    if (!connection_->reusable()) {
      rare().opening_since = now;
      exchanged = co_await connection_->open(*this, via().resolver());
      rare_->opening_since.reset();
      if (exchanged) connection_->opened(thread().now());
    }
    if (exchanged) {
      tally(thread().metrics().requests_total);
      reached_server_ = true;
      exchanged = co_await connection_->exchange(request, attempt);
      if (race()) co_await settle_race(exchanged);
    }
    RetryState::Outcome outcome = end_attempt(attempt, request, std::move(exchanged));
    if (outcome.error && cluster_) outcome.unsettled = co_await may_come_back(attempt, outcome);
    if (stopped() && outcome.error) continue;

    now = thread().now();
    note_outcome(outcome, now);
    if (rare_) {
      const auto due_at = std::exchange(rare_->due_at, steady_clock::time_point());
      outcome.left_of_wait = std::chrono::ceil<std::chrono::milliseconds>(
          std::max(due_at - now, steady_clock::duration::zero()));
    }
    const Remedy remedy = outcome.remedy;
    distrusts_idle |= remedy == Remedy::kFreshConnection;
    const bool same_host = outcome.lost_connection();
    RetryState::Step step = retries_.after(std::move(outcome), now, deadline());
    // The next attempt begins at the store's own endpoint. After a change it is a stat of the
    // outcome, perhaps of another object.
    const bool is_same = request.method == "GET" || request.method == "HEAD";
    if (rare_ && (step.next != Next::kAgain || !same_host || !is_same)) rare_->elsewhere.reset();
    if (step.next == Next::kRetry && attempt.has_alternative()) step.next = Next::kFail;
    switch (step.next) {
      case Next::kDone: co_return Result<void>();
      case Next::kAgain:
        fresh_next = same_host;
        apply(remedy, attempt, request, std::move(step.error));
        break;
      case Next::kRetry:
        rare().last = std::move(step.error);
        // If it was throttled, arrived spoilt or was never sent, the server did nothing that would
        // have to be looked for.
        if (reached_server_ && last()->code() != Code::kThrottled &&
            last()->code() != Code::kCorrupt) {
          attempt.will_retry();
          end_header_trial();
        }
        tally(thread().metrics().retries_total);
        via().host().log.retrying(attempt.url(), retries_.attempts(), *last(), step.wait, now);
        if (last()->code() == Code::kThrottled) {
          permit_.step_aside(store_.pace);
          count_in_flight(false);
        }
        break;
      case Next::kFail: co_return std::unexpected(finished(attempt, std::move(*step.error)));
    }
    if (step.next == Next::kRetry) {
      co_await back_off(now + step.wait);
    } else if (step.wait.count() > 0) {
      co_await park(now + step.wait);
    }
  }
}

}  // namespace headrace
