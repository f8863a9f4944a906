// The way of a request into a cluster whose hosts have objects of their own (AIStore's).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/http/io_thread.h"
#include "headrace/http/message.h"
#include "headrace/store/placement.h"
#include "headrace/store/protocol.h"
#include "headrace/store/transfer/attempt.h"
#include "headrace/store/transfer/host.h"
#include "headrace/store/transfer/lanes_elsewhere.h"
#include "headrace/store/transfer/retry.h"

namespace headrace {

// What the requests of one store to its cluster share on one I/O thread: the newest map, and the
// lanes to its hosts.
// Thread: I/O. Borrows its arguments.
class ClusterLanes {
 public:
  using TimePoint = MapKeeper::TimePoint;

  // `keeper` belongs to the store's endpoint. `fetch_map` sees to it that the map is fetched, and
  // that MapKeeper::fetched() is called.
  ClusterLanes(const Placement& placement, MapKeeper& keeper, LanesElsewhere& elsewhere,
               std::function<void()> fetch_map);

  const Placement& placement() const { return placement_; }
  MapKeeper& keeper() { return keeper_; }
  // Null: there is none. Valid until it is asked for again.
  const HostMap* newest_map();
  // To the host with this index in the newest map.
  Result<std::shared_ptr<HostLane>> to_host(size_t index);
  Result<std::shared_ptr<HostLane>> to(const Endpoint& endpoint) { return elsewhere_.to(endpoint); }
  void fetch_map() { fetch_map_(); }
  void fetch_map_if_wanted(TimePoint now) {
    if (keeper_.is_wanted(now) && keeper_.begin_fetch()) fetch_map_();
  }

 private:
  const Placement& placement_;
  MapKeeper& keeper_;
  LanesElsewhere& elsewhere_;
  const std::function<void()> fetch_map_;
  std::shared_ptr<const HostMap> map_;
  uint64_t map_version_ = 0;
  std::vector<std::shared_ptr<HostLane>> of_hosts_;
};

// Where the attempts of one request go: straight to the host that has the object, as the map says;
// else in by the store's endpoint, or by another entrance of the cluster where that one cannot be
// reached. Learns from how they end.
// Thread: I/O. Part of an operation; borrows everything.
class ClusterRoute {
 public:
  ClusterRoute(ClusterLanes& lanes, HostLane& own) : lanes_(lanes), own_(own) {}

  // The next attempt goes where this request was told to go, unless choose() is called.
  void begin_attempt() { direct_ = entering_ = false; }
  // The lane for the next attempt; null: to the store's own endpoint.
  Result<std::shared_ptr<HostLane>> choose(HttpRequest& request);
  // Whether the present attempt goes to a host that the map names.
  bool is_direct() const { return direct_; }

  // How the present attempt ended.
  struct Ended {
    const Attempt& attempt;
    HostLane& via;
    bool exchanged = false;  // it was answered
    bool reached_server = false;
    bool stopped = false;
    uint64_t credential_version = 0;
    const Error* error_before = nullptr;  // of the attempt before
  };
  void judge(const Ended& ended, RetryState::Outcome& outcome);
  // The endpoint sends the request to this host.
  void was_told(const Endpoint& told, const HttpRequest& request);
  // Whether an object that was there before and is not found, or a host that cannot be reached, may
  // be found again: the cluster has changed lately.
  awaitable<bool> may_come_back(Activity& waiting);
  // The way that the next attempt takes after a detour was found.
  HostLane& entrance() const { return *entrance_; }

 private:
  Result<std::shared_ptr<HostLane>> direct_lane(HttpRequest& request);
  std::shared_ptr<HostLane> next_entrance();
  void judge_entrance(const Ended& ended, RetryState::Outcome& outcome);
  void judge_direct(const Ended& ended, RetryState::Outcome& outcome);
  MapKeeper::TimePoint now() const { return own_.thread().now(); }

  struct DirectRefusal {
    int status = 0;  // 404 also for an object that is not the one asked for
    uint64_t credential_version = 0;
  };

  ClusterLanes& lanes_;
  HostLane& own_;                                  // of the store's endpoint
  std::shared_ptr<HostLane> entrance_;             // of the cluster; null: the store's endpoint
  std::unique_ptr<DirectRefusal> direct_refusal_;  // until the store's endpoint has judged
  bool direct_ = false;                            // the present attempt goes to a host of the map
  bool direct_failed_ = false;                     // an attempt did, in vain: the others do not
  bool entering_ = false;         // it goes to the store's endpoint, or to another entrance
  bool endpoint_failed_ = false;  // since an entrance was reached
  bool none_reached_ = false;     // of all entrances, by the attempt before
  uint16_t passed_over_ = 0;      // of the map's entrances, since one was reached
};

}  // namespace headrace
