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

Operation::Operation(Slot& slot, StoreContext& store, const void* owner)
    : Activity(slot.lane().thread(), owner, slot.lane().thread().now() + store.timeout.total),
      slot_(slot),
      store_(store),
      retries_(store.retry, slot.lane().host().retry_budget, slot.lane().rng()) {
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
  HostLog& log = via_->host().log;
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
  HedgeRules& rules = via_->hedges();
  const std::optional<std::chrono::nanoseconds> late_after = rules.late_after(expected->kind);
  if (!late_after) return;
  const auto late_at =
      (running != nullptr ? running->newest_began() : connection_->sent_at()) + *late_after;
  if (now < late_at) return thread().sweep_by(late_at);
  // Not if it is this thread that is late, nor if more requests are what makes answers late.
  if (connection_->has_unread()) return;
  Host& own = slot_.lane().host();
  // Of queues it is known what the last answers told, which may be long ago.
  const bool is_very_late = now - late_at >= std::max(kLateWhileQueueing, *late_after);
  if (own.admission.queueing() && !is_very_late) return;
  if (own.holds_hedges(now) || via_->host().holds_hedges(now)) return;
  std::shared_ptr<Gate::Pass> pass;
  if (store_.gate && running == nullptr) {
    pass = store_.gate->enter();
    if (pass == nullptr) return;
  }
  const HostLane& lane = slot_.lane();
  if (!rules.begin(*expected, lane.slot_limit(), lane.has_free_place())) return;
  try {
    if (running == nullptr) {
      rare().race = std::make_shared<Race>(*via_, *attempt_, *connection_, *expected,
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
  if (!via_->body_rates().is_slow(received, expected->bytes - received, began, now)) return;
  Host& own = slot_.lane().host();
  if (own.admission.queueing() || own.holds_hedges(now) || via_->host().holds_hedges(now)) return;
  if (rare().replaced_bodies == HedgeRules::kMostHedges || !via_->hedges().pay_for_rest()) return;
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

// Null: there is none.
const HostMap* Operation::newest_map() {
  const MapKeeper& keeper = slot_.lane().host().map;
  if (const uint64_t version = keeper.version(); version != store_.map_version) {
    store_.map = keeper.map();
    store_.map_version = version;
    store_.map_lanes.assign(store_.map->hosts.size(), nullptr);
  }
  return store_.map.get();
}

// The lane to the host of the cluster that has the object; null if that is not known.
Result<HostLane*> Operation::direct_lane(const Placement& placement, HttpRequest& request) {
  MapKeeper& keeper = slot_.lane().host().map;
  const auto now = thread().now();
  if (keeper.is_wanted(now) && keeper.begin_fetch()) store_.fetch_map();
  // What is not sent at all says nothing about the hosts.
  if (direct_failed_ || request.object.empty() || request.refused) return nullptr;
  if (!keeper.takes_direct(now)) return nullptr;
  const HostMap* const map = newest_map();
  if (map == nullptr) return nullptr;
  const std::optional<size_t> host = placement.send_to(*map, request);
  if (!host) return nullptr;
  HostLane*& lane = store_.map_lanes[*host];
  if (lane == nullptr) {
    Result<HostLane*> reached = store_.reach(map->hosts[*host]);
    if (!reached) return reached;
    lane = *reached;
  }
  return lane->host().reachability.is_tried(now) ? lane : nullptr;
}

Result<HostLane*> Operation::lane_elsewhere(const Endpoint& endpoint) {
  HostLane*& lane = store_.lanes_elsewhere[endpoint];
  if (lane == nullptr) {
    Result<HostLane*> reached = store_.reach(endpoint);
    if (!reached) return reached;
    lane = *reached;
  }
  return lane;
}

// Another way into the cluster than those that were passed over; null: there is none. One that was
// not reached lately is tried only if no other one was.
HostLane* Operation::next_entrance() {
  const HostMap* const map = newest_map();
  while (map != nullptr && passed_over_ < map->entrances.size()) {
    const Result<HostLane*> lane = lane_elsewhere(map->entrances[passed_over_++]);
    if (!lane || *lane == &slot_.lane()) continue;
    if (none_reached_ || (*lane)->host().reachability.is_tried(thread().now())) return *lane;
  }
  return nullptr;
}

// A request that could not be sent goes by one entrance after the other, the store's endpoint among
// them: nobody has got it, so nothing is done twice. If none can be reached, the error is that of
// the endpoint. One that may have been sent is repeated as ever; if no answer came in time, by
// another entrance.
void Operation::judge_entrance(bool exchanged, RetryState::Outcome& outcome) {
  if (outcome.stale || outcome.replaced) return;  // it is asked again
  HostLane& own = slot_.lane();
  const bool is_own = via_ == &own;
  Reachability& reachability = via_->host().reachability;
  if (exchanged) reachability.reached();
  bool failed = !exchanged && outcome.error && !stopped();
  if (failed && reached_server_) failed = outcome.error->code() == Code::kTimedOut;
  // A certificate that is not accepted, say, is not to be got round.
  if (failed && is_own) failed = is_retryable(*outcome.error);
  if (failed) {
    reachability.failed(thread().now());
    endpoint_failed_ = endpoint_failed_ || is_own;
    entrance_ = next_entrance();
    if (entrance_ == nullptr && !endpoint_failed_) entrance_ = &own;
    if (entrance_ != nullptr) {
      outcome.has_detour = !reached_server_;
      return;
    }
    if (!is_own && !reached_server_) outcome.error = *last_;
  }
  none_reached_ = failed;
  entrance_ = nullptr;
  endpoint_failed_ = false;
  passed_over_ = 0;
}

// The endpoint has just said which host has the object. If the map says another one, it is old:
// what this request changes would not be seen by a read that goes by it.
void Operation::compare_with_map(const Placement& placement, const HttpRequest& request) {
  const HostMap* const map = newest_map();
  if (map == nullptr || request.object.empty()) return;
  const Endpoint& told = elsewhere_->endpoint;
  const std::optional<size_t> owner = placement.owner(*map, request.object);
  if (owner) {
    const std::vector<Endpoint>& others = map->other_endpoints[*owner];
    if (told == map->hosts[*owner] || std::ranges::find(others, told) != others.end()) return;
  }
  MapKeeper& keeper = slot_.lane().host().map;
  const auto now = thread().now();
  if (keeper.contradicted(now)) {
    slot_.lane().host().log.contradicted(
        [&] { return told.authority(); },
        [&] { return owner ? map->hosts[*owner].authority() : std::string("no target"); });
  }
  if (keeper.is_wanted(now) && keeper.begin_fetch()) store_.fetch_map();
}

// Where the next attempt goes: what this request was told, who has the object, or where the bucket
// is now.
Result<void> Operation::choose_lane(const Protocol& protocol, HttpRequest& request) {
  direct_ = entering_ = false;
  if (elsewhere_ != nullptr) {
    if (!elsewhere_->target.empty()) {
      request.target = elsewhere_->target;
    } else {
      request.target.resize(std::min(request.target.find('?'), request.target.size()));
      request.target.append("?").append(elsewhere_->query);
    }
    request.waits_for_continue = false;
    const Result<HostLane*> lane = lane_elsewhere(elsewhere_->endpoint);
    if (!lane) return std::unexpected(lane.error());
    via_ = *lane;
    return {};
  }
  if (const Placement* placement = protocol.placement()) {
    const Result<HostLane*> lane = direct_lane(*placement, request);
    if (!lane) return std::unexpected(lane.error());
    if (*lane != nullptr) {
      via_ = *lane;
      direct_ = true;
      request.waits_for_continue = false;
      return {};
    }
    entering_ = true;
    if (entrance_ == nullptr && !slot_.lane().host().reachability.is_tried(thread().now())) {
      entrance_ = next_entrance();
    }
    if (entrance_ != nullptr) {
      via_ = entrance_;
      return {};
    }
  }
  via_ = &slot_.lane();
  const std::shared_ptr<const Endpoint> moved_to = protocol.moved_to();
  if (moved_to == nullptr) return {};
  if (moved_to != store_.moved_to) {
    Result<HostLane*> lane = store_.reach(*moved_to);
    if (!lane) return std::unexpected(std::move(lane.error()));
    store_.moved_to = moved_to;
    store_.moved_lane = *lane;
  }
  via_ = store_.moved_lane;
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
  if (!exchanged && attempt.has_enough()) {
    outcome.follow_up = true;
  } else if (!exchanged) {
    outcome.error = std::move(exchanged.error());
  } else if (Result<Attempt::Verdict> verdict = attempt.end(); !verdict) {
    outcome.error = std::move(verdict.error());
  } else {
    outcome.follow_up = *verdict == Attempt::Verdict::kAgain;
  }
  outcome.stale = outcome.error && connection_->went_stale();
  const bool is_replaced = rare_ && std::exchange(rare_->is_replaced, false);
  outcome.replaced = outcome.error && is_replaced;
  if (const Refusal* refusal = attempt.refusal(); exchanged && outcome.error && refusal) {
    outcome.stale_credentials = store_.credentials != nullptr && refusal->stale_credentials;
    outcome.moved = refusal->moved || refusal->elsewhere != nullptr;
    if (refusal->server_time) {
      store_.clock_offset = *refusal->server_time - thread().clock().wall_now();
    }
  }
  if (exchanged) judge_headers(attempt, request, outcome);
  if (outcome.stale_credentials) rare().had_credentials = true;
  outcome.spoilt = outcome.error && outcome.error->code() == Code::kCorrupt && exchanged &&
                   attempt.arrived_spoilt();
  if (exchanged && request.waits_for_continue) judge_wait(attempt, outcome);
  if (entering_) judge_entrance(exchanged.has_value(), outcome);
  if (exchanged || direct_) judge_direct(attempt, exchanged.has_value(), outcome);
  if (exchanged) {
    record_answer(outcome, attempt.body_bytes() + request.body_bytes());
    const bool failed = outcome.error && is_retryable(*outcome.error);
    const auto expected =
        store_.hedge && !failed ? attempt.hedgeable() : std::optional<ExpectedAnswer>();
    if (expected) {
      HedgeRules& rules = via_->hedges();
      rules.earn(attempt.body_bytes());
      if (attempt.body_bytes() >= BodyRates::kLeastBytes && !race()) {
        const auto head_at = connection_->sent_at() + connection_->first_byte_latency();
        via_->body_rates().took(attempt.body_bytes(), thread().now() - head_at, thread().now());
      }
      if (!race() || !race()->hedge_has_won()) {
        rules.took(expected->kind, connection_->first_byte_latency(), thread().now());
      }
    }
  }
  if (is_noted) note(request, outcome.error, last_byte);
  if (rare_) rare_->race.reset();
  via_->give_back(std::move(connection_));
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
  if (outcome.moved) return end_header_trial();  // it is about the place, and the next one judges
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
      via_->host().log.headers_left_out(optional, news, *rare_->with_headers);
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
  if (outcome.stale_credentials && !std::exchange(rare().had_credentials, true)) return;
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
  outcome.stale_credentials = false;
  outcome.follow_up = true;
}

// Whether the server knows of bodies that wait until it asks for them.
void Operation::judge_wait(const Attempt& attempt, RetryState::Outcome& outcome) {
  const bool is_refused = attempt.status() == 417;  // "Expectation Failed"
  if (connection_->sent_unasked() || is_refused) {
    via_->host().asks_for_bodies.note(Learned::Treatment::kRefused, thread().now());
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
  record.host.keep_front(via_->host().authority);
  record.set_target(request.target);
  note_attempt(record);
}

// What becomes of a direct request that failed, and what is learned from it and from its success.
void Operation::judge_direct(const Attempt& attempt, bool exchanged, RetryState::Outcome& outcome) {
  MapKeeper& keeper = slot_.lane().host().map;
  const auto now = thread().now();
  if (direct_ && reached_server_) via_->host().reachability.reached();
  if (direct_ && outcome.error) {
    if (outcome.stale || outcome.replaced) return;  // the host is asked again
    direct_failed_ = true;
    // An object that is not the one asked for may be what a host that is no longer its owner kept.
    const bool is_another = outcome.error->code() == Code::kPreconditionFailed;
    if (attempt.refused_as_direct() || is_another) {
      rare().direct_refusal =
          DirectRefusal{.status = is_another ? 404 : outcome.error->http_status(),
                        .credential_version = credential_version_};
      outcome.stale_credentials = false;
      outcome.moved = true;
    } else if (!exchanged && is_retryable(*outcome.error)) {
      keeper.doubt();
      if (!reached_server_) via_->host().reachability.failed(now);
      // What was never sent can go the other way at once.
      outcome.moved = !reached_server_;
    }
  } else if (direct_) {
    keeper.direct_taken();
  } else if (!outcome.error && rare_ && rare_->direct_refusal) {
    const DirectRefusal refusal = *std::exchange(rare_->direct_refusal, std::nullopt);
    // A credential that has expired says nothing about direct requests.
    if (refusal.status == 401 && refusal.credential_version != credential_version_) return;
    keeper.direct_refused(/*for_good=*/refusal.status == 401 || refusal.status == 403, now);
  }
}

// Whether an object that was there before and is not found, or a host that cannot be reached, may
// be found again: the cluster has changed lately.
awaitable<bool> Operation::may_come_back() {
  MapKeeper& keeper = slot_.lane().host().map;
  if (keeper.is_unsettled(thread().now())) co_return true;
  const uint64_t fetch = keeper.next_fetch();
  while (!stopped()) {
    if (keeper.is_over(fetch, waker())) co_return keeper.is_unsettled(thread().now());
    if (keeper.begin_fetch(fetch)) store_.fetch_map();
    co_await park(deadline());
  }
  co_return false;
}

// What it says about how many requests, and how fast, may be sent.
void Operation::record_answer(const RetryState::Outcome& outcome, uint64_t bytes) {
  HostLane& lane = slot_.lane();
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
  if (outcome.error && !throttled && !outcome.moved && is_retryable(*outcome.error)) return;
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
  Host& host = via_->host();
  // To be sent elsewhere is an answer, too.
  if (!outcome.error || outcome.moved || !is_retryable(*outcome.error)) {
    host.log.answered(now);
    via_->succeeded(host.outages);
    slot_.lane().succeeded(store_.pace->outages());
  } else if (outcome.error->code() == Code::kThrottled) {
    tally(thread().metrics().throttled_total);
    rare().outage = store_.pace->outages().failed(now, slot_.lane().rng());
    host.log.answered(now);
    host.log.throttled(store_.pace->root(), store_.pace->per_s(), now);
  } else if (!outcome.stale && !outcome.replaced) {
    host.log.failed(*outcome.error, now);
    rare().outage = host.outages.failed(now, slot_.lane().rng());
  }
}

// What the service has asked for is waited for in any case.
awaitable<void> Operation::back_off(steady_clock::time_point until) {
  const std::shared_ptr<Outage> outage = std::exchange(rare().outage, nullptr);
  const auto asked = last_->retry_after().value_or(std::chrono::milliseconds(0));
  const auto asked_until = std::min(until, thread().now() + asked);
  while (!stopped() && thread().now() < asked_until) co_await park(asked_until);
  // With the others that wait for the same.
  HostLane& lane = last_->code() == Code::kThrottled ? slot_.lane() : *via_;
  const bool is_early = co_await lane.wait_out(*this, outage, until);
  if (is_early) rare_->due_at = until;
}

// False if it is stopped.
awaitable<bool> Operation::wait_for_turn() {
  count_in_flight(false);
  const bool taken = co_await slot_.take(*this, store_.pace);
  count_in_flight(taken);
  co_return taken;
}

awaitable<Result<void>> Operation::run(Attempt& attempt, HttpRequest& request) {
  using Next = RetryState::Next;
  attempt_ = &attempt;
  attempt.charge_to(slot_.lane().pool());
  bool fresh_next = false;
  // A connection that had been used was closed without notice: this server may do so each time.
  bool distrusts_idle = false;
  while (true) {
    if (stopped()) co_return std::unexpected(finished(attempt, *stopped()));

    // Admission: a turn, if the server has ever asked for a pace.
    if (store_.pace->refused() && !slot_.use_turn()) {
      if (!co_await wait_for_turn()) continue;
      slot_.use_turn();
    }

    auto now = thread().now();
    request.clear();
    attempt.build(request);
    if (Result<void> chosen = choose_lane(attempt.protocol(), request); !chosen) {
      co_return std::unexpected(finished(attempt, std::move(chosen.error())));
    }
    leave_out_headers(attempt.protocol(), request, now);
    attempt.begin(direct_, request.optional != 0 || (rare_ && rare_->without != 0),
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
                          {.authority = via_->host().authority,
                           .base_path = via_->host().route->endpoint.base_path},
                          thread().clock().wall_now() + store_.clock_offset);
      credential_version_ = store_.credential_version;
    }

    const bool is_new =
        std::exchange(fresh_next, false) || request.on_new_connection || distrusts_idle;
    if (!is_new && via_->opens_ahead()) {
      opening_since_ = now;
      co_await via_->wait_for_opening(*this);
      opening_since_.reset();
      if (stopped()) continue;
      now = thread().now();
    }
    retries_.begin_attempt();
    reached_server_ = false;
    const bool changes = request.method != "GET" && request.method != "HEAD";
    if (request.waits_for_continue) {
      request.waits_for_continue =
          via_->host().asks_for_bodies.at(now) != Learned::Treatment::kRefused;
    }
    connection_ = is_new ? via_->new_connection() : via_->take_connection(/*must_look=*/changes);
    connection_->begin_use(now);
    Result<void> exchanged;
    if (!connection_->reusable()) {
      opening_since_ = now;
      exchanged = co_await connection_->open(*this, via_->resolver());
      opening_since_.reset();
      if (exchanged) connection_->opened(thread().now());
    }
    if (exchanged) {
      tally(thread().metrics().requests_total);
      reached_server_ = true;
      exchanged = co_await connection_->exchange(request, attempt);
      if (race()) co_await settle_race(exchanged);
    }
    RetryState::Outcome outcome = end_attempt(attempt, request, std::move(exchanged));
    if (outcome.error && !outcome.moved && attempt.protocol().placement() != nullptr &&
        !attempt.asks_for_map()) {
      const bool is_lost = outcome.error->code() == Code::kNotFound &&
                           attempt.refusal() != nullptr && attempt.is_known_to_exist();
      // The endpoint sends requests to a host that has died until it has noticed.
      const bool is_away =
          elsewhere_ != nullptr && !reached_server_ && is_retryable(*outcome.error);
      if (is_lost || is_away) outcome.unsettled = co_await may_come_back();
    }
    if (stopped() && outcome.error) continue;

    now = thread().now();
    note_outcome(outcome, now);
    if (rare_) {
      const auto due_at = std::exchange(rare_->due_at, steady_clock::time_point());
      outcome.left_of_wait = std::chrono::ceil<std::chrono::milliseconds>(
          std::max(due_at - now, steady_clock::duration::zero()));
    }
    distrusts_idle |= outcome.stale;
    RetryState::Step step = retries_.after(std::move(outcome), now, deadline());
    // Whatever else the next attempt is, it begins where requests of this store begin. After a
    // change it is a look at what has become of it, which may be about another object.
    const bool is_same = request.method == "GET" || request.method == "HEAD";
    if (step.next != Next::kFreshConnection || !is_same) elsewhere_.reset();
    if (step.next == Next::kRetry && attempt.has_alternative()) step.next = Next::kFail;
    switch (step.next) {
      case Next::kDone: co_return Result<void>();
      case Next::kFollowUp: break;
      case Next::kRedirected:
        if (direct_) break;
        elsewhere_ = attempt.refusal()->elsewhere;
        if (const Placement* placement = attempt.protocol().placement();
            placement != nullptr && entering_) {
          compare_with_map(*placement, request);
        }
        break;
      case Next::kDetour:
        if (via_ != &slot_.lane()) break;
        last_ = std::move(step.error);
        via_->host().log.bypassed(*last_, entrance_->host().log.host(), now);
        break;
      case Next::kFreshConnection:
        fresh_next = true;
        attempt.will_retry();
        end_header_trial();  // what follows may be another request
        break;
      case Next::kNewCredential: store_.credentials->reject(credential_version_); break;
      case Next::kRetry:
        last_ = std::move(step.error);
        // If it was throttled, arrived spoilt or was never sent, the server did nothing that would
        // have to be looked for.
        if (reached_server_ && last_->code() != Code::kThrottled &&
            last_->code() != Code::kCorrupt) {
          attempt.will_retry();
          end_header_trial();
        }
        tally(thread().metrics().retries_total);
        via_->host().log.retrying(attempt.url(), retries_.attempts(), *last_, step.wait, now);
        if (last_->code() == Code::kThrottled) {
          slot_.step_aside(store_.pace);
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
