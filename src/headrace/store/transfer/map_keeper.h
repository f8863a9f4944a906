// The newest map of a cluster, and what was learned from using it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/result.h"
#include "headrace/store/placement.h"
#include "headrace/store/protocol.h"

namespace headrace {

// The caller for whom begin_fetch() is true fetches the map for all. Requests do not wait for it,
// except those that have to know whether the cluster is changing.
// Thread: any.
class MapKeeper {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A map in use is asked for again after so long: an old one names hosts that answer, too.
  static constexpr std::chrono::seconds kMaxAge{15};
  // After a failure it is left alone for so long, and for twice as long after each in a row.
  static constexpr std::chrono::seconds kPause{5}, kMaxPause{60};
  // After its members have changed, a cluster may not know its own objects for so long: objects
  // move when a node is added or comes back.
  static constexpr std::chrono::seconds kUnsettled{30};
  // So long a member that has left may still come back: a node that is started again, on a busy
  // machine.
  static constexpr std::chrono::seconds kMayComeBack{120};
  // Direct requests that are refused in a row before no more are sent, and for how long.
  static constexpr uint32_t kMaxRefused = 16;
  static constexpr std::chrono::minutes kWithoutDirect{5};

  // Changes with every map; 0: there is none.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  std::shared_ptr<const HostMap> map() const;

  // Whether a map is wanted: there is none, or the one there is is old, or may be.
  bool is_wanted(TimePoint now) const {
    if (now < load(not_before_)) return false;
    return doubted_.load(std::memory_order_relaxed) || now >= load(old_at_);
  }
  // The map may be old.
  void doubt() { doubted_.store(true, std::memory_order_relaxed); }
  // The store's endpoint has sent a request to another host than the map says. The map is not used
  // until a newer request for it is answered. If the answer is the same map, the node may not have
  // heard of the newest one, and the map is asked for once more after kPause. True if that answer,
  // too, was the same: endpoint and map will not agree.
  bool contradicted(TimePoint now);
  // True if the caller has to fetch the map now, and to call fetched() then.
  bool begin_fetch();
  void fetched(Result<std::shared_ptr<const HostMap>> map, TimePoint now);

  // For a caller that wants a map which is asked for from now on: the number of that fetch ...
  uint64_t next_fetch() const;
  // ... and whether it is over. If not, `on_change` is called when some fetch is.
  bool is_over(uint64_t fetch, std::function<void()> on_change);
  // True if the caller has to make that fetch, as begin_fetch() says.
  bool begin_fetch(uint64_t fetch);
  // Calls `then` once there is a map, or the fetch in progress has failed: at once, or from another
  // thread. True if the caller has to fetch the map.
  bool when_known(std::function<void()> then);
  // Why there is no map; none: there is one, or none was asked for.
  std::optional<Error> why_unknown() const;
  // Whether the members of the cluster have changed lately, or one is away that may come back.
  bool is_unsettled(TimePoint now) const;

  // Whether requests may go straight to the hosts of the map.
  bool takes_direct(TimePoint now) const {
    return !is_contradicted_.load(std::memory_order_relaxed) && now >= load(direct_again_at_);
  }
  // A host has taken one ...
  void direct_taken() {
    if (refused_.load(std::memory_order_relaxed) > 0) refused_.store(0, std::memory_order_relaxed);
  }
  // ... or refused one that the store's endpoint then had carried out. `for_good`: for what we are.
  void direct_refused(bool for_good, TimePoint now);

 private:
  using Moment = std::atomic<TimePoint::rep>;
  static TimePoint load(const Moment& at) {
    return TimePoint(TimePoint::duration(at.load(std::memory_order_relaxed)));
  }
  static void store(Moment& at, TimePoint value) {
    at.store(value.time_since_epoch().count(), std::memory_order_relaxed);
  }
  bool begin() HEADRACE_REQUIRES(mutex_);
  // False if there is one as new as this.
  bool take(std::shared_ptr<const HostMap> map, TimePoint now) HEADRACE_REQUIRES(mutex_);
  void judge_contradiction(bool newer, TimePoint now) HEADRACE_REQUIRES(mutex_);

  std::atomic<uint64_t> version_ = 0;
  std::atomic<bool> doubted_ = false, is_contradicted_ = false;
  std::atomic<uint32_t> refused_ = 0;
  Moment old_at_ = TimePoint::min().time_since_epoch().count();
  Moment not_before_ = TimePoint::min().time_since_epoch().count();
  Moment direct_again_at_ = TimePoint::min().time_since_epoch().count();
  mutable Mutex mutex_;
  std::shared_ptr<const HostMap> map_ HEADRACE_GUARDED_BY(mutex_);
  uint64_t begun_ HEADRACE_GUARDED_BY(mutex_) = 0, ended_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::chrono::seconds pause_ HEADRACE_GUARDED_BY(mutex_) = kPause;  // after the next failure
  std::optional<Error> failure_ HEADRACE_GUARDED_BY(mutex_);
  // While it is contradicted: the first fetch after that began, and how many since then brought the
  // same map; when the last contradiction was, and the first fetch after it.
  uint64_t contradicted_from_ HEADRACE_GUARDED_BY(mutex_) = 0;
  uint32_t same_again_ HEADRACE_GUARDED_BY(mutex_) = 0;
  TimePoint contradicted_at_ HEADRACE_GUARDED_BY(mutex_);
  uint64_t believed_from_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::optional<TimePoint> changed_at_ HEADRACE_GUARDED_BY(mutex_);
  // Members that are away, and since when.
  std::map<std::string, TimePoint> away_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> waiters_ HEADRACE_GUARDED_BY(mutex_);
};

// Whether one host of a map can be reached from here.
// Thread: any.
class Reachability {
 public:
  using TimePoint = MapKeeper::TimePoint;

  // Connections that fail in a row before the host is passed over, and for how long.
  static constexpr uint32_t kMaxFailed = 3;
  static constexpr std::chrono::seconds kPassedOver{60};

  // Whether the host is to be tried. Of a host that is passed over, one request finds out now and
  // then whether it can be reached again.
  bool is_tried(TimePoint now);
  void reached() {
    if (failed_.load(std::memory_order_relaxed) > 0) failed_.store(0, std::memory_order_relaxed);
  }
  void failed(TimePoint now);

 private:
  std::atomic<uint32_t> failed_ = 0;
  std::atomic<TimePoint::rep> try_again_at_ = 0;
};

}  // namespace headrace
