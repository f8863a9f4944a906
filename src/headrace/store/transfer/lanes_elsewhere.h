// The ways to other hosts than a store's own.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "headrace/base/result.h"
#include "headrace/http/message.h"
#include "headrace/store/transfer/host.h"

namespace headrace {

// The lanes of one I/O thread to other hosts, each asked for once. A lane keeps its host; only this
// thread counts its owners. Thread: I/O.
class LanesElsewhere {
 public:
  // Errors: those of finding the host; kCancelled once the engine is stopped.
  using Reach = std::function<Result<std::shared_ptr<HostLane>>(const Endpoint&)>;

  explicit LanesElsewhere(Reach reach) : reach_(std::move(reach)) {}

  Result<std::shared_ptr<HostLane>> to(const Endpoint& endpoint) {
    const auto known = known_.find(endpoint);
    if (known != known_.end()) return known->second;
    Result<std::shared_ptr<HostLane>> lane = reach_(endpoint);
    if (!lane) return lane;
    // A service that sends requests to ever more hosts: those in use are held by who uses them.
    if (known_.size() == kMost) known_.clear();
    known_.emplace(endpoint, *lane);
    return lane;
  }
  // The service's hosts have changed: nobody may need the others any more.
  template <class Keeps>
  void forget_all_but(const Keeps& keeps) {
    std::erase_if(known_, [&keeps](const auto& each) { return !keeps(each.first); });
  }

 private:
  static constexpr size_t kMost = 1024;

  const Reach reach_;
  std::map<Endpoint, std::shared_ptr<HostLane>> known_;
};

}  // namespace headrace
