// One host as this process sees it: its limit, its connections, and the reads queued for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/http/connection.h"
#include "headrace/http/io_thread.h"
#include "headrace/store/admission.h"
#include "headrace/store/read_batch.h"
#include "headrace/store/retry.h"

namespace headrace {

class HostLane;

// Shared by all stores with the same route. Lives as long as the engine.
// Thread: any (its members synchronise themselves; lanes belong to their I/O threads).
struct Host {
  Host(std::shared_ptr<const Route> route, uint32_t initial_in_flight, uint32_t max_in_flight,
       uint32_t retry_budget_tokens);
  ~Host();

  // Called whenever batch.queued_slots has become zero, or is zero no longer.
  void queued_changed(const ReadBatch& batch);
  // The order of the oldest batch of which a slot has not begun, on whichever lane; UINT64_MAX if
  // there is none.
  uint64_t oldest_queued() const { return oldest_queued_.load(std::memory_order_seq_cst); }

  const std::shared_ptr<const Route> route;
  Admission admission;
  RetryBudget retry_budget;
  std::atomic<uint64_t> mean_object_bytes = 0;   // of what was read lately; 0: nothing yet
  std::atomic<uint64_t> next_order = 0;          // of the next batch
  std::vector<std::unique_ptr<HostLane>> lanes;  // one per I/O thread, in their order

 private:
  Mutex mutex_;
  std::set<uint64_t> queued_ HEADRACE_GUARDED_BY(mutex_);  // orders of batches
  std::atomic<uint64_t> oldest_queued_ = UINT64_MAX;
};

// A host's share on one I/O thread: idle connections, and the queue of pieces with the readers that
// work it off. A reader is a coroutine that reads piece after piece; there are as many as the
// host's limit gives this thread, and none when there is nothing to read.
// Thread: I/O.
class HostLane {
 public:
  HostLane(Host& host, IoThread& thread, Resolver& resolver, BlockPool& pool);
  ~HostLane();
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;

  // A list of pieces (linked by `next`): behind what is queued, or before it. Then pump().
  void enqueue(ReadPiece* first);
  void enqueue_front(ReadPiece* first);
  // The first piece of a slot that had begun, and has no memory: it begins again.
  void enqueue_again(ReadPiece& piece);
  // Starts readers as far as limit, memory and queue allow.
  void pump();
  // Takes a cancelled batch's pieces out of the queue; returns them linked.
  ReadPiece* drop(const ReadBatch& batch);

  // An idle connection that still seems open, or a new one that is not open yet.
  std::unique_ptr<Connection> take_connection(std::chrono::steady_clock::time_point now);
  void give_back(std::unique_ptr<Connection> connection);
  void close_idle();  // for good: the engine stops

  // Counts towards the next report to the host's admission.
  void record_outcome(const AdmissionReport& what, std::chrono::steady_clock::time_point now);

  Host& host() { return host_; }
  IoThread& thread() { return thread_; }
  Resolver& resolver() { return resolver_; }
  BlockPool& pool() { return pool_; }
  Rng& rng() { return rng_; }

 private:
  uint32_t reader_limit() const;
  ReadPiece* take();  // the next piece that may start, taken from the queue; or null
  bool wants_memory(const ReadPiece& piece) const;
  bool may_start(const ReadPiece& piece) const;
  bool any_may_start();
  uint64_t expected_need(const ReadSlot& slot) const;  // bytes; 0: nothing is known yet
  bool reserve(const ReadPiece& piece);                // false if the room is gone
  void on_dequeued(const ReadPiece& piece);            // or was dropped
  awaitable<void> reader();
  void arm_idle_timer(std::chrono::steady_clock::time_point at);
  void expire_idle();

  Host& host_;
  IoThread& thread_;
  Resolver& resolver_;
  BlockPool& pool_;
  Rng rng_;
  ReadPiece* first_ = nullptr;
  ReadPiece* last_ = nullptr;
  size_t queued_count_ = 0;
  uint32_t reader_count_ = 0;
  std::vector<std::unique_ptr<Connection>> idle_;  // last used last
  Timer idle_timer_;
  bool idle_timer_armed_ = false;
  bool pumping_ = false;
  AdmissionReport unreported_;
  std::chrono::steady_clock::time_point reported_at_{};
};

}  // namespace headrace
