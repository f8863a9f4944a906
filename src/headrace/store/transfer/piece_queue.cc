#include "headrace/store/transfer/piece_queue.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "headrace/store/slot_memory.h"

namespace headrace {
namespace {

constexpr uint64_t kShareProvided = 64;  // of the budget: the most that is provided in one step

}  // namespace

void ReadOrder::queued_changed(const ReadBatch& batch) {
  const Lock lock(mutex_);
  // Read under the lock: of two threads that come for opposite reasons, the last one is right.
  if (batch.queued()) {
    queued_.insert(batch.order);
  } else {
    queued_.erase(batch.order);
  }
  oldest_queued_.store(queued_.empty() ? UINT64_MAX : *queued_.begin(), std::memory_order_seq_cst);
}

// Pieces of unknown size wait for the first of these.
void ReadOrder::learn_size(uint64_t object_bytes) {
  const uint64_t mean = mean_object_bytes();
  const uint64_t next = mean == 0 ? object_bytes : mean - mean / 8 + object_bytes / 8;
  // Objects usually have the same size, which changes nothing, so that the cache line stays shared.
  if (next != mean)
    mean_object_bytes_.store(std::max<uint64_t>(next, 1), std::memory_order_relaxed);
}

PieceQueue::PieceQueue(ReadOrder& order, BlockPool& pool, Metrics& metrics, uint32_t lane)
    : order_(order), pool_(pool), metrics_(metrics), lane_(lane) {}

PieceQueue::~PieceQueue() { none_aside_any_more(); }

void PieceQueue::push(ReadPiece* first) {
  if (first == nullptr) return;
  (last_ != nullptr ? last_->next : first_) = first;
  for (last_ = first, ++size_; last_->next != nullptr; ++size_) last_ = last_->next;
}

void PieceQueue::push_front(ReadPiece* first) {
  if (first == nullptr) return;
  ReadPiece* end = first;
  for (++size_; end->next != nullptr; ++size_) end = end->next;
  end->next = first_;
  first_ = first;
  if (last_ == nullptr) last_ = end;
}

void PieceQueue::push_again(ReadPiece& piece) {
  if (piece.batch->add_queued(lane_)) order_.queued_changed(*piece.batch);
  push_front(&piece);
}

void PieceQueue::on_dequeued(const ReadPiece& piece) {
  ReadBatch& batch = *piece.batch;
  if (&piece != &batch.slot(piece.slot_index).first_piece) return;
  if (!batch.remove_queued(lane_)) return;
  order_.queued_changed(batch);
  pool_.made_room();  // who has left the room to this batch may have it now
}

bool PieceQueue::wants_memory(const ReadPiece& piece) const {
  const ReadSlot& slot = piece.batch->slot(piece.slot_index);
  return !stopping_ && !piece.batch->cancelled() && !slot.failed.load() && needs_room(pool_, slot);
}

// A range of an object of unknown size may end far beyond the object.
std::optional<uint64_t> PieceQueue::expected_need(const ReadSlot& slot) const {
  uint64_t size_bytes = slot.range.size_bytes();
  if (slot.object_bytes == kUnknownSize && order_.mean_object_bytes() != 0) {
    size_bytes = std::min(size_bytes, order_.mean_object_bytes());
  }
  const uint64_t need = charge_of(slot, size_bytes);
  return need <= pool_.budget_bytes() ? std::optional(need) : std::nullopt;
}

bool PieceQueue::may_begin(const ReadPiece& piece) {
  tally(metrics_.pieces_considered_total);
  const ReadSlot& slot = piece.batch->slot(piece.slot_index);
  if (!wants_memory(piece)) return true;
  const std::optional<uint64_t> need = expected_need(slot);
  const bool waited_for = piece.batch->waited_for();
  // Until a size is known, nothing is read ahead: an object might be large, and take the memory
  // that an awaited read needs.
  if (!need && !waited_for) return false;
  if (!pool_.may_begin_flight(need.value_or(0), piece.batch->order, waited_for)) return false;
  if (waited_for) return true;
  const uint64_t taken = pool_.taken_bytes(*need);
  if (taken > pool_.budget_bytes()) return false;
  // When memory is scarce, batches get it in order, across all queues. What a later batch took
  // would be missing once an earlier one is waited for, which would then exceed the budget.
  return taken <= pool_.budget_bytes() / 2 || piece.batch->order <= order_.oldest_queued();
}

// Pieces set aside go first, since they came first.
ReadPiece* PieceQueue::find() {
  if (!wanted_.empty() && may_begin(*wanted_.begin()->second.first)) {
    return wanted_.begin()->second.first;
  }
  int asked = 0;
  for (const auto& [order, aside] : ahead_) {
    if (may_begin(*aside.first)) return aside.first;
    if (++asked == kBatchesAsked) break;
  }
  while (first_ != nullptr) {
    if (may_begin(*first_)) return first_;
    set_aside(*first_);
  }
  return nullptr;
}

ReadPiece* PieceQueue::find_or_ask() {
  ReadPiece* found = nullptr;
  if (size_ == 0) return found;
  try_or_ask_for_room(pool_, [&] {
    found = find();
    return found != nullptr;
  });
  return found;
}

ReadPiece* PieceQueue::take() {
  while (ReadPiece* piece = find_or_ask()) {
    if (piece == first_) provide_ahead();
    // Another thread may have taken the room meanwhile.
    if (!reserve(*piece)) continue;
    remove(*piece);
    --size_;
    piece->next = nullptr;
    pool_.leave_line(piece->batch->order);
    on_dequeued(*piece);
    return piece;
  }
  return nullptr;
}

// A piece that begins must not find its memory taken by one that began later. Until the first size
// is known it might need any amount, so all free memory is reserved for it.
bool PieceQueue::reserve(const ReadPiece& piece) {
  if (!wants_memory(piece)) return true;
  ReadSlot& slot = piece.batch->slot(piece.slot_index);
  const uint64_t need = expected_need(slot).value_or(pool_.budget_bytes());
  if (piece.batch->waited_for()) {
    pool_.reserve(need);
  } else if (!pool_.try_reserve(need)) {
    return false;
  }
  slot.reserved_bytes = need;
  return true;
}

// While there is plenty, the first pieces of the queue, of one batch, get their memory together, so
// that few of them touch what all threads share. As long as pieces are set aside, each gets its own
// in turn.
void PieceQueue::provide_ahead() {
  if (stopping_ || counted_short_) return;
  std::array<ReadSlot*, kMostSlotsAtOnce> slots{};
  size_t count = 0;
  uint64_t total_bytes = 0;
  for (ReadPiece* piece = first_; piece != nullptr && count < slots.size(); piece = piece->next) {
    ReadSlot& slot = piece->batch->slot(piece->slot_index);
    const bool is_plain = piece->batch == first_->batch && piece == &slot.first_piece &&
                          slot.piece_count == 1 && !slot.scatter &&
                          slot.object_bytes != kUnknownSize && slot.reserved_bytes == 0;
    if (!is_plain || !wants_memory(*piece) || slot.range.size_bytes() == 0) break;
    total_bytes += charge_of(slot, slot.range.size_bytes());
    if (total_bytes > pool_.budget_bytes() / kShareProvided) break;
    slots[count++] = &slot;
  }
  if (count > 1) make_room_for_many(pool_, std::span(slots).first(count));
}

// The first piece of the queue.
void PieceQueue::set_aside(ReadPiece& piece) {
  first_ = piece.next;
  if (first_ == nullptr) last_ = nullptr;
  // Before checking whether the batch is waited for: either that shows here, or whoever waits for
  // it sees that it must announce the batch.
  if (!std::exchange(counted_short_, true)) {
    order_.short_queues_.fetch_add(1, std::memory_order_seq_cst);
  }
  const uint64_t order = piece.batch->order;
  const bool among_ahead = !piece.batch->waited_for() || ahead_.contains(order);
  Aside& aside = (among_ahead ? ahead_ : wanted_)[order];
  if (aside.first == nullptr || piece.slot_index < aside.first->slot_index) {
    piece.next = aside.first;  // it begins again, perhaps, and comes before its neighbours
    aside.first = &piece;
    if (aside.last == nullptr) aside.last = &piece;
  } else {
    piece.next = nullptr;
    aside.last->next = &piece;
    aside.last = &piece;
  }
}

void PieceQueue::remove(ReadPiece& piece) {
  if (&piece == first_) {
    first_ = piece.next;
    if (first_ == nullptr) last_ = nullptr;
    return;
  }
  for (AsideByOrder* const asides : {&wanted_, &ahead_}) {
    const auto at = asides->find(piece.batch->order);
    if (at == asides->end() || at->second.first != &piece) continue;
    at->second.first = piece.next;
    if (at->second.first == nullptr) asides->erase(at);
    break;
  }
  if (wanted_.empty() && ahead_.empty()) none_aside_any_more();
}

void PieceQueue::none_aside_any_more() {
  if (!std::exchange(counted_short_, false)) return;
  order_.short_queues_.fetch_sub(1, std::memory_order_seq_cst);
}

void PieceQueue::waited_for(const ReadBatch& batch) {
  AsideByOrder::node_type node = ahead_.extract(batch.order);
  if (node.empty()) return;
  const auto inserted = wanted_.insert(std::move(node));
  if (inserted.inserted) return;
  // Other pieces of this batch were set aside when it was already waited for.
  inserted.node.mapped().last->next = inserted.position->second.first;
  inserted.position->second.first = inserted.node.mapped().first;
}

ReadPiece* PieceQueue::drop(const ReadBatch& batch) {
  ReadPiece* dropped = nullptr;
  const auto take_out = [&](ReadPiece& piece) {
    piece.next = std::exchange(dropped, &piece);
    --size_;
    on_dequeued(piece);
  };
  ReadPiece** link = &first_;
  last_ = nullptr;
  while (ReadPiece* const piece = *link) {
    if (piece->batch == &batch) {
      *link = piece->next;
      take_out(*piece);
    } else {
      last_ = piece;
      link = &piece->next;
    }
  }
  for (AsideByOrder* const asides : {&wanted_, &ahead_}) {
    const auto at = asides->find(batch.order);
    if (at == asides->end()) continue;
    ReadPiece* next = nullptr;
    for (ReadPiece* piece = at->second.first; piece != nullptr; piece = next) {
      next = piece->next;
      take_out(*piece);
    }
    asides->erase(at);
  }
  if (wanted_.empty() && ahead_.empty()) none_aside_any_more();
  pool_.leave_line(batch.order);
  return dropped;
}

// They stay queued, so that their batches are left as they are.
void PieceQueue::move_to(PieceQueue& other, const std::function<bool(const PieceReader&)>& moves) {
  ReadPiece *moved = nullptr, *last_moved = nullptr;
  // Takes what matches out of a linked list, and returns the last of those that stay.
  const auto take_out = [&](ReadPiece*& first) {
    ReadPiece* last = nullptr;
    for (ReadPiece** link = &first; ReadPiece* const piece = *link;) {
      if (!moves(*piece->reader)) {
        last = piece;
        link = &piece->next;
        continue;
      }
      *link = std::exchange(piece->next, nullptr);
      (last_moved != nullptr ? last_moved->next : moved) = piece;
      last_moved = piece;
      --size_;
    }
    return last;
  };
  for (AsideByOrder* const asides : {&wanted_, &ahead_}) {
    for (auto at = asides->begin(); at != asides->end();) {
      Aside& aside = at->second;
      aside.last = take_out(aside.first);
      pool_.leave_line(at->first);  // until it is asked for again
      at = aside.first == nullptr ? asides->erase(at) : std::next(at);
    }
  }
  last_ = take_out(first_);
  if (wanted_.empty() && ahead_.empty()) none_aside_any_more();
  other.push(moved);
}

}  // namespace headrace
