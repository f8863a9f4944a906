#include "headrace/store/transfer/host.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <algorithm>
#include <utility>

#include "headrace/base/random.h"

namespace headrace {
namespace {

using std::chrono::steady_clock;

constexpr uint32_t kReportEvery = 16;
constexpr std::chrono::milliseconds kReportInterval{20};
constexpr std::chrono::seconds kHedgesHeld{30};

std::unique_ptr<Transport> open_sockets(IoThread& thread,
                                        const std::shared_ptr<const Route>& route) {
  return std::make_unique<Connection>(thread, route);
}

}  // namespace

Host::Host(std::shared_ptr<const Route> a_route, uint32_t initial_in_flight, uint32_t max_in_flight,
           uint32_t retry_budget_tokens, std::shared_ptr<Log> engine_log, Connect a_connect,
           std::unique_ptr<Neighbours> neighbours)
    : route(std::move(a_route)),
      authority(route->endpoint.authority()),
      connect(a_connect ? std::move(a_connect) : open_sockets),
      admission(initial_in_flight, max_in_flight, std::move(neighbours)),
      retry_budget(retry_budget_tokens),
      log(std::move(engine_log),
          cat(route->endpoint.tls ? "https://" : "http://", route->endpoint.authority())) {}

Host::~Host() = default;

void Host::hold_hedges(steady_clock::time_point now) {
  hedges_held_until_.store((now + kHedgesHeld).time_since_epoch().count(),
                           std::memory_order_relaxed);
}

HostLane::HostLane(Host& host, IoThread& thread, Resolver& resolver, BlockPool& pool)
    : host_(host),
      thread_(thread),
      resolver_(resolver),
      pool_(pool),
      rng_(random_number()),
      queue_(host.reads, pool, thread.metrics(), thread.index()),
      connections_(host, thread, resolver),
      turn_timer_(std::make_shared<Timer>(thread.context())) {}

HostLane::~HostLane() = default;

uint32_t HostLane::slot_limit() const {
  const uint32_t limit = host_.admission.limit();
  const auto lane_count = static_cast<uint32_t>(host_.lanes.size());
  const uint32_t rest = limit % lane_count;
  return std::max(1u, limit / lane_count + (thread_.index() < rest ? 1 : 0));
}

// Whether a reader gets the next slot if requests of both kinds want it.
bool HostLane::next_is_reader(uint32_t other_readers) const {
  if (other_readers != other_count_) return other_readers < other_count_;
  return !last_was_reader_;
}

void HostLane::pump() {
  if (std::exchange(pumping_, true)) return;  // a reader that needed no wait came back here
  if (thread_.stopping()) {
    queue_.stop();
    for (PacedLine& line : lines_) line.pieces.stop();
  }
  // A reader takes its piece when it starts, here or later. Either way one reader per queued piece
  // is enough, and a reader that finds nothing ends.
  size_t startable = queue_.size();
  while (true) {
    const bool line_first = !lines_.empty() && !last_was_line_;
    if (line_first && serve_lines()) {
      last_was_line_ = true;
      continue;
    }
    const bool has_slot = has_free_place();
    const bool may_read = has_slot && startable > 0 && queue_.may_take();
    if (may_read && (waiting_.empty() || next_is_reader(reader_count_))) {
      --startable;
      ++reader_count_;
      last_was_reader_ = true;
      last_was_line_ = false;
      asio::co_spawn(thread_.context(), reader(), asio::detached);
    } else if (!waiting_.empty() && (has_slot || limit_lifted_)) {
      last_was_reader_ = waiting_.front()->reads_;
      last_was_line_ = false;
      grant(*waiting_.front());
    } else if (lines_.empty() || line_first || !serve_lines()) {
      break;
    }
  }
  if (!lines_.empty()) {
    std::erase_if(lines_, [](const PacedLine& line) {
      if (line.idle() && line.turn) line.pace->give_back();
      return line.idle();
    });
  }
  pumping_ = false;
}

void HostLane::lift_limit() {
  limit_lifted_ = true;
  pump();
}

awaitable<void> HostLane::reader(PacedLine* line, ReadPiece* piece) {
  HttpRequest request;
  Slot slot(*this, /*reads=*/true);
  slot.held_ = true;
  slot.line_ = line;
  slot.has_turn_ = line != nullptr;
  while (line != nullptr || slots_taken() <= slot_limit() || thread_.stopping()) {
    if (line == nullptr) piece = queue_.take();
    if (piece == nullptr) break;
    try {
      co_await piece->reader->read_piece(slot, *piece, request);
    } catch (const std::exception& error) {
      // Out of memory, or a bug: the caller must be told, and not wait for ever.
      piece->reader->piece_failed(*this, *piece, Error(Code::kInternal, error.what()));
    }
    if (slot.line_ != nullptr) break;
    if (!queue_.empty() || !waiting_.empty()) {
      if (has_free_place()) {
        pump();
      } else {
        unreported_.limited = true;
      }
    }
    // Is it somebody else's turn? Checked after a piece, so that every turn reads at least one.
    if (!waiting_.empty() && !next_is_reader(reader_count_ - 1)) break;
    if (!lines_.empty() && !last_was_line_ && a_line_is_due()) break;
    last_was_reader_ = true;
    last_was_line_ = false;
  }
  slot.release();
}

// ── Slots ────────────────────────────────────────────────────────────────────────────────────

void Slot::enter(List& list) {
  place_ = list.insert(list.end(), this);
  list_ = &list;
}

void Slot::leave_list() {
  if (list_ != nullptr) list_->erase(place_);
  list_ = nullptr;
  waiting_ = nullptr;
}

void Slot::join(PacedLine& line) {
  if (line_ == nullptr) ++line.begun;
  line_ = &line;
}

// Whether it was held, by itself or as a turn.
bool Slot::give_up() {
  const bool unused = use_turn();
  if (unused) {
    line_->pace->give_back();
    line_->ask_again = {};
  }
  const bool held = std::exchange(held_, false);
  if (held) --lane_.count_of(*this);
  return held || unused;
}

awaitable<bool> Slot::take(Activity& waiting, const std::shared_ptr<Pace>& pace) {
  if (waiting.stopped()) co_return false;
  const bool has_begun = held_ || line_ != nullptr;
  if (!pace->refused()) {
    enter(lane_.waiting_);
  } else if (PacedLine& line = lane_.line_of(pace); has_begun) {
    enter(line.returning);
    join(line);
    give_up();
  } else {
    enter(line.others);
  }
  const struct LeavesList {
    Slot& slot;
    ~LeavesList() { slot.leave_list(); }
  } leaves_list{*this};
  pace_ = pace.get();
  lane_.pump();
  if (!held_ && !pace->refused()) lane_.unreported_.limited = true;
  waiting_ = &waiting;  // only now: whoever is woken before it parks does not wait the next time
  while (!held_ && !waiting.stopped()) co_await waiting.park(waiting.deadline());
  co_return !waiting.stopped();
}

void Slot::step_aside(const std::shared_ptr<Pace>& pace) {
  join(lane_.line_of(pace));
  if (give_up()) lane_.pump();
}

void Slot::release() {
  const bool left = give_up() || line_ != nullptr;
  if (line_ != nullptr) --std::exchange(line_, nullptr)->begun;
  if (left && lane_.somebody_waits()) lane_.pump();
}

// No deadline here: as for pieces, a request's deadline counts from when it gets its slot.
RequestSlot::RequestSlot(HostLane& lane, const void* owner)
    : Activity(lane.thread(), owner, lane.thread().now() + std::chrono::years(1)),
      slot_(lane, /*reads=*/false) {}

awaitable<Result<void>> RequestSlot::take(const std::shared_ptr<Pace>& pace) {
  if (!co_await slot_.take(*this, pace)) co_return std::unexpected(*stopped());
  co_return Result<void>();
}

// With a turn if a line grants it.
void HostLane::grant(Slot& slot, PacedLine* line) {
  Activity* const waiting = slot.waiting_;
  slot.leave_list();
  if (line != nullptr) slot.join(*line);
  slot.has_turn_ = line != nullptr;
  slot.held_ = true;
  ++count_of(slot);
  if (waiting != nullptr) waiting->wake();
}

// ── Roots that have been throttled ───────────────────────────────────────────────────────────

PacedLine& HostLane::line_of(const std::shared_ptr<Pace>& pace) {
  for (PacedLine& line : lines_) {
    if (line.pace == pace) return line;
  }
  return lines_.emplace_back(pace, host_.reads, pool_, thread_.metrics(), thread_.index());
}

PieceQueue& HostLane::queue_of(const ReadPiece& piece) {
  const std::shared_ptr<Pace>& pace = piece.reader->pace();
  return pace->refused() ? line_of(pace).pieces : queue_;
}

void HostLane::waited_for(const ReadBatch& batch) {
  queue_.waited_for(batch);
  for (PacedLine& line : lines_) line.pieces.waited_for(batch);
}

PieceList HostLane::drop(const ReadBatch& batch) {
  PieceList dropped = queue_.drop(batch);
  for (PacedLine& line : lines_) dropped.append(line.pieces.drop(batch));
  return dropped;
}

// If there is a turn, a slot and memory.
bool HostLane::wants_turn(const PacedLine& line) const {
  if (!line.returning.empty()) return true;
  if (limit_lifted_ && !line.others.empty()) return true;
  return line.begun < slot_limit() && line.has_more();
}

bool HostLane::has_turn(PacedLine& line, steady_clock::time_point now) {
  if (thread_.stopping()) return true;  // nothing is sent any more
  if (!line.turn && line.ask_again <= now) {
    line.turn = line.pace->reserve(now);
    // At random, or the lane that happens to ask first would do so again and again.
    std::uniform_real_distribution<> share(0.5, 1);
    if (!line.turn) {
      line.ask_again =
          now + std::chrono::duration_cast<steady_clock::duration>(share(rng_) * Pace::kHorizon);
    }
  }
  return line.turn && *line.turn <= now;
}

// Begins one request of a line whose turn has come. False if there is none.
bool HostLane::serve_lines() {
  const auto now = thread_.now();
  std::optional<steady_clock::time_point> look_again;
  for (auto at = lines_.begin(); at != lines_.end(); ++at) {
    PacedLine& line = *at;
    if (!wants_turn(line)) {
      // Where all places are taken, it is the limit that holds its next request back, not the pace.
      if (line.has_more() && !has_free_place()) unreported_.limited = true;
      continue;
    }
    if (!has_turn(line, now)) {
      const auto next = line.turn.value_or(line.ask_again);
      look_again = std::min(look_again.value_or(next), next);
      continue;
    }
    // Used up before: a request that turns out to need none gives it back at once.
    const auto turn = std::exchange(line.turn, std::nullopt);
    if (begin_next(line)) {
      lines_.splice(lines_.end(), lines_, at);
      return true;
    }
    line.turn = turn;
  }
  if (look_again) arm_turn_timer(*look_again);
  return false;
}

bool HostLane::begin_next(PacedLine& line) {
  const bool has_slot = has_free_place();
  line.waits_for_memory = false;
  if (!has_slot) unreported_.limited = true;
  if (limit_lifted_) {
    for (std::list<Slot*>* const list : {&line.returning, &line.others}) {
      const auto found = std::ranges::find(*list, false, &Slot::reads_);
      if (found == list->end()) continue;
      grant(**found, &line);
      return true;
    }
  }
  if (!has_slot) return false;
  if (!line.returning.empty()) {
    grant(*line.returning.front(), &line);
    return true;
  }
  if (line.others.empty() || !line.last_was_piece) {
    if (ReadPiece* const piece = line.pieces.take()) {
      line.last_was_piece = true;
      ++reader_count_;
      ++line.begun;
      asio::co_spawn(thread_.context(), reader(&line, piece), asio::detached);
      return true;
    }
    line.waits_for_memory = !line.pieces.empty();
  }
  if (line.others.empty()) return false;
  line.last_was_piece = false;
  grant(*line.others.front(), &line);
  return true;
}

bool HostLane::a_line_is_due() const {
  const auto now = thread_.now();
  return std::ranges::any_of(lines_, [&](const PacedLine& line) {
    return line.turn && *line.turn <= now && !line.waits_for_memory && wants_turn(line);
  });
}

void HostLane::set_apart(const std::shared_ptr<Pace>& pace) {
  for (const std::unique_ptr<HostLane>& each : host_.lanes) {
    if (each.get() == this) continue;
    each->thread().post([lane = each.get(), pace] { lane->move_to_line(pace); });
  }
  move_to_line(pace);
}

void HostLane::move_to_line(const std::shared_ptr<Pace>& pace) {
  PacedLine& line = line_of(pace);
  queue_.move_to(line.pieces, [&](const PieceReader& reader) { return reader.pace() == pace; });
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    Slot& slot = **at++;
    if (slot.pace_ != pace.get()) continue;
    line.others.splice(line.others.end(), waiting_, slot.place_);
    slot.list_ = &line.others;
  }
  pump();
}

