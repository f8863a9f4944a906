// A cluster whose hosts have objects of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/format/url.h"
#include "headrace/http/message.h"
#include "headrace/store/response.h"

namespace headrace {

// The hosts of a cluster at some moment, each with objects of its own. A protocol derives what it
// needs from it.
// Thread: any (immutable).
struct HostMap {
  HostMap() = default;
  virtual ~HostMap() = default;
  HostMap(const HostMap&) = delete;
  HostMap& operator=(const HostMap&) = delete;

  uint64_t version = 0;  // of the maps of one cluster, a newer one has a greater one
  std::string cluster = {};
  std::vector<Endpoint> hosts = {};
  // For each of the hosts, where else it is sent to by the store's endpoint.
  std::vector<std::vector<Endpoint>> other_endpoints = {};
  // Of those of the hosts that have objects now.
  std::vector<std::string> members = {};
  // Where requests may begin that cannot reach the store's endpoint, preferred ones first. The
  // endpoint itself may be among them.
  std::vector<Endpoint> entrances = {};
};

// Sends requests about objects straight to the host of a cluster that has them.
// Thread: any (immutable).
class Placement {
 public:
  virtual ~Placement() = default;
  virtual void build_map(HttpRequest& request) const = 0;
  virtual Result<std::shared_ptr<const HostMap>> parse_map(const Response& response) const = 0;
  // Which host has the object of this name: an index into the map's hosts. None: no host has any.
  virtual std::optional<size_t> owner(const HostMap& map, std::string_view name) const = 0;
  // Which host of the map takes this request: an index into its hosts. None: the store's endpoint.
  virtual std::optional<size_t> send_to(const HostMap& map, const HttpRequest& request) const = 0;
};

}  // namespace headrace
