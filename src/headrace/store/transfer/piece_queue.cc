#include "headrace/store/transfer/piece_queue.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <new>
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
    try {
      queued_.insert(batch.order);
    } catch (const std::bad_alloc&) {  // it only loses its turn
      return;
    }
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

PieceQueue::~PieceQueue() {
  if (!aside_.empty()) order_.short_queues_.fetch_sub(1, std::memory_order_seq_cst);
}

void PieceQueue::push(const PieceList& pieces) {
  size_ += pieces.count();
  queue_.append(pieces);
}

void PieceQueue::push_front(const PieceList& pieces) {
  size_ += pieces.count();
  queue_.prepend(pieces);
}

void PieceQueue::push_again(ReadPiece& piece) {
  if (piece.batch->add_queued(lane_)) order_.queued_changed(*piece.batch);
  push_front({.first = &piece, .last = &piece});
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

// Pieces set aside go first, since they came first: of the first batch that is waited for, and of
// several of the others.
ReadPiece* PieceQueue::find() {
  const auto ahead = aside_.lower_bound({.ahead = true});
  if (aside_.begin() != ahead && may_begin(*aside_.begin()->second.first)) {
    return aside_.begin()->second.first;
  }
  int asked = 0;
  for (auto at = ahead; at != aside_.end() && asked < kBatchesAsked; ++at, ++asked) {
    if (may_begin(*at->second.first)) return at->second.first;
  }
  while (!queue_.empty()) {
    if (may_begin(*queue_.first)) return queue_.first;
    set_aside(queue_.take_first());
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
    if (piece == queue_.first) provide_ahead();
    // Another thread may have taken the room meanwhile.
    if (!reserve(*piece)) continue;
    remove(*piece);
    --size_;
    pool_.drop_claim(piece->batch->order);
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
  if (stopping_ || !aside_.empty()) return;
  std::array<ReadSlot*, kMostSlotsAtOnce> slots{};
  size_t count = 0;
  uint64_t total_bytes = 0;
  for (ReadPiece* piece = queue_.first; piece != nullptr && count < slots.size();
       piece = piece->next) {
    ReadSlot& slot = piece->batch->slot(piece->slot_index);
    const bool is_plain = piece->batch == queue_.first->batch && piece == &slot.first_piece &&
                          slot.piece_count == 1 && !slot.into.scatter() &&
                          slot.object_bytes != kUnknownSize && slot.reserved_bytes == 0;
    if (!is_plain || !wants_memory(*piece) || slot.range.size_bytes() == 0) break;
    total_bytes += charge_of(slot, slot.range.size_bytes());
    if (total_bytes > pool_.budget_bytes() / kShareProvided) break;
    slots[count++] = &slot;
  }
  if (count > 1) make_room_for_many(pool_, std::span(slots).first(count));
}

// A piece that was the first of the queue.
void PieceQueue::set_aside(ReadPiece& piece) {
  // Before checking whether the batch is waited for: either the check sees the wait, or the waiting
  // thread sees that it must announce the batch.
  if (aside_.empty()) order_.short_queues_.fetch_add(1, std::memory_order_seq_cst);
  const uint64_t order = piece.batch->order;
  const bool ahead = !piece.batch->waited_for() || aside_.contains({.ahead = true, .order = order});
  PieceList& aside = aside_[{.ahead = ahead, .order = order}];
  if (!aside.empty() && piece.slot_index < aside.first->slot_index) {
    // It begins again, perhaps, and comes before its neighbours.
    aside.prepend({.first = &piece, .last = &piece});
  } else {
    aside.append(piece);
  }
}

void PieceQueue::remove(ReadPiece& piece) {
  if (&piece == queue_.first) {
    queue_.take_first();
    return;
  }
  for (const bool ahead : {false, true}) {
    const auto at = aside_.find({.ahead = ahead, .order = piece.batch->order});
    if (at == aside_.end() || at->second.first != &piece) continue;
    at->second.take_first();
    if (at->second.empty()) erase(at);
    return;
  }
}

PieceQueue::Aside::iterator PieceQueue::erase(Aside::iterator at) {
  at = aside_.erase(at);
  if (aside_.empty()) order_.short_queues_.fetch_sub(1, std::memory_order_seq_cst);
  return at;
}

void PieceQueue::waited_for(const ReadBatch& batch) {
  Aside::node_type node = aside_.extract({.ahead = true, .order = batch.order});
  if (node.empty()) return;
  node.key().ahead = false;
  const auto inserted = aside_.insert(std::move(node));
  // Other pieces of this batch may have been set aside when it was already waited for.
  if (!inserted.inserted) inserted.position->second.prepend(inserted.node.mapped());
}

PieceList PieceQueue::drop(const ReadBatch& batch) {
  PieceList dropped =
      queue_.take_if([&batch](const ReadPiece& piece) { return piece.batch == &batch; });
  for (const bool ahead : {false, true}) {
    const auto at = aside_.find({.ahead = ahead, .order = batch.order});
    if (at == aside_.end()) continue;
    dropped.append(at->second);
    erase(at);
  }
  for (const ReadPiece* piece = dropped.first; piece != nullptr; piece = piece->next) {
    --size_;
    on_dequeued(*piece);
  }
  pool_.drop_claim(batch.order);
  return dropped;
}

// They stay queued, so that their batches are left as they are.
void PieceQueue::move_to(PieceQueue& other, const std::function<bool(const PieceReader&)>& moves) {
  const auto which = [&moves](const ReadPiece& piece) { return moves(*piece.reader); };
  PieceList moved;
  for (auto at = aside_.begin(); at != aside_.end();) {
    moved.append(at->second.take_if(which));
    pool_.drop_claim(at->first.order);  // until it is asked for again
    at = at->second.empty() ? erase(at) : std::next(at);
  }
  moved.append(queue_.take_if(which));
  size_ -= moved.count();
  other.push(moved);
}

}  // namespace headrace
