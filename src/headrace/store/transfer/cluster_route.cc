#include "headrace/store/transfer/cluster_route.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace headrace {

ClusterLanes::ClusterLanes(const Placement& placement, MapKeeper& keeper, LanesElsewhere& elsewhere,
                           std::function<void()> fetch_map)
    : placement_(placement),
      keeper_(keeper),
      elsewhere_(elsewhere),
      fetch_map_(std::move(fetch_map)) {}

const HostMap* ClusterLanes::newest_map() {
  if (const uint64_t version = keeper_.version(); version != map_version_) {
    map_ = keeper_.map();
    map_version_ = version;
    of_hosts_.assign(map_->hosts.size(), nullptr);
    // Hosts that stay are held on, with their connections and limits.
    std::set<Endpoint> named(map_->hosts.begin(), map_->hosts.end());
    named.insert(map_->entrances.begin(), map_->entrances.end());
    for (const std::vector<Endpoint>& others : map_->other_endpoints) {
      named.insert(others.begin(), others.end());
    }
    elsewhere_.forget_all_but([&named](const Endpoint& each) { return named.contains(each); });
  }
  return map_.get();
}

Result<std::shared_ptr<HostLane>> ClusterLanes::to_host(size_t index) {
  std::shared_ptr<HostLane>& lane = of_hosts_[index];
  if (lane == nullptr) {
    Result<std::shared_ptr<HostLane>> reached = elsewhere_.to(map_->hosts[index]);
    if (!reached) return reached;
    lane = std::move(*reached);
  }
  return lane;
}

// ── Where an attempt goes ────────────────────────────────────────────────────────────────────

Result<std::shared_ptr<HostLane>> ClusterRoute::choose(HttpRequest& request) {
  Result<std::shared_ptr<HostLane>> lane = direct_lane(request);
  if (!lane) return lane;
  if (*lane != nullptr) {
    direct_ = true;
    request.waits_for_continue = false;
    return lane;
  }
  entering_ = true;
  if (entrance_ == nullptr && !own_.host().reachability.is_tried(now())) {
    entrance_ = next_entrance();
  }
  return entrance_;
}

// The lane to the host that has the object; null if that is not known.
Result<std::shared_ptr<HostLane>> ClusterRoute::direct_lane(HttpRequest& request) {
  lanes_.fetch_map_if_wanted(now());
  // What is not sent at all says nothing about the hosts.
  if (direct_failed_ || request.object.empty() || request.refused) return nullptr;
  if (!lanes_.keeper().takes_direct(now())) return nullptr;
  const HostMap* const map = lanes_.newest_map();
  if (map == nullptr) return nullptr;
  const std::optional<size_t> host = lanes_.placement().send_to(*map, request);
  if (!host) return nullptr;
  Result<std::shared_ptr<HostLane>> lane = lanes_.to_host(*host);
  if (lane && !(*lane)->host().reachability.is_tried(now())) return nullptr;
  return lane;
}

// Another way into the cluster than those that were passed over; null: there is none. One that was
// not reached lately is tried only if no other one was.
std::shared_ptr<HostLane> ClusterRoute::next_entrance() {
  const HostMap* const map = lanes_.newest_map();
  while (map != nullptr && passed_over_ < map->entrances.size()) {
    Result<std::shared_ptr<HostLane>> lane = lanes_.to(map->entrances[passed_over_++]);
    if (!lane || lane->get() == &own_) continue;
    if (none_reached_ || (*lane)->host().reachability.is_tried(now())) return std::move(*lane);
  }
  return nullptr;
}

// ── How an attempt ended ─────────────────────────────────────────────────────────────────────

void ClusterRoute::judge(const Ended& ended, RetryState::Outcome& outcome) {
  if (entering_) judge_entrance(ended, outcome);
  if (ended.exchanged || direct_) judge_direct(ended, outcome);
}

