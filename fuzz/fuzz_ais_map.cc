// No beginning of a complete cluster map is a cluster map; what is written is read back; every name
// has one owner, which does not leave, and which is the same when those that leave are gone.
#include <algorithm>
#include <string>

#include "fuzz/check.h"
#include "headrace/format/ais_map.h"
#include "headrace/format/ais_owner.h"
#include "headrace/format/json_quote.h"

using namespace headrace;
using fuzz::check;

namespace {

std::string to_json(const Endpoint& endpoint) {
  return cat("{\"direct_url\":",
             json_quote(cat(endpoint.tls ? "https://" : "http://", endpoint.authority())), "}");
}

std::string to_json(const AisNode& node) {
  std::string more;
  for (const Endpoint& each : node.other_endpoints) {
    more += cat(more.empty() ? "" : ",", to_json(each));
  }
  return cat("{\"daemon_id\":", json_quote(node.id), ",\"flags\":", node.flags,
             ",\"public_net\":", to_json(node.endpoint), ",\"pub_extra\":[", more, "]}");
}

std::string to_json(const std::vector<AisNode>& nodes) {
  std::string json = "{";
  for (const AisNode& node : nodes) {
    if (json.size() > 1) json += ',';
    json += cat(json_quote(node.id), ":", to_json(node));
  }
  return json + "}";
}

std::string to_json(const AisMap& map) {
  return cat("{\"pmap\":", to_json(map.proxies), ",\"tmap\":", to_json(map.targets),
             ",\"proxy_si\":{\"daemon_id\":", json_quote(map.primary_id),
             "},\"uuid\":", json_quote(map.uuid), ",\"version\":\"", map.version, "\"}");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::Choices choices(text);
  const Result<AisMap> map = parse_ais_map(text);
  if (!map) {
    check(map.error().code() == Code::kCorrupt);
    return 0;
  }
  check(!map->proxies.empty() && map->version > 0);
  const std::string json = to_json(*map);
  const Result<AisMap> again = parse_ais_map(json);
  check(again.has_value() && *again == *map);
  check(!parse_ais_map(std::string_view(json).substr(0, choices() % json.size())).has_value());

  AisMap staying = *map;
  std::erase_if(staying.targets, [](const AisNode& node) { return node.is_leaving(); });
  const AisOwners owners(*map), others(staying);
  const std::string bucket = ais_bucket_uname("ais", "", "", text.substr(0, 8));
  const std::optional<size_t> owner = owners.owner(bucket, text), same = others.owner(bucket, text);
  check(owner.has_value() == !staying.targets.empty() && owner.has_value() == same.has_value());
  if (owner) check(map->targets[*owner] == staying.targets[*same]);
  return 0;
}
