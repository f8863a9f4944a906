// The pieces that one I/O thread is to read from a host, and which of them may begin now.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <set>

#include "headrace/base/block_pool.h"
#include "headrace/base/metrics.h"
#include "headrace/base/mutex.h"
#include "headrace/store/read_batch.h"

namespace headrace {

// What the queues of one host know of each other, and of the objects there.
// Thread: any.
class ReadOrder {
 public:
  // The place of a batch that is about to be queued.
  uint64_t next() { return next_.fetch_add(1, std::memory_order_relaxed); }
  // Called whenever batch.queued_slots has become zero, or is zero no longer.
  void queued_changed(const ReadBatch& batch);
  // The order of the oldest batch of which a slot has not begun, in whichever queue; UINT64_MAX if
  // there is none.
  uint64_t oldest_queued() const { return oldest_queued_.load(std::memory_order_seq_cst); }
  // Whether some queue has set pieces aside. A batch that is waited for from now on must then be
  // announced by PieceQueue::waited_for().
  bool short_of_memory() const { return short_queues_.load(std::memory_order_seq_cst) > 0; }

  // A running mean over about eight objects; 0: none was read yet.
  uint64_t mean_object_bytes() const { return mean_object_bytes_.load(std::memory_order_relaxed); }
  void learn_size(uint64_t object_bytes);

 private:
  friend class PieceQueue;

  std::atomic<uint64_t> next_ = 0;
  std::atomic<uint64_t> mean_object_bytes_ = 0;
  std::atomic<uint32_t> short_queues_ = 0;
  Mutex mutex_;
  std::set<uint64_t> queued_ HEADRACE_GUARDED_BY(mutex_);  // orders of batches
  std::atomic<uint64_t> oldest_queued_ = UINT64_MAX;
};

// First come, first served, as long as there is memory. A piece for which there is none is set
// aside once, under its batch, so that freed memory costs a look at a few batches and never at the
// whole queue (metrics: pieces_considered_total). Memory goes first to batches that somebody waits
// for, then to the others in their order. Within a batch, pieces that were set aside begin in turn.
// Thread: confined. Borrows all arguments.
class PieceQueue {
 public:
  PieceQueue(ReadOrder& order, BlockPool& pool, Metrics& metrics);
  ~PieceQueue();
  PieceQueue(const PieceQueue&) = delete;
  PieceQueue& operator=(const PieceQueue&) = delete;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // Lists of pieces, linked by `next`: behind what is queued, or ahead of it.
  void push(ReadPiece* first);
  void push_front(ReadPiece* first);
  // The first piece of a slot that had begun, and begins again.
  void push_again(ReadPiece& piece);

  // Whether take() would give a piece. If not, the pool calls when there is room again.
  bool may_take() { return find_or_ask() != nullptr; }
  // The next piece that may begin, with memory reserved for it; or null.
  ReadPiece* take();
  // The batch is waited for, from now on.
  void waited_for(const ReadBatch& batch);
  // Takes a cancelled batch's pieces out; returns them linked.
  ReadPiece* drop(const ReadBatch& batch);
  // The engine stops: pieces are taken only to fail, and need no memory.
  void stop() { stopping_ = true; }

 private:
  struct Aside {  // one batch's pieces, linked
    ReadPiece* first = nullptr;
    ReadPiece* last = nullptr;
  };
  using AsideByOrder = std::map<uint64_t, Aside>;
  // Where the oldest batch cannot use the room (it is too small, or no size is known), a few of the
  // next are asked.
  static constexpr int kBatchesAsked = 4;

  bool wants_memory(const ReadPiece& piece) const;
  bool may_begin(const ReadPiece& piece);
  uint64_t expected_need(const ReadSlot& slot) const;  // bytes; 0: nothing is known yet
  bool reserve(const ReadPiece& piece);                // false if the room is gone
  ReadPiece* find();
  ReadPiece* find_or_ask();
  void set_aside(ReadPiece& piece);
  void remove(ReadPiece& piece);  // the first of the queue, or of those set aside for its batch
  void on_dequeued(const ReadPiece& piece);
  void none_aside_any_more();

  ReadOrder& order_;
  BlockPool& pool_;
  Metrics& metrics_;
  bool stopping_ = false;
  ReadPiece* first_ = nullptr;
  ReadPiece* last_ = nullptr;
  size_t size_ = 0;             // with those set aside
  AsideByOrder wanted_;         // of batches that are waited for
  AsideByOrder ahead_;          // of others
  bool counted_short_ = false;  // in ReadOrder::short_queues_
};

}  // namespace headrace
