// One host as this process sees it: its limit, its connections, and the requests waiting for it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/http/connection.h"
#include "headrace/http/io_thread.h"
#include "headrace/http/message.h"
#include "headrace/store/read_batch.h"
#include "headrace/store/transfer/admission.h"
#include "headrace/store/transfer/batch_get_record.h"
#include "headrace/store/transfer/body_rates.h"
#include "headrace/store/transfer/connection_pool.h"
#include "headrace/store/transfer/hedge_rules.h"
#include "headrace/store/transfer/host_log.h"
#include "headrace/store/transfer/learned_of_bucket.h"
#include "headrace/store/transfer/map_keeper.h"
#include "headrace/store/transfer/outage.h"
#include "headrace/store/transfer/pace.h"
#include "headrace/store/transfer/piece_queue.h"
#include "headrace/store/transfer/retry.h"

namespace headrace {

class HostLane;
class Slot;
struct PacedLine;

// Reads the pieces that it has queued in a lane. Implemented by HttpReader.
// Thread: I/O.
class PieceReader {
 public:
  // Takes one piece from its first attempt to its end: done, failed, or back in the queue.
  virtual awaitable<void> read_piece(Slot& slot, ReadPiece& piece, HttpRequest& request) = 0;
  // The piece failed before or outside of read_piece().
  virtual void piece_failed(HostLane& lane, ReadPiece& piece, Error error) = 0;
  virtual const std::shared_ptr<Pace>& pace() const = 0;

 protected:
  ~PieceReader() = default;
};

// Shared by all stores with the same route. Whoever sends requests to it holds it, and the engine
// holds some that nobody does, because their connections and limits are worth keeping.
// Thread: any (its members synchronise themselves; lanes belong to their I/O threads).
struct Host : std::enable_shared_from_this<Host> {
  // Makes the transport that carries requests: a Connection, except in tests.
  using Connect =
      std::function<std::unique_ptr<Transport>(IoThread&, const std::shared_ptr<const Route>&)>;

  Host(std::shared_ptr<const Route> route, uint32_t initial_in_flight, uint32_t max_in_flight,
       uint32_t retry_budget_tokens, std::shared_ptr<Log> engine_log, Connect connect = {},
       std::unique_ptr<Neighbours> neighbours = nullptr);
  ~Host();

  const std::shared_ptr<const Route> route;
  const std::string authority;  // as requests name the host
  const Connect connect;
  Admission admission;
  Paces paces;
  RetryBudget retry_budget;
  OutageWatch outages;  // in which every request fails
  ReadOrder reads;
  HostLog log;
  LearnedOfBuckets buckets;
  BatchGetRecord batch_gets;  // whether there are such requests, and how fast
  MapKeeper map;              // of the cluster, if the service is one
  Reachability reachability;  // if it is a host of a cluster
  // It has refused requests because there were too many: for a while, none is sent twice.
  void hold_hedges(std::chrono::steady_clock::time_point now);
  bool holds_hedges(std::chrono::steady_clock::time_point now) const {
    return now.time_since_epoch().count() < hedges_held_until_.load(std::memory_order_relaxed);
  }
  Learned asks_for_bodies;  // that wait for it (Expect: 100-continue); if not, they do not wait
  std::vector<std::unique_ptr<HostLane>> lanes;  // one per I/O thread, in their order

 private:
  std::atomic<std::chrono::steady_clock::rep> hedges_held_until_ = 0;
};

// One of the requests that a lane may have in flight. What was throttled lets others have it while
// it waits to be sent again.
// Thread: I/O. Lives in a coroutine's frame; borrows the lane.
class Slot {
 public:
  Slot(HostLane& lane, bool reads) : lane_(lane), reads_(reads) {}
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  HostLane& lane() { return lane_; }
  // Waits for it and, if requests of this root are paced, for a turn; meanwhile it is not held.
  // False if `waiting` is stopped.
  awaitable<bool> take(Activity& waiting, const std::shared_ptr<Pace>& pace);
  // Until take(), what was refused at this pace does without it.
  void step_aside(const std::shared_ptr<Pace>& pace);
  // Whether it came with a turn, which is used up by this.
  bool use_turn() { return std::exchange(has_turn_, false); }
  // For good. A turn that was not used is for the next request.
  void release();

