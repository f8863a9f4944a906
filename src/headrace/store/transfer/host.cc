#include "headrace/store/transfer/host.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <algorithm>
#include <random>
#include <utility>

namespace headrace {
namespace {

using std::chrono::steady_clock;

// Google closes idle connections after some minutes, load balancers after 60 s, AIStore after 30 s.
constexpr std::chrono::seconds kIdleLife{20};
constexpr uint32_t kReportEvery = 16;
constexpr std::chrono::milliseconds kReportInterval{20};

std::unique_ptr<Transport> open_sockets(IoThread& thread,
                                        const std::shared_ptr<const Route>& route) {
  return std::make_unique<Connection>(thread, route);
}

}  // namespace

Host::Host(std::shared_ptr<const Route> a_route, uint32_t initial_in_flight, uint32_t max_in_flight,
           uint32_t retry_budget_tokens, std::shared_ptr<Log> engine_log, Connect a_connect)
    : route(std::move(a_route)),
      authority(route->endpoint.authority()),
      connect(a_connect ? std::move(a_connect) : open_sockets),
      admission(initial_in_flight, max_in_flight),
      retry_budget(retry_budget_tokens),
      log(std::move(engine_log),
          cat(route->endpoint.tls ? "https://" : "http://", route->endpoint.authority())) {}

Host::~Host() = default;

HostLane::HostLane(Host& host, IoThread& thread, Resolver& resolver, BlockPool& pool)
    : host_(host),
      thread_(thread),
      resolver_(resolver),
      pool_(pool),
      rng_(std::random_device()()),
      queue_(host.reads, pool, thread.metrics()),
      idle_timer_(std::make_shared<Timer>(thread.context())) {}

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
  if (thread_.stopping()) queue_.stop();
  // A reader takes its piece when it starts, here or later. Either way one reader per queued piece
  // is enough, and a reader that finds nothing ends.
  size_t startable = queue_.size();
  while (true) {
    const bool has_slot = slots_taken() < slot_limit();
    const bool may_read = has_slot && startable > 0 && queue_.may_take();
    if (may_read && (waiting_.empty() || next_is_reader(reader_count_))) {
      --startable;
      ++reader_count_;
      last_was_reader_ = true;
      asio::co_spawn(thread_.context(), reader(), asio::detached);
    } else if (!waiting_.empty() && (has_slot || limit_lifted_)) {
      RequestSlot& next = *waiting_.front();
      waiting_.pop_front();
      ++other_count_;
      last_was_reader_ = false;
      next.taken_ = true;
      next.wake();
    } else {
      break;
    }
  }
  pumping_ = false;
}

void HostLane::lift_limit() {
  limit_lifted_ = true;
  pump();
}

awaitable<void> HostLane::reader() {
  HttpRequest request;
  while (slots_taken() <= slot_limit() || thread_.stopping()) {
    ReadPiece* piece = queue_.take();
    if (piece == nullptr) break;
    try {
      co_await piece->reader->read_piece(*this, *piece, request);
    } catch (const std::exception& error) {
      // Out of memory, or a bug: the caller must be told, and not wait for ever.
      piece->reader->piece_failed(*this, *piece, Error(Code::kInternal, error.what()));
    }
    if (!queue_.empty() || !waiting_.empty()) {
      if (slots_taken() < slot_limit()) {
        pump();
      } else {
        unreported_.limited = true;
      }
    }
    // Is it somebody else's turn? Checked after a piece, so that every turn reads at least one.
    if (!waiting_.empty() && !next_is_reader(reader_count_ - 1)) break;
    last_was_reader_ = true;
  }
  --reader_count_;
  if (!waiting_.empty()) pump();
}

// No deadline here: as for pieces, a request's deadline counts from when it gets its slot.
RequestSlot::RequestSlot(HostLane& lane, const void* owner)
    : Activity(lane.thread(), owner, lane.thread().now() + std::chrono::years(1)), lane_(lane) {}

awaitable<Result<void>> RequestSlot::take() {
  if (stopped()) co_return std::unexpected(*stopped());
  const auto place = lane_.waiting_.insert(lane_.waiting_.end(), this);
  lane_.pump();
  if (!taken_) lane_.unreported_.limited = true;
  while (!taken_ && !stopped()) co_await park(deadline());
  if (taken_) co_return Result<void>();
  lane_.waiting_.erase(place);
  co_return std::unexpected(*stopped());
}

void RequestSlot::release() {
  if (!std::exchange(taken_, false)) return;
  --lane_.other_count_;
  lane_.pump();
}

std::unique_ptr<Transport> HostLane::take_connection() {
  while (!idle_.empty()) {
    std::unique_ptr<Transport> connection = std::move(idle_.back());
    idle_.pop_back();
    if (connection->still_silent()) return connection;
  }
  return new_connection();
}

std::unique_ptr<Transport> HostLane::new_connection() {
  return host_.connect(thread_, host_.route);
}

void HostLane::give_back(std::unique_ptr<Transport> connection) {
  if (!connection->reusable() || thread_.stopping()) return;
  idle_.push_back(std::move(connection));
  if (!idle_timer_armed_) arm_idle_timer(thread_.now() + kIdleLife);
}

void HostLane::arm_idle_timer(steady_clock::time_point at) {
  idle_timer_armed_ = true;
  thread_.clock().set(idle_timer_, at);
  idle_timer_->async_wait([this, alive = std::weak_ptr(idle_timer_)](boost::system::error_code) {
    if (alive.expired()) return;
    idle_timer_armed_ = false;
    expire_idle();
  });
}

void HostLane::expire_idle() {
  const auto oldest = thread_.now() - kIdleLife;
  std::erase_if(idle_, [&](const auto& connection) { return connection->last_used() <= oldest; });
  // Those at the front have been idle longest.
  if (!idle_.empty()) arm_idle_timer(idle_.front()->last_used() + kIdleLife);
}

void HostLane::close_idle() {
  idle_.clear();
  idle_timer_->cancel();
}

void HostLane::record_outcome(const AdmissionReport& what, steady_clock::time_point now) {
  unreported_.completed += what.completed;
  unreported_.throttled += what.throttled;
  unreported_.bytes += what.bytes;
  unreported_.latency_sum += what.latency_sum;
  const uint32_t answers = unreported_.completed + unreported_.throttled;
  if (what.throttled == 0 && answers < kReportEvery && now - reported_at_ < kReportInterval) return;
  host_.admission.report(unreported_, now);
  unreported_ = {};
  reported_at_ = now;
}

}  // namespace headrace