// ── Outages ──────────────────────────────────────────────────────────────────────────────────

awaitable<bool> HostLane::wait_out(Activity& waiting, std::shared_ptr<Outage> outage,
                                   steady_clock::time_point until) {
  const auto place = waiting_out_.insert(waiting_out_.end(), WaitingOut{waiting, outage});
  const struct LeavesList {
    std::list<WaitingOut>& list;
    std::list<WaitingOut>::iterator place;
    ~LeavesList() { list.erase(place); }
  } leaves_list{waiting_out_, place};
  while (!waiting.stopped()) {
    const auto now = thread_.now();
    if (now >= until) co_return false;
    if (place->is_called) co_return true;
    auto look_at = until;
    if (outage) {
      if (const auto probe = outage->next_probe()) look_at = std::min(look_at, *probe);
      if (look_at <= now && outage->take_probe(now, rng_)) co_return true;
      if (look_at <= now) continue;  // somebody else took it
    }
    co_await waiting.park(look_at);
  }
  co_return false;
}

void HostLane::call_everywhere() {
  for (const std::unique_ptr<HostLane>& each : host_.lanes) {
    if (each.get() == this) continue;
    each->thread().post([lane = each.get()] { lane->call_two(); });
  }
}

// Two for each answer: so their number doubles with each round trip, and a service that has just
// come back is not met by all at once.
void HostLane::call_two() {
  int left = 2;
  for (WaitingOut& each : waiting_out_) {
    if (each.is_called || !each.outage || !each.outage->is_over()) continue;
    each.is_called = true;
    each.activity.wake();
    if (--left == 0) return;
  }
}