 private:
  friend class HostLane;
  using List = std::list<Slot*>;
  void enter(List& list);
  void leave_list();
  void join(PacedLine& line);
  bool give_up();

  HostLane& lane_;
  const bool reads_;  // pieces; others: writes, pages of listings, deletes
  bool held_ = false, has_turn_ = false;
  PacedLine* line_ = nullptr;  // in which it has begun
  // While it waits:
  Activity* waiting_ = nullptr;
  const Pace* pace_ = nullptr;
  List* list_ = nullptr;
  List::iterator place_ = {};
};

// The slot of a request that is not a piece: a write, a page of a listing, a delete.
// Thread: I/O. Lives in a coroutine's frame; borrows the lane.
class RequestSlot final : public Activity {
 public:
  RequestSlot(HostLane& lane, const void* owner);
  ~RequestSlot() { slot_.release(); }

  // Waits for it. Errors: kCancelled when stopped.
  awaitable<Result<void>> take(const std::shared_ptr<Pace>& pace);
  void release() { slot_.release(); }
  Slot& slot() { return slot_; }

 private:
  void interrupt(const Error&) override {}
  void sweep(std::chrono::steady_clock::time_point) override {}

  Slot slot_;
};

// What one root that has been throttled has to send through one lane. It waits here, without a
// slot, until the root's pace grants a turn. No more of its requests begin than could if those that
// wait to be sent again held their slots, but for those on their way when the first was refused.
// Thread: I/O.
struct PacedLine {
  PacedLine(std::shared_ptr<Pace> pace, ReadOrder& order, BlockPool& pool, Metrics& metrics,
            uint32_t lane)
      : pace(std::move(pace)), pieces(order, pool, metrics, lane) {}

  bool has_more() const { return !others.empty() || !pieces.empty(); }
  bool idle() const { return begun == 0 && !has_more(); }

  const std::shared_ptr<Pace> pace;
  std::list<Slot*> returning;  // to be sent again: first
  std::list<Slot*> others;     // not yet begun, as are the pieces
  PieceQueue pieces;
  bool last_was_piece = false;
  uint32_t begun = 0;  // requests, whether they hold a slot or not
  bool waits_for_memory = false;
  // When the next request may be sent; none: when to ask for a turn again.
  std::optional<std::chrono::steady_clock::time_point> turn;
  std::chrono::steady_clock::time_point ask_again{};
};

// A host's share of one I/O thread: connections, the queue of pieces, and this thread's part of the
// host's in-flight limit, given out in slots. A reader is a coroutine that holds a slot and
// reads one piece after another; readers exist only while there is something to read. Other
// requests take a slot each. If both kinds want more slots than there are, each gets at least half.
// So do the roots that have been throttled, together, and all others. The former wait in lines of
// their own, in which each piece has a reader of its own.
// Thread: I/O.
class HostLane {
 public:
  HostLane(Host& host, IoThread& thread, Resolver& resolver, BlockPool& pool);
  ~HostLane();
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;

  // Add pieces of one reader, at least one: behind those that wait, or in front of them. Call
  // pump() then.
  void add(const PieceList& pieces) { queue_of(*pieces.first).push(pieces); }
  void add_in_front(const PieceList& pieces) { queue_of(*pieces.first).push_front(pieces); }
  // Adds the first piece of a slot that begins again.
  void add_again(ReadPiece& piece) { queue_of(piece).push_again(piece); }
  // Somebody waits for the batch from now on.
  void waited_for(const ReadBatch& batch);
  // Removes a cancelled batch's pieces, and returns them.
  PieceList drop(const ReadBatch& batch);
  // Gives out as many slots as limit, memory and queue allow.
  void pump();
  // From now on only reads are limited: the engine is stopping, and requests that remove temporary
  // objects must not wait for reads that are stuck.
  void lift_limit();

