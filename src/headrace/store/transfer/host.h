// One host as this process sees it: its limit, its connections, and the requests waiting for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/http/connection.h"
#include "headrace/http/io_thread.h"
#include "headrace/http/message.h"
#include "headrace/store/read_batch.h"
#include "headrace/store/reading/piece_queue.h"
#include "headrace/store/transfer/admission.h"
#include "headrace/store/transfer/host_log.h"
#include "headrace/store/transfer/retry.h"
#include "headrace/store/transfer/write_conditions.h"

namespace headrace {

class HostLane;

// Reads the pieces that it has queued in a lane. Implemented by HttpStore.
// Thread: I/O.
class PieceReader {
 public:
  // Takes one piece from its first attempt to its end: done, failed, or back in the queue.
  virtual awaitable<void> read_piece(HostLane& lane, ReadPiece& piece, HttpRequest& request) = 0;
  // The piece failed before or outside of read_piece().
  virtual void piece_failed(HostLane& lane, ReadPiece& piece, Error error) = 0;

 protected:
  ~PieceReader() = default;
};

// Shared by all stores with the same route. Lives as long as the engine.
// Thread: any (its members synchronise themselves; lanes belong to their I/O threads).
struct Host {
  // Makes the transport that carries requests: a Connection, except in tests.
  using Connect =
      std::function<std::unique_ptr<Transport>(IoThread&, const std::shared_ptr<const Route>&)>;

  Host(std::shared_ptr<const Route> route, uint32_t initial_in_flight, uint32_t max_in_flight,
       uint32_t retry_budget_tokens, std::shared_ptr<Log> engine_log, Connect connect = {});
  ~Host();

  const std::shared_ptr<const Route> route;
  const std::string authority;  // as requests name the host
  const Connect connect;
  Admission admission;
  RetryBudget retry_budget;
  ReadOrder reads;
  HostLog log;
  WriteConditions conditions;                    // how the service treats them
  std::vector<std::unique_ptr<HostLane>> lanes;  // one per I/O thread, in their order
};

// One of the requests that a lane may have in flight, for a request that is not a piece: a write, a
// page of a listing, a delete. Returned by release(), or on destruction.
// Thread: I/O. Lives in a coroutine's frame; borrows the lane.
class RequestSlot final : public Activity {
 public:
  RequestSlot(HostLane& lane, const void* owner);
  ~RequestSlot() { release(); }

  // Waits for it. Errors: kCancelled when stopped.
  awaitable<Result<void>> take();
  void release();

 private:
  friend class HostLane;
  void interrupt(const Error&) override {}
  void sweep(std::chrono::steady_clock::time_point) override {}

  HostLane& lane_;
  bool taken_ = false;
};

// A host's share of one I/O thread: idle connections, the queue of pieces, and this thread's part
// of the host's in-flight limit, given out in slots. A reader is a coroutine that holds a slot and
// reads one piece after another; readers exist only while there is something to read. Other
// requests take a slot each. If both kinds want more slots than there are, each gets at least half.
// Thread: I/O.
class HostLane {
 public:
  HostLane(Host& host, IoThread& thread, Resolver& resolver, BlockPool& pool);
  ~HostLane();
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;

  // Add or drop pieces through the queue, then call pump().
  PieceQueue& queue() { return queue_; }
  // Gives out as many slots as limit, memory and queue allow.
  void pump();
  // From now on only reads are limited: the engine is stopping, and requests that remove temporary
  // objects must not wait for reads that are stuck.
  void lift_limit();

  // An idle connection that still seems open, or a new one that has yet to be opened.
  std::unique_ptr<Transport> take_connection();
  std::unique_ptr<Transport> new_connection();
  void give_back(std::unique_ptr<Transport> connection);
  void close_idle();  // for good: the engine stops

  // Counts towards the next report to the host's admission.
  void record_outcome(const AdmissionReport& what, std::chrono::steady_clock::time_point now);

  Host& host() { return host_; }
  IoThread& thread() { return thread_; }
  Resolver& resolver() { return resolver_; }
  BlockPool& pool() { return pool_; }
  Rng& rng() { return rng_; }

 private:
  friend class RequestSlot;

  uint32_t slot_limit() const;
  uint32_t slots_taken() const { return reader_count_ + other_count_; }
  bool next_is_reader(uint32_t other_readers) const;
  awaitable<void> reader();
  void arm_idle_timer(std::chrono::steady_clock::time_point at);
  void expire_idle();

  Host& host_;
  IoThread& thread_;
  Resolver& resolver_;
  BlockPool& pool_;
  Rng rng_;
  PieceQueue queue_;
  uint32_t reader_count_ = 0, other_count_ = 0;  // slots taken
  std::list<RequestSlot*> waiting_;              // for a slot, in order
  bool last_was_reader_ = false;                 // whether a reader got the last slot
  bool limit_lifted_ = false;
  bool pumping_ = false;
  std::vector<std::unique_ptr<Transport>> idle_;  // last used last
  const std::shared_ptr<Timer> idle_timer_;
  bool idle_timer_armed_ = false;
  AdmissionReport unreported_;
  std::chrono::steady_clock::time_point reported_at_{};
};

}  // namespace headrace
