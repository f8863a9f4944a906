#include "headrace/store/transfer/race.h"

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <utility>

#include "headrace/http/completion.h"
#include "headrace/store/timeline/timeline.h"
#include "headrace/store/transfer/host.h"

namespace headrace {
namespace {

constexpr size_t kScrapBytes = 64 * 1024;

std::span<std::byte> scrap() {
  thread_local std::array<std::byte, kScrapBytes> bytes;
  return bytes;
}

Error lost() { return Error(Code::kCancelled, "another attempt was answered first"); }

}  // namespace

// A hedge, or the first attempt once it has lost: sends the request, unless that is done, and takes
// the answer, or drops it. Lives in a coroutine's frame.
class Race::Contender final : public Activity, public ResponseSink {
 public:
  Contender(Race& race, std::unique_ptr<Transport> a_connection, bool is_first)
      : Activity(race.lane_.thread(), nullptr, race.deadline_),
        connection(std::move(a_connection)),
        is_sent(is_first),
        is_first_(is_first),
        contends_(!is_first && !race.is_decided()),
        race_(race) {
    race_.contenders_.push_back(this);
  }
  ~Contender() {
    // Has no memory been found for its next step? If its thread is destroyed, nobody waits.
    if ((contends_ || has_won()) && thread().context().get_executor().running_in_this_thread()) {
      connection->abort(lost());
      race_.ended(*this, fail(Code::kInternal, "no memory"));
    }
    std::erase(race_.contenders_, this);
    give_up_permit();
  }

  bool contends() const { return contends_; }
  bool has_won() const { return race_.winner_ == this; }
  void stop_contending() { contends_ = false; }
  // A winner has the operation's permit and no other.
  void give_up_permit() {
    if (!std::exchange(has_permit_, false)) return;
    HedgeRules& rules = race_.lane_.hedges();
    if (is_first_) {
      rules.end_draining();
    } else {
      rules.end();
    }
  }
  // Nobody needs its answer. One that is not sent yet will not be.
  void lose(bool at_once) {
    contends_ = false;
    if (!is_sent || is_answered_ || !connection) return;
    if (at_once || race_.expected_.bytes > HedgeRules::kMostDrainedBytes) cut();
  }
  void cut() {
    if (!connection) return;
    tally(thread().metrics().hedges_cut_total);
    connection->abort(lost());
  }

  std::unique_ptr<Transport> connection;
  bool is_sent;
  uint64_t bytes = 0;
  int status = 0;  // 0: no answer

  Result<void> on_head(const ResponseHead& head) override {
    is_answered_ = true;
    status = head.status;
    if (race_.claims(*this, head)) return race_.attempt_.on_head(head);
    const bool is_small =
        race_.method_ == "HEAD" || head.never_has_body() ||
        (head.content_length && *head.content_length <= HedgeRules::kMostDrainedBytes);
    if (is_small) return {};
    tally(thread().metrics().hedges_cut_total);
    return std::unexpected(lost());
  }
  Result<std::span<std::byte>> space(uint64_t outstanding_bytes) override {
    if (!has_won()) return scrap();
    if (race_.is_over_) return std::unexpected(lost());
    return race_.attempt_.space(outstanding_bytes);
  }
  Result<void> on_bytes(size_t count_bytes) override {
    bytes += count_bytes;
    if (!has_won()) {
      tally(thread().metrics().hedge_bytes_dropped_total, count_bytes);
      return {};
    }
    if (race_.is_over_) return std::unexpected(lost());
    return race_.attempt_.on_bytes(count_bytes);
  }

 private:
  void interrupt(const Error& why) override {
    if (connection) connection->abort(why);
  }
  void sweep(TimePoint now) override {
    if (connection) connection->check_stall(now);
  }

