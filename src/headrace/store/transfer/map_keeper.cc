#include "headrace/store/transfer/map_keeper.h"

#include <algorithm>
#include <utility>

namespace headrace {

std::shared_ptr<const HostMap> MapKeeper::map() const {
  const Lock lock(mutex_);
  return map_;
}

bool MapKeeper::begin() {
  if (begun_ > ended_) return false;
  ++begun_;
  // What is found wanting from now on needs another one.
  doubted_.store(false, std::memory_order_relaxed);
  return true;
}

bool MapKeeper::contradicted(TimePoint now) {
  const Lock lock(mutex_);
  contradicted_at_ = now;
  believed_from_ = begun_ + 1;
  if (!is_contradicted_.exchange(true, std::memory_order_relaxed)) {
    contradicted_from_ = believed_from_;
    same_again_ = 0;
  }
  doubt();
  return same_again_ > 1;
}

bool MapKeeper::begin_fetch() {
  const Lock lock(mutex_);
  return begin();
}

bool MapKeeper::begin_fetch(uint64_t fetch) {
  const Lock lock(mutex_);
  return begun_ < fetch && begin();
}

void MapKeeper::fetched(Result<std::shared_ptr<const HostMap>> map, TimePoint now) {
  std::vector<std::function<void()>> waiters;
  {
    const Lock lock(mutex_);
    ended_ = begun_;
    waiters.swap(waiters_);
    if (map) {
      failure_.reset();
      pause_ = kPause;
      store(old_at_, now + kMaxAge);
      judge_contradiction(take(std::move(*map), now), now);
    } else {
      failure_ = std::move(map.error());
      store(old_at_, now);
      store(not_before_, now + pause_);
      pause_ = std::min(2 * pause_, kMaxPause);
    }
  }
  for (const std::function<void()>& wake : waiters) wake();
}

void MapKeeper::judge_contradiction(bool newer, TimePoint now) {
  if (!is_contradicted_.load(std::memory_order_relaxed)) return;
  const bool is_judged = ended_ >= believed_from_;
  if (is_judged && (newer || now >= contradicted_at_ + kPause)) {
    is_contradicted_.store(false, std::memory_order_relaxed);
    return;
  }
  doubt();
  same_again_ = newer || ended_ < contradicted_from_ ? 0 : same_again_ + 1;
  if (same_again_ > 0) store(not_before_, contradicted_at_ + kPause);
}

bool MapKeeper::take(std::shared_ptr<const HostMap> map, TimePoint now) {
  if (map_ != nullptr && map_->cluster == map->cluster) {
    // A proxy that has not heard of the newest map may tell an older one.
    if (map->version <= map_->version) return false;
    for (const std::string& member : map_->members) away_.try_emplace(member, now);
    for (const std::string& member : map->members) away_.erase(member);
    std::erase_if(away_, [now](const auto& each) { return now >= each.second + kMayComeBack; });
  } else {
    away_.clear();
  }
  // Also a version that brought the same members: some may have left and come back.
  if (map_ != nullptr) changed_at_ = now;
  map_ = std::move(map);
  refused_.store(0, std::memory_order_relaxed);
  version_.fetch_add(1, std::memory_order_release);
  return true;
}

uint64_t MapKeeper::next_fetch() const {
  const Lock lock(mutex_);
  return begun_ + 1;
}

bool MapKeeper::is_over(uint64_t fetch, std::function<void()> on_change) {
  const Lock lock(mutex_);
  if (ended_ >= fetch) return true;
  waiters_.push_back(std::move(on_change));
  return false;
}

bool MapKeeper::when_known(std::function<void()> then) {
  bool fetch = false;
  {
    const Lock lock(mutex_);
    if (map_ == nullptr) {
      fetch = begun_ == ended_;
      if (fetch) ++begun_;
      waiters_.push_back(std::exchange(then, nullptr));
    }
  }
  if (then) then();
  return fetch;
}

std::optional<Error> MapKeeper::why_unknown() const {
  const Lock lock(mutex_);
  return map_ == nullptr ? failure_ : std::nullopt;
}

bool MapKeeper::is_unsettled(TimePoint now) const {
  const Lock lock(mutex_);
  if (changed_at_ && now < *changed_at_ + kUnsettled) return true;
  return std::ranges::any_of(away_,
                             [now](const auto& each) { return now < each.second + kMayComeBack; });
}

void MapKeeper::direct_refused(bool for_good, TimePoint now) {
  doubt();
  if (!for_good && refused_.fetch_add(1, std::memory_order_relaxed) + 1 < kMaxRefused) return;
  refused_.store(0, std::memory_order_relaxed);
  store(direct_again_at_, now + kWithoutDirect);
}

bool Reachability::is_tried(TimePoint now) {
  if (failed_.load(std::memory_order_relaxed) < kMaxFailed) return true;
  TimePoint::rep at = try_again_at_.load(std::memory_order_relaxed);
  if (now.time_since_epoch().count() < at) return false;
  const TimePoint next = now + kPassedOver;
  return try_again_at_.compare_exchange_strong(at, next.time_since_epoch().count(),
                                               std::memory_order_relaxed);
}

void Reachability::failed(TimePoint now) {
  const TimePoint next = now + kPassedOver;
  try_again_at_.store(next.time_since_epoch().count(), std::memory_order_relaxed);
  failed_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace headrace