void HostLane::arm_turn_timer(steady_clock::time_point at) {
  if (turn_timer_at_ && *turn_timer_at_ <= at) return;
  turn_timer_at_ = at;
  thread_.clock().set(turn_timer_, at);
  turn_timer_->async_wait(
      [this, at, alive = std::weak_ptr(turn_timer_)](boost::system::error_code) {
        if (alive.expired() || turn_timer_at_ != at) return;  // set to another time since
        turn_timer_at_.reset();
        pump();
      });
}

// ── The end of it, and its reports ───────────────────────────────────────────────────────────

void HostLane::close() {
  connections_.close();
  turn_timer_->cancel();
}

void HostLane::record_outcome(const AdmissionReport& what, steady_clock::time_point now) {
  unreported_.completed += what.completed;
  unreported_.unhindered += what.unhindered;
  unreported_.throttled += what.throttled;
  unreported_.bytes += what.bytes;
  for (uint8_t i = 0; i < what.time_count; ++i) unreported_.add(what.times[i]);
  const uint32_t answers = unreported_.completed + unreported_.throttled;
  if (what.throttled == 0 && answers < kReportEvery && now - reported_at_ < kReportInterval) return;
  host_.admission.report(unreported_, now);
  unreported_ = {};
  reported_at_ = now;
}

}  // namespace headrace
