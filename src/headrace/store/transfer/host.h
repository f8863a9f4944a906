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
#include "headrace/store/transfer/admission_queue.h"
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
#include "headrace/store/transfer/piece_reader.h"
#include "headrace/store/transfer/retry.h"

namespace headrace {

class HostLane;

// Shared by all stores with the same route. Each sender of requests holds it, and the engine
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

// The right to have one request in flight, of which a lane has as many as its limit. A request that
// was throttled leaves it to others until it is sent again.
// Thread: I/O. Lives in a coroutine's frame; borrows the lane.
class Permit {
 public:
  Permit(HostLane& lane, bool reads) : lane_(lane), request_(reads) {}
  Permit(const Permit&) = delete;
  Permit& operator=(const Permit&) = delete;

  HostLane& lane() { return lane_; }
  // Waits for it and, if requests of this root are paced, for a turn; meanwhile it is not held.
  // False if `waiting` is stopped.
  awaitable<bool> take(Activity& waiting, const std::shared_ptr<Pace>& pace);
  // Gives it up until take(): the request was refused at this pace.
  void step_aside(const std::shared_ptr<Pace>& pace);
  // Whether it came with a turn, which is used up by this.
  bool use_turn() { return request_.use_turn(); }
  // For good. A turn that was not used is for the next request.
  void release();

 private:
  friend class HostLane;

  HostLane& lane_;
  AdmissionQueue::Request request_;
};

// The permit of a request that is not a piece: a write, a page of a listing, a delete.
// Thread: I/O. Lives in a coroutine's frame; borrows the lane.
class RequestPermit final : public Activity {
 public:
  RequestPermit(HostLane& lane, const void* owner);
  ~RequestPermit() { permit_.release(); }

  // Waits for it. Errors: kCancelled when stopped.
  awaitable<Result<void>> take(const std::shared_ptr<Pace>& pace);
  void release() { permit_.release(); }
  Permit& permit() { return permit_; }

 private:
  void interrupt(const Error&) override {}
  void sweep(std::chrono::steady_clock::time_point) override {}

  Permit permit_;
};

// A host's share of one I/O thread: connections, and this thread's part of the host's in-flight
// limit, which an AdmissionQueue gives out as permits. A reader is a coroutine that holds one and
// reads one piece after another; readers exist only while there is something to read. Other
// requests take a permit each.
// Thread: I/O.
class HostLane final : AdmissionQueue::Lane {
 public:
  HostLane(Host& host, IoThread& thread, Resolver& resolver, BlockPool& pool);
  ~HostLane();
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;

  // Add pieces of one reader, at least one: behind those that wait, or in front of them. Call
  // pump() then.
  void add(const PieceList& pieces) { queue_.pieces_like(*pieces.first).push(pieces); }
  void add_in_front(const PieceList& pieces) {
    queue_.pieces_like(*pieces.first).push_front(pieces);
  }
  // Adds the first piece of a slot that begins again.
  void add_again(ReadPiece& piece) { queue_.pieces_like(piece).push_again(piece); }
  // Somebody waits for the batch from now on.
  void waited_for(const ReadBatch& batch) { queue_.waited_for(batch); }
  // Removes a cancelled batch's pieces, and returns them.
  PieceList drop(const ReadBatch& batch) { return queue_.drop(batch); }
  // Gives out as many permits as limit, memory and queue allow.
  void pump() { queue().pump(thread_.now()); }
  // From now on only reads are limited: the engine is stopping, and requests that remove temporary
  // objects must not wait for reads that are stuck.
  void lift_limit();

  ConnectionPool& connections() { return connections_; }
  // `request_count` requests are about to come: opens the connections that they lack, at most as
  // many as the limit allows requests.
  void open_ahead(uint32_t request_count) {
    connections_.open_ahead(std::min(request_count, permit_limit()), queue_.permits_taken());
  }
  // For good: nothing is sent to this host any more.
  void close();

  // Counts towards the next report to the host's admission.
  void record_outcome(const AdmissionReport& what, std::chrono::steady_clock::time_point now);
  // Waits until `until`, or until the request is to probe the outage during which it failed: then
  // true. `outage` may be null.
  awaitable<bool> wait_out(Activity& waiting, std::shared_ptr<Outage> outage,
                           std::chrono::steady_clock::time_point until);
  // A request has succeeded. If that ends an outage, the requests that wait in all lanes are
  // called.
  void succeeded(OutageWatch& watch) {
    if (watch.succeeded()) call_everywhere();
    if (!waiting_out_.empty()) call_two();
  }
  // The root has been throttled for the first time: moves the requests that wait to be sent to it
  // to a line of their own, in all lanes of the host.
  void set_apart(const std::shared_ptr<Pace>& pace);

  Host& host() { return host_; }
  IoThread& thread() { return thread_; }
  Resolver& resolver() { return resolver_; }
  BlockPool& pool() { return pool_; }
  Rng& rng() { return rng_; }
  HedgeRules& hedges() { return hedges_; }
  BodyRates& body_rates() { return body_rates_; }
  // A hedge has ended, and its permit may be free now.
  void hedge_ended() {
    if (queue_.somebody_waits()) pump();
  }
  // This thread's part of the host's in-flight limit.
  uint32_t permit_limit() const override;
  bool has_free_permit() const { return queue_.has_free_permit(); }

 private:
  friend class Permit;
  class Reading;

  // Every request comes through here, so that none waits once the thread stops.
  AdmissionQueue& queue() {
    if (thread_.stopping()) queue_.stop();
    return queue_;
  }
  uint32_t hedge_permits() const override {
    return hedges_.running() > 0 ? hedges_.permits_taken(permit_limit()) : 0;
  }
  void start_reader(Begin begin) override;
  void pump_at(std::chrono::steady_clock::time_point at) override;
  awaitable<void> reader(Begin begin);
  void call_everywhere();
  void call_two();

  Host& host_;
  IoThread& thread_;
  Resolver& resolver_;
  BlockPool& pool_;
  Rng rng_;
  AdmissionQueue queue_;
  // A request that failed and waits to be sent again.
  struct WaitingOut {
    Activity& activity;
    const std::shared_ptr<Outage> outage;
    bool is_called = false;
  };
  std::list<WaitingOut> waiting_out_;
  ConnectionPool connections_;
  const std::shared_ptr<Timer> turn_timer_;
  std::optional<std::chrono::steady_clock::time_point> turn_timer_at_;  // none: not armed
  HedgeRules hedges_;
  BodyRates body_rates_;
  AdmissionReport unreported_;
  std::chrono::steady_clock::time_point reported_at_{};
};

}  // namespace headrace
