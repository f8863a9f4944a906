// The cluster map of AIStore: GET /v1/daemon?what=smap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/format/url.h"

namespace headrace {

struct AisNode {
  std::string id = {};
  Endpoint endpoint = {};  // where clients reach it
  // Its addresses in other networks. A proxy may send clients there: to any of several public ones,
  // and to internal ones if it takes the client for a neighbour.
  std::vector<Endpoint> other_endpoints = {};
  uint64_t flags = 0;
  // Under maintenance or being decommissioned: it owns no objects.
  bool is_leaving() const { return (flags & 12) != 0; }
  bool operator==(const AisNode&) const = default;
};

struct AisMap {
  // More nodes than any cluster has; a map with more is refused.
  static constexpr size_t kMaxNodes = 100'000;

  uint64_t version = 0;
  std::string uuid = {};        // of the cluster; never changes
  std::string primary_id = {};  // of the primary proxy
  // By id. Proxies have at least one, targets may have none.
  std::vector<AisNode> proxies = {}, targets = {};
  bool operator==(const AisMap&) const = default;
};

// Errors: kCorrupt for what is cut off, has wrong types, no version, or no proxy.
Result<AisMap> parse_ais_map(std::string_view json);

}  // namespace headrace