  const bool is_first_;  // of all attempts: sent long ago, and lost
  bool contends_;
  bool is_answered_ = false;
  bool has_permit_ = true;
  Race& race_;
};

Race::Race(HostLane& lane, Attempt& attempt, Transport& first, const ExpectedAnswer& expected,
           std::shared_ptr<Gate::Pass> pass, TimePoint deadline)
    : host_(lane.host().weak_from_this().lock()),
      lane_(lane),
      attempt_(attempt),
      first_(&first),
      expected_(expected),
      pass_(std::move(pass)),
      deadline_(deadline),
      first_begun_(first.begun_at()),
      first_opened_(first.opened_at()),
      first_sent_(first.sent_at()),
      newest_began_(first_sent_),
      changed_(lane.thread().context(), TimePoint::max()) {
  attempt.set_gate(this);
}

Race::~Race() = default;

void Race::add(const HttpRequest& request) {
  newest_began_ = lane_.thread().now();
  method_ = request.method;
  HttpRequest copy = request;
  copy.object = {};  // borrowed from the operation, which may end before
  std::unique_ptr<Transport> connection = lane_.connections().take_beside(*first_);
  connection->begin_use(newest_began_);
  ++hedge_count_;
  ++contending_;
  const auto begin = [&] {
    return run(shared_from_this(), std::move(connection), std::move(copy), false);
  };
  if (spawn(lane_.thread().context(), begin)) return;
  --contending_;
  throw std::bad_alloc();
}

awaitable<void> Race::run(std::shared_ptr<Race> race, std::unique_ptr<Transport> connection,
                          HttpRequest request, bool is_first) {
  Contender self(*race, std::move(connection), is_first);
  Result<void> exchanged;
  try {
    if (self.stopped()) exchanged = std::unexpected(*self.stopped());
    if (exchanged && !is_first && !self.connection->reusable()) {
      exchanged = co_await self.connection->open(self, race->lane_.resolver());
      if (exchanged) self.connection->opened(self.thread().now());
    }
    // One that has lost by now is not sent; its connection is for the next request.
    if (exchanged && (is_first || self.contends())) {
      if (!is_first) {
        tally(self.thread().metrics().requests_total);
        tally(self.thread().metrics().hedges_total);
      }
      self.is_sent = true;
      exchanged = co_await self.connection->exchange(request, self);
    }
  } catch (const std::exception& error) {
    self.connection->abort(lost());
    exchanged = fail(Code::kInternal, error.what());
  }
  // Of the operation's own attempt, which may have become one that is only read to its end, the
  // operation tells.
  if (timeline_is_on() && !is_first) race->note(self, request, exchanged);
  race->ended(self, std::move(exchanged));
}

void Race::note(const Contender& contender, const HttpRequest& request,
                const Result<void>& exchanged) {
  if (!contender.is_sent && exchanged) return;  // it was not needed any more
  AttemptRecord record;
  record.begun = contender.connection->begun_at();
  record.connected = contender.connection->opened_at();
  record.ended = lane_.thread().now();
  if (contender.is_sent) {
    record.sent = contender.connection->sent_at();
    if (record.sent < record.begun) record.sent = {};
    record.last_byte = record.ended;
  }
  if (contender.status != 0) {
    record.first_byte = record.sent + contender.connection->first_byte_latency();
  }
  record.bytes = contender.bytes;
  record.number = number_;
  record.thread = lane_.thread().index();
  record.attempt = 1;
  record.status = static_cast<uint16_t>(contender.status);
  record.is_hedge = true;
  if (winner_ != &contender) {
    record.end = AttemptEnd::kLost;
  } else if (!exchanged) {
    record.end = AttemptEnd::kFailed;
    record.code = exchanged.error().code();
  }
  record.method.keep_front(request.method);
  record.host.keep_front(lane_.host().authority);
  record.set_target(request.target);
  note_attempt(record);
}

void Race::ended(Contender& contender, Result<void> exchanged) {
  if (contender.contends()) {  // it has failed while it could have won
    contender.stop_contending();
    --contending_;
  }
  if (exchanged && contender.is_sent) {
    lane_.hedges().took(expected_.kind, contender.connection->first_byte_latency(),
                        lane_.thread().now());
  }
  if (std::exchange(winner_, winner_ == &contender ? nullptr : winner_) == &contender) {
    outcome_ = std::move(exchanged);
    winner_connection_ = std::move(contender.connection);
  } else {
    lane_.connections().give_back(std::move(contender.connection));
  }
  contender.give_up_permit();
  lane_.hedge_ended();
  changed_.cancel();
}

// Whether the answer is one that another attempt may not get.
bool Race::is_refused_for_now(const ResponseHead& head) {
  if (head.status == 429 || head.status == 503) lane_.host().hold_hedges(lane_.thread().now());
  return head.status == 408 || head.status == 429 || head.status >= 500;
}

Result<void> Race::admit(const ResponseHead& head) {
  if (is_decided()) return std::unexpected(lost());
  if (is_refused_for_now(head) && contending_ > 0) {
    return fail(Code::kUnavailable, "status ", head.status,
                " while another attempt was waited for");
  }
  decide(Decision::kFirst);
  return {};
}

bool Race::claims(Contender& contender, const ResponseHead& head) {
  if (!contender.contends() || is_decided()) return false;
  const bool is_last = first_ == nullptr && contending_ == 1;
  contender.stop_contending();
  --contending_;
  if (is_refused_for_now(head) && !is_last) return false;
  winner_ = &contender;
  contender.give_up_permit();
  tally(lane_.thread().metrics().hedges_won_total);
  if (first_ != nullptr) first_->let_go();
  decide(Decision::kHedge);
  return true;
}

void Race::decide(Decision decision) {
  decision_ = decision;
  answered_at_ = lane_.thread().now();
  attempt_.set_gate(nullptr);
  for (Contender* const each : contenders_) {
    if (each != winner_) each->lose(/*at_once=*/false);
  }
  contending_ = 0;
}

awaitable<std::unique_ptr<Transport>> Race::settle(std::unique_ptr<Transport> first,
                                                   Result<void>& exchanged) {
  const bool was_waiting = std::exchange(first_, nullptr) != nullptr;
  if (was_waiting && decision_ == Decision::kHedge) drop_first(std::move(first));
  const auto may_change = [this] {
    if (decision_ == Decision::kHedge) return !outcome_;
    return decision_ == Decision::kOpen && contending_ > 0 && !is_over_;
  };
  while (may_change()) co_await changed_.async_wait(kAwait);
  is_over_ = true;
  attempt_.set_gate(nullptr);
  if (!outcome_) co_return first;
  exchanged = std::move(*outcome_);
  co_return std::move(winner_connection_);
}

// The first attempt was let go, and its answer is still to come.
void Race::drop_first(std::unique_ptr<Transport> first) {
  const auto now = lane_.thread().now();
  HedgeRules& rules = lane_.hedges();
  if (expected_.bytes > HedgeRules::kMostDrainedBytes || is_over_ ||
      !rules.begin_draining(lane_.permit_limit())) {
    rules.took(expected_.kind, now - first_sent_, now);  // at least
    tally(lane_.thread().metrics().hedges_cut_total);
    return;
  }
  HttpRequest request;
  request.method = method_;
  const auto begin = [&] {
    return run(shared_from_this(), std::move(first), std::move(request), true);
  };
  if (!spawn(lane_.thread().context(), begin)) rules.end_draining();  // its connection is closed
}

void Race::stop(const Error& why) {
  if (winner_ != nullptr) {
    winner_->connection->abort(why);
  } else if (decision_ == Decision::kOpen) {
    abandon();
  }
  changed_.cancel();
}

void Race::abandon() {
  // The attempt may be gone by now. If it is not, its gate lets nothing pass any more.
  if (std::exchange(is_over_, true)) return;
  if (winner_ != nullptr) winner_->connection->abort(lost());
  for (Contender* const each : contenders_) {
    if (each != winner_) each->lose(/*at_once=*/true);
  }
  contending_ = 0;
}

}  // namespace headrace
