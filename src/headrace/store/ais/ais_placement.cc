#include "headrace/store/ais/ais_placement.h"

#include "headrace/format/ais_map.h"
#include "headrace/format/ais_owner.h"

namespace headrace {
namespace {

struct AisHostMap final : HostMap {
  AisOwners owners;
};

}  // namespace

void AisPlacement::build_map(HttpRequest& request) const {
  request.target.append("/v1/daemon?what=smap");
}

Result<std::shared_ptr<const HostMap>> AisPlacement::parse_map(const Response& response) const {
  const Result<AisMap> map = parse_ais_map(response.body);
  if (!map) return std::unexpected(map.error());
  auto made = std::make_shared<AisHostMap>();
  made->version = map->version;
  made->cluster = map->uuid;
  for (const AisNode& target : map->targets) {
    made->hosts.push_back(target.endpoint);
    made->other_endpoints.push_back(target.other_endpoints);
    if (!target.is_leaving()) made->members.push_back(target.id);
  }
  // The primary first: whatever it alone can do, the others ask it for.
  for (const bool is_primary : {true, false}) {
    for (const AisNode& proxy : map->proxies) {
      if ((proxy.id == map->primary_id) != is_primary || proxy.is_leaving()) continue;
      if (proxy.endpoint.tls || !tls_) made->entrances.push_back(proxy.endpoint);
    }
  }
  made->owners = AisOwners(*map);
  return made;
}

std::optional<size_t> AisPlacement::owner(const HostMap& map, std::string_view name) const {
  return static_cast<const AisHostMap&>(map).owners.owner(paths_.hashed_root(), name);
}

// A target takes a write, or tells of an object, whether or not it is still the owner. What an old
// map makes it store, nobody finds; and conditions are compared with what HEAD tells. So both are
// for a proxy to send on.
std::optional<size_t> AisPlacement::send_to(const HostMap& map, const HttpRequest& request) const {
  if (!direct_ || request.method != "GET") return std::nullopt;
  const std::optional<size_t> host = owner(map, request.object);
  if (host && tls_ && !map.hosts[*host].tls) return std::nullopt;
  return host;
}

}  // namespace headrace
