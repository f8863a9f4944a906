#include "headrace/store/host.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <algorithm>
#include <random>
#include <utility>

#include "headrace/store/http_store.h"

namespace headrace {
namespace {

using std::chrono::steady_clock;

// Google closes idle connections after some minutes, load balancers after 60 s, AIStore after 30 s.
constexpr std::chrono::seconds kIdleLife{20};
constexpr uint32_t kReportEvery = 16;
constexpr std::chrono::milliseconds kReportInterval{20};

}  // namespace

Host::Host(std::shared_ptr<const Route> a_route, uint32_t initial_in_flight, uint32_t max_in_flight,
           uint32_t retry_budget_tokens)
    : route(std::move(a_route)),
      admission(initial_in_flight, max_in_flight),
      retry_budget(retry_budget_tokens) {}

Host::~Host() = default;

void Host::queued_changed(const ReadBatch& batch) {
  const Lock lock(mutex_);
  // Looked at under the lock: of two threads that come for opposite reasons, the last one is right.
  if (batch.queued_slots.load(std::memory_order_seq_cst) > 0) {
    queued_.insert(batch.order);
  } else {
    queued_.erase(batch.order);
  }
  oldest_queued_.store(queued_.empty() ? UINT64_MAX : *queued_.begin(), std::memory_order_seq_cst);
}

HostLane::HostLane(Host& host, IoThread& thread, Resolver& resolver, BlockPool& pool)
    : host_(host),
      thread_(thread),
      resolver_(resolver),
      pool_(pool),
      rng_(std::random_device()()),
      idle_timer_(thread.context()) {}

HostLane::~HostLane() = default;

void HostLane::enqueue(ReadPiece* first) {
  if (first == nullptr) return;
  (last_ != nullptr ? last_->next : first_) = first;
  for (last_ = first, ++queued_count_; last_->next != nullptr; ++queued_count_) last_ = last_->next;
}

void HostLane::enqueue_front(ReadPiece* first) {
  if (first == nullptr) return;
  ReadPiece* end = first;
  for (++queued_count_; end->next != nullptr; ++queued_count_) end = end->next;
  end->next = first_;
  first_ = first;
  if (last_ == nullptr) last_ = end;
}

void HostLane::enqueue_again(ReadPiece& piece) {
  if (piece.batch->queued_slots.fetch_add(1, std::memory_order_seq_cst) == 0) {
    host_.queued_changed(*piece.batch);
  }
  enqueue_front(&piece);
}

void HostLane::on_dequeued(const ReadPiece& piece) {
  ReadBatch& batch = *piece.batch;
  if (&piece != &batch.slot(piece.slot_index).first_piece) return;
  if (batch.queued_slots.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
  host_.queued_changed(batch);
  pool_.made_room();  // who has left the room to this batch may have it now
}

ReadPiece* HostLane::drop(const ReadBatch& batch) {
  ReadPiece* dropped = nullptr;
  ReadPiece** link = &first_;
  last_ = nullptr;
  while (*link != nullptr) {
    ReadPiece* piece = *link;
    if (piece->batch == &batch) {
      *link = piece->next;
      piece->next = dropped;
      dropped = piece;
      --queued_count_;
      on_dequeued(*piece);
    } else {
      last_ = piece;
      link = &piece->next;
    }
  }
  return dropped;
}

uint32_t HostLane::reader_limit() const {
  const auto lanes = static_cast<uint32_t>(host_.lanes.size());
  return std::max(1u, host_.admission.limit() / lanes);
}

// What fails or is dropped needs no memory, and what has its memory waits for nothing.
bool HostLane::wants_memory(const ReadPiece& piece) const {
  const ReadSlot& slot = piece.batch->slot(piece.slot_index);
  return !thread_.stopping() && !piece.batch->cancelled() && !slot.failed.load() &&
         !slot.has_into && slot.block.data() == nullptr;
}

bool HostLane::may_start(const ReadPiece& piece) const {
  const ReadSlot& slot = piece.batch->slot(piece.slot_index);
  if (!wants_memory(piece)) return true;
  const uint64_t need = expected_need(slot);
  // Until one size is known, nothing is read ahead: it might be large, and take the memory before
  // what is waited for.
  if (need == 0 && slot.range.end == kUnknownSize && !piece.batch->waited_for()) return false;
  const uint64_t in_flight = pool_.in_flight_bytes();
  if (in_flight != 0 && in_flight + need > pool_.budget_bytes()) return false;
  if (piece.batch->waited_for()) return true;
  const uint64_t taken = pool_.live_bytes() + pool_.reserved_bytes() + need;
  if (taken > pool_.budget_bytes()) return false;
  // Where room is scarce, batches get it in their order, on whichever lane: what a later one took
  // would be missing when the earlier one is waited for, and then be exceeded.
  return taken <= pool_.budget_bytes() / 2 || piece.batch->order <= host_.oldest_queued();
}

uint64_t HostLane::expected_need(const ReadSlot& slot) const {
  return BlockPool::charged_bytes(slot.range.end == kUnknownSize
                                      ? host_.mean_object_bytes.load(std::memory_order_relaxed)
                                      : slot.range.size_bytes());
}

// As a rule the first may. If not, somebody may be waiting for a piece further back; and room may
// come at any moment, so the question is asked again after the wish for it is on record.
bool HostLane::any_may_start() {
  if (first_ == nullptr) return false;
  if (may_start(*first_)) return true;
  pool_.ask_for_room();
  for (const ReadPiece* piece = first_; piece != nullptr; piece = piece->next) {
    if (may_start(*piece)) return true;
  }
  return false;
}

ReadPiece* HostLane::take() {
  // False only when the wish for room is on record; a reader that ended before could not be woken.
  while (any_may_start()) {
    ReadPiece* before = nullptr;
    ReadPiece* piece = first_;
    while (piece != nullptr && !may_start(*piece)) {
      before = piece;
      piece = piece->next;
    }
    // The room may have gone to another thread meanwhile.
    if (piece == nullptr || !reserve(*piece)) continue;
    (before != nullptr ? before->next : first_) = piece->next;
    if (last_ == piece) last_ = before;
    --queued_count_;
    piece->next = nullptr;
    on_dequeued(*piece);
    return piece;
  }
  return nullptr;
}

// What has begun must not find its memory taken by what began later. Before the first size is known
// it might need any: all that is free is kept for it.
bool HostLane::reserve(const ReadPiece& piece) {
  if (!wants_memory(piece)) return true;
  ReadSlot& slot = piece.batch->slot(piece.slot_index);
  uint64_t need = expected_need(slot);
  if (need == 0 && slot.range.end == kUnknownSize) need = pool_.budget_bytes();
  if (piece.batch->waited_for()) {
    pool_.reserve(need);
  } else if (!pool_.try_reserve(need)) {
    return false;
  }
  slot.reserved_bytes = need;
  return true;
}

void HostLane::pump() {
  if (pumping_) return;  // a reader that needed no wait came back here
  pumping_ = true;
  // A reader takes its piece when it starts, which may be here, or later: a reader for each piece
  // that is queued now is enough in both cases, and one that finds nothing ends.
  for (size_t wanted = queued_count_; wanted > 0 && reader_count_ < reader_limit(); --wanted) {
    if (!any_may_start()) break;
    ++reader_count_;
    asio::co_spawn(thread_.context(), reader(), asio::detached);
  }
  pumping_ = false;
}

awaitable<void> HostLane::reader() {
  HttpRequest request;
  while (reader_count_ <= reader_limit() || thread_.stopping()) {
    ReadPiece* piece = take();
    if (piece == nullptr) break;
    auto& store = static_cast<HttpStore&>(*piece->store);
    try {
      co_await store.read_piece(*this, *piece, request);
    } catch (const std::exception& error) {
      // Out of memory, or a bug: the caller must hear of it, not wait for ever.
      store.piece_failed(*this, *piece, Error(Code::kInternal, error.what()));
    }
    if (first_ != nullptr) {
      if (reader_count_ < reader_limit()) {
        pump();
      } else {
        unreported_.limited = true;
      }
    }
  }
  --reader_count_;
}

std::unique_ptr<Connection> HostLane::take_connection(steady_clock::time_point now) {
  while (!idle_.empty()) {
    std::unique_ptr<Connection> connection = std::move(idle_.back());
    idle_.pop_back();
    if (connection->still_open(now)) return connection;
  }
  return std::make_unique<Connection>(thread_, host_.route);
}

void HostLane::give_back(std::unique_ptr<Connection> connection) {
  if (!connection->reusable() || thread_.stopping()) return;
  idle_.push_back(std::move(connection));
  if (!idle_timer_armed_) arm_idle_timer(steady_clock::now() + kIdleLife);
}

void HostLane::arm_idle_timer(steady_clock::time_point at) {
  idle_timer_armed_ = true;
  idle_timer_.expires_at(at);
  idle_timer_.async_wait([this](boost::system::error_code error) {
    if (error) return;  // cancelled; `this` may be gone
    idle_timer_armed_ = false;
    expire_idle();
  });
}

void HostLane::expire_idle() {
  const auto oldest = steady_clock::now() - kIdleLife;
  std::erase_if(idle_, [&](const auto& connection) { return connection->last_used() <= oldest; });
  // Those at the front have been idle longest.
  if (!idle_.empty()) arm_idle_timer(idle_.front()->last_used() + kIdleLife);
}

void HostLane::close_idle() {
  idle_.clear();
  idle_timer_.cancel();
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
