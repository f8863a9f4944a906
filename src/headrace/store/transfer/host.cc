#include "headrace/store/transfer/host.h"

#include "headrace/base/random.h"
#include "headrace/http/completion.h"

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
      queue_(*this, host.reads, pool, thread.metrics(), thread.index(), rng_),
      connections_(host, thread, resolver),
      turn_timer_(std::make_shared<Timer>(thread.context())) {}

HostLane::~HostLane() = default;

uint32_t HostLane::permit_limit() const {
  const uint32_t limit = host_.admission.limit();
  const auto lane_count = static_cast<uint32_t>(host_.lanes.size());
  const uint32_t rest = limit % lane_count;
  return std::max(1u, limit / lane_count + (thread_.index() < rest ? 1 : 0));
}

void HostLane::lift_limit() {
  queue_.lift_limit();
  pump();
}

// A reader's permit, and the piece that it reads. One that is left undone has failed: there was no
// memory for it.
class HostLane::Reading {
 public:
  Reading(HostLane& lane, const Begin& begin)
      : lane_(lane), executor_(lane.thread_.context().get_executor()), permit_(lane, true) {
    AdmissionQueue::begin_reader(permit_.request_, begin);
    piece_ = begin.line != nullptr
                 ? begin.piece
                 : lane.queue().next_piece(/*has_read=*/false, lane.thread_.now());
  }
  ~Reading() {
    if (!executor_.running_in_this_thread()) return;  // destroyed with its thread
    try {
      if (piece_ != nullptr) {
        piece_->reader->piece_failed(lane_, *piece_, Error(Code::kInternal, "no memory"));
      }
      permit_.release();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory even for that
    }
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  ReadPiece* piece() const { return piece_; }
  awaitable<void> read(HttpRequest& request) {
    return piece_->reader->read_piece(permit_, *piece_, request);
  }
  void next() {
    piece_ = nullptr;
    if (permit_.request_.is_paced()) return;
    piece_ = lane_.queue().next_piece(/*has_read=*/true, lane_.thread_.now());
  }

 private:
  HostLane& lane_;
  const Executor executor_;
  Permit permit_;
  ReadPiece* piece_ = nullptr;
};

void HostLane::start_reader(Begin begin) {
  if (!spawn(thread_.context(), [&] { return reader(begin); })) const Reading fails(*this, begin);
}

awaitable<void> HostLane::reader(Begin begin) {
  HttpRequest request;
  Reading reading(*this, begin);
  while (reading.piece() != nullptr) {
    co_await reading.read(request);
    reading.next();
  }
}

// ── Permits ──────────────────────────────────────────────────────────────────────────────────

awaitable<bool> Permit::take(Activity& waiting, const std::shared_ptr<Pace>& pace) {
  if (waiting.stopped()) co_return false;
  const struct Withdraws {
    AdmissionQueue::Request& request;
    ~Withdraws() { AdmissionQueue::withdraw(request); }
  } withdraws{request_};
  lane_.queue().admit(request_, pace, [&waiting] { waiting.wake(); }, lane_.thread_.now());
  while (!request_.is_admitted() && !waiting.stopped()) co_await waiting.park(waiting.deadline());
  co_return !waiting.stopped();
}

void Permit::step_aside(const std::shared_ptr<Pace>& pace) {
  lane_.queue().step_aside(request_, pace, lane_.thread_.now());
}

void Permit::release() { lane_.queue().finish(request_, lane_.thread_.now()); }

// No deadline here: as for pieces, a request's deadline counts from when it gets its permit.
RequestPermit::RequestPermit(HostLane& lane, const void* owner)
    : Activity(lane.thread(), owner, lane.thread().now() + std::chrono::years(1)),
      permit_(lane, /*reads=*/false) {}

awaitable<Result<void>> RequestPermit::take(const std::shared_ptr<Pace>& pace) {
  if (!co_await permit_.take(*this, pace)) co_return std::unexpected(*stopped());
  co_return Result<void>();
}

void HostLane::set_apart(const std::shared_ptr<Pace>& pace) {
  for (const std::unique_ptr<HostLane>& each : host_.lanes) {
    if (each.get() == this) continue;
    each->thread().post(
        [lane = each.get(), pace] { lane->queue().set_apart(pace, lane->thread_.now()); });
  }
  queue().set_apart(pace, thread_.now());
}

// ── Outages ──────────────────────────────────────────────────────────────────────────────────

awaitable<bool> HostLane::wait_out(Activity& waiting, std::shared_ptr<Outage> outage,
                                   steady_clock::time_point until) {
  const auto at = waiting_out_.insert(waiting_out_.end(), WaitingOut{waiting, outage});
  const struct LeavesList {
    std::list<WaitingOut>& list;
    std::list<WaitingOut>::iterator at;
    ~LeavesList() { list.erase(at); }
  } leaves_list{waiting_out_, at};
  while (!waiting.stopped()) {
    const auto now = thread_.now();
    if (now >= until) co_return false;
    if (at->is_called) co_return true;
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

void HostLane::pump_at(steady_clock::time_point at) {
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
  unreported_.limited |= queue_.was_limited();
  host_.admission.report(unreported_, now);
  unreported_ = {};
  reported_at_ = now;
}

}  // namespace headrace