  ConnectionPool& connections() { return connections_; }
  // So many requests are about to come: opens connections for them, as far as the limit allows as
  // many requests and there are not as many connections already.
  void open_ahead(uint32_t request_count) {
    connections_.open_ahead(std::min(request_count, slot_limit()), slots_taken());
  }
  // For good: nothing is sent to this host any more.
  void close();

  // Counts towards the next report to the host's admission.
  void record_outcome(const AdmissionReport& what, std::chrono::steady_clock::time_point now);
  // Until `until`, or until it is sent before its time because of the outage amid which it failed.
  // True in the latter case. `outage` may be null.
  awaitable<bool> wait_out(Activity& waiting, std::shared_ptr<Outage> outage,
                           std::chrono::steady_clock::time_point until);
  // A request has succeeded. If that ends an outage, those that wait are called in all lanes.
  void succeeded(OutageWatch& watch) {
    if (watch.succeeded()) call_everywhere();
    if (!waiting_out_.empty()) call_two();
  }
  // The root has been throttled for the first time: what waits to be sent to it gets out of the
  // way of the rest, in all lanes of the host.
  void set_apart(const std::shared_ptr<Pace>& pace);

  Host& host() { return host_; }
  IoThread& thread() { return thread_; }
  Resolver& resolver() { return resolver_; }
  BlockPool& pool() { return pool_; }
  Rng& rng() { return rng_; }
  HedgeRules& hedges() { return hedges_; }
  BodyRates& body_rates() { return body_rates_; }
  // A hedge has ended, and its place may be free now.
  void hedge_ended() {
    if (somebody_waits()) pump();
  }
  // This thread's part of the host's in-flight limit.
  uint32_t slot_limit() const;
  bool has_free_place() const { return slots_taken() < slot_limit(); }

 private:
  friend class Slot;

  uint32_t slots_taken() const {
    const uint32_t hedges = hedges_.running() > 0 ? hedges_.places_taken(slot_limit()) : 0;
    return reader_count_ + other_count_ + hedges;
  }
  uint32_t& count_of(const Slot& slot) { return slot.reads_ ? reader_count_ : other_count_; }
  bool next_is_reader(uint32_t other_readers) const;
  bool somebody_waits() const { return !queue_.empty() || !waiting_.empty() || !lines_.empty(); }
  void grant(Slot& slot, PacedLine* line = nullptr);
  // Reads one piece after the other from the queue, or this one of a line.
  awaitable<void> reader(PacedLine* line = nullptr, ReadPiece* piece = nullptr);
  PieceQueue& queue_of(const ReadPiece& piece);
  PacedLine& line_of(const std::shared_ptr<Pace>& pace);
  bool wants_turn(const PacedLine& line) const;
  bool has_turn(PacedLine& line, std::chrono::steady_clock::time_point now);
  bool serve_lines();
  bool begin_next(PacedLine& line);
  bool a_line_is_due() const;
  void move_to_line(const std::shared_ptr<Pace>& pace);
  void call_everywhere();
  void call_two();
  void arm_turn_timer(std::chrono::steady_clock::time_point at);

  Host& host_;
  IoThread& thread_;
  Resolver& resolver_;
  BlockPool& pool_;
  Rng rng_;
  PieceQueue queue_;
  uint32_t reader_count_ = 0, other_count_ = 0;  // slots taken
  std::list<Slot*> waiting_;                     // for a slot, in order
  std::list<PacedLine> lines_;                   // served last last
  // What failed, and is to be sent again.
  struct WaitingOut {
    Activity& activity;
    const std::shared_ptr<Outage> outage;
    bool is_called = false;
  };
  std::list<WaitingOut> waiting_out_;
  bool last_was_reader_ = false;  // whether a reader got the last slot
  bool last_was_line_ = false;    // whether a line got it
  bool limit_lifted_ = false;
  bool pumping_ = false;
  ConnectionPool connections_;
  const std::shared_ptr<Timer> turn_timer_;
  std::optional<std::chrono::steady_clock::time_point> turn_timer_at_;  // none: not armed
  HedgeRules hedges_;
  BodyRates body_rates_;
  AdmissionReport unreported_;
  std::chrono::steady_clock::time_point reported_at_{};
};

}  // namespace headrace
