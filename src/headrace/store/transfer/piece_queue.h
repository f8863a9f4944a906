// The pieces that one I/O thread has to read from a host, and which of them may begin now.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "headrace/base/block_pool.h"
#include "headrace/base/metrics.h"
#include "headrace/base/mutex.h"
#include "headrace/store/read_batch.h"

namespace headrace {

// What the queues of one host know about each other and about its objects.
// Thread: any.
class ReadOrder {
 public:
  // Called whenever batch.queued() changes.
  void queued_changed(const ReadBatch& batch);
  // The order number of the oldest batch that has a slot waiting in any queue; UINT64_MAX if there
  // is none.
  uint64_t oldest_queued() const { return oldest_queued_.load(std::memory_order_seq_cst); }
  // Whether any queue has set pieces aside. If so, batches must be announced by
  // PieceQueue::waited_for() when somebody begins to wait for them.
  bool short_of_memory() const { return short_queues_.load(std::memory_order_seq_cst) > 0; }

  // A running mean over about eight objects; 0: none was read yet.
  uint64_t mean_object_bytes() const { return mean_object_bytes_.load(std::memory_order_relaxed); }
  void learn_size(uint64_t object_bytes);

 private:
  friend class PieceQueue;

  std::atomic<uint64_t> mean_object_bytes_ = 0;
  std::atomic<uint32_t> short_queues_ = 0;
  Mutex mutex_;
  std::set<uint64_t> queued_ HEADRACE_GUARDED_BY(mutex_);  // orders of batches
  std::atomic<uint64_t> oldest_queued_ = UINT64_MAX;
};

// First come, first served, as long as there is memory. A piece that finds none is set aside once,
// under its batch, so that freed memory means looking at a few batches, never at the whole queue
// (metrics: pieces_considered_total). Memory goes first to batches that somebody waits for, then to
// the others in order. Within a batch, pieces that were set aside begin in turn.
// Thread: confined. Borrows all arguments.
class PieceQueue {
 public:
  // `lane`: the one that it belongs to, among those of its host.
  PieceQueue(ReadOrder& order, BlockPool& pool, Metrics& metrics, uint32_t lane = 0);
  ~PieceQueue();
  PieceQueue(const PieceQueue&) = delete;
  PieceQueue& operator=(const PieceQueue&) = delete;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // Add pieces: behind the queue, or in front of it.
  void push(const PieceList& pieces);
  void push_front(const PieceList& pieces);
  // Adds the first piece of a slot that begins again.
  void push_again(ReadPiece& piece);

  // Whether take() would return a piece. If not, the pool notifies us when there is room.
  bool may_take() { return find_or_ask() != nullptr; }
  // The next piece that may begin, with memory reserved for it; or null.
  ReadPiece* take();
  // Somebody waits for the batch from now on.
  void waited_for(const ReadBatch& batch);
  // Removes a cancelled batch's pieces, and returns them.
  PieceList drop(const ReadBatch& batch);
  // Moves the pieces of the readers for whom `moves` is true behind those of another queue of the
  // same host.
  void move_to(PieceQueue& other, const std::function<bool(const PieceReader&)>& moves);
  // The engine stops: pieces are taken only to fail, and need no memory.
  void stop() { stopping_ = true; }

 private:
  // Whose pieces are set aside. Those of batches that are waited for come first.
  struct Turn {
    bool ahead = false;  // nobody waits for it, or did when the first of these was set aside
    uint64_t order = 0;
    auto operator<=>(const Turn&) const = default;
  };
  using Aside = std::map<Turn, PieceList>;
  // If the oldest batch cannot use the room (too little of it, or no size is known), how many of
  // the next to try.
  static constexpr int kBatchesAsked = 4;

  bool wants_memory(const ReadPiece& piece) const;
  bool may_begin(const ReadPiece& piece);
  // What its memory will be charged; none if that may be anything.
  std::optional<uint64_t> expected_need(const ReadSlot& slot) const;
  bool reserve(const ReadPiece& piece);  // false if the room is gone
  void provide_ahead();
  ReadPiece* find();
  ReadPiece* find_or_ask();
  void set_aside(ReadPiece& piece);
  void remove(ReadPiece& piece);  // the first of the queue, or of those set aside for its batch
  Aside::iterator erase(Aside::iterator at);
  void on_dequeued(const ReadPiece& piece);

  ReadOrder& order_;
  BlockPool& pool_;
  Metrics& metrics_;
  const uint32_t lane_;
  bool stopping_ = false;
  PieceList queue_;
  Aside aside_;      // unless it is empty, counted in ReadOrder::short_queues_
  size_t size_ = 0;  // of both
};

}  // namespace headrace