// A request that could not be sent goes by one entrance after the other, the store's endpoint among
// them: nobody has got it, so nothing is done twice. If none can be reached, the error is that of
// the endpoint. One that may have been sent is repeated as ever; if no answer came in time, by
// another entrance.
void ClusterRoute::judge_entrance(const Ended& ended, RetryState::Outcome& outcome) {
  if (outcome.lost_connection()) return;  // it is asked again
  const bool is_own = &ended.via == &own_;
  Reachability& reachability = ended.via.host().reachability;
  if (ended.exchanged) reachability.reached();
  bool failed = !ended.exchanged && outcome.error && !ended.stopped;
  if (failed && ended.reached_server) failed = outcome.error->code() == Code::kTimedOut;
  // A certificate that is not accepted, say, is not to be got round.
  if (failed && is_own) failed = is_retryable(*outcome.error);
  if (failed) {
    reachability.failed(now());
    endpoint_failed_ = endpoint_failed_ || is_own;
    entrance_ = next_entrance();
    if (entrance_ == nullptr && !endpoint_failed_) {
      entrance_ = std::shared_ptr<HostLane>(std::shared_ptr<HostLane>(), &own_);
    }
    if (entrance_ != nullptr) {
      if (!ended.reached_server) outcome.remedy = RetryState::Remedy::kOtherWay;
      return;
    }
    if (!is_own && !ended.reached_server) outcome.error = *ended.error_before;
  }
  none_reached_ = failed;
  entrance_ = nullptr;
  endpoint_failed_ = false;
  passed_over_ = 0;
}

// What becomes of a direct request that failed, and what is learned from it and from its success.
void ClusterRoute::judge_direct(const Ended& ended, RetryState::Outcome& outcome) {
  MapKeeper& keeper = lanes_.keeper();
  if (direct_ && ended.reached_server) ended.via.host().reachability.reached();
  if (direct_ && outcome.error) {
    if (outcome.lost_connection()) return;  // the host is asked again
    direct_failed_ = true;
    // An object that is not the one asked for may be what a host that is no longer its owner kept.
    const bool is_another = outcome.error->code() == Code::kPreconditionFailed;
    if (ended.attempt.refused_as_direct() || is_another) {
      direct_refusal_ = std::make_unique<DirectRefusal>(
          DirectRefusal{.status = is_another ? 404 : outcome.error->http_status(),
                        .credential_version = ended.credential_version});
      outcome.remedy = RetryState::Remedy::kElsewhere;
    } else if (!ended.exchanged && is_retryable(*outcome.error)) {
      keeper.doubt();
      if (!ended.reached_server) ended.via.host().reachability.failed(now());
      // What was never sent can go the other way at once.
      if (!ended.reached_server) outcome.remedy = RetryState::Remedy::kElsewhere;
    }
  } else if (direct_) {
    keeper.direct_taken();
  } else if (!outcome.error && direct_refusal_) {
    const DirectRefusal refusal = *std::exchange(direct_refusal_, nullptr);
    // A credential that has expired says nothing about direct requests.
    if (refusal.status == 401 && refusal.credential_version != ended.credential_version) return;
    keeper.direct_refused(/*for_good=*/refusal.status == 401 || refusal.status == 403, now());
  }
}

// The endpoint has just said which host has the object. If the map says another one, it is old:
// what this request changes would not be seen by a read that goes by it.
void ClusterRoute::was_told(const Endpoint& told, const HttpRequest& request) {
  if (!entering_) return;
  const HostMap* const map = lanes_.newest_map();
  if (map == nullptr || request.object.empty()) return;
  const std::optional<size_t> owner = lanes_.placement().owner(*map, request.object);
  if (owner) {
    const std::vector<Endpoint>& others = map->other_endpoints[*owner];
    if (told == map->hosts[*owner] || std::ranges::find(others, told) != others.end()) return;
  }
  if (lanes_.keeper().contradicted(now())) {
    own_.host().log.contradicted(
        [&] { return told.authority(); },
        [&] { return owner ? map->hosts[*owner].authority() : std::string("no target"); });
  }
  lanes_.fetch_map_if_wanted(now());
}

awaitable<bool> ClusterRoute::may_come_back(Activity& waiting) {
  MapKeeper& keeper = lanes_.keeper();
  if (keeper.is_unsettled(now())) co_return true;
  const uint64_t fetch = keeper.next_fetch();
  while (!waiting.stopped()) {
    if (keeper.is_over(fetch, waiting.waker())) co_return keeper.is_unsettled(now());
    if (keeper.begin_fetch(fetch)) lanes_.fetch_map();
    co_await waiting.park(waiting.deadline());
  }
  co_return false;
}

}  // namespace headrace
