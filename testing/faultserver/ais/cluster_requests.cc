// The cluster's map, and who is well.
#include "ais/ais.h"
#include "ais/placement.h"
#include "text.h"

namespace faultserver::ais {
namespace {

Json net_json(const Address& address) {
  return Json::Object{{"node_ip_addr", address.host},
                      {"daemon_port", std::to_string(address.port)},
                      {"direct_url", address.url}};
}

// As text, since a digest may exceed what a signed number holds.
std::string node_json(const Call& call, size_t k) {
  const Node& node = call.world.cluster.nodes[k];
  // The intra-cluster networks are here where the public one is.
  Json::Object members = {{"public_net", net_json(node.address())},
                          {"intra_data_net", net_json(node.address())},
                          {"intra_control_net", net_json(node.address())},
                          {"daemon_type", node.is_proxy ? "proxy" : "target"},
                          {"daemon_id", node.id},
                          {"flags", node.is_proxy ? uint64_t{2} : node.map_flags}};
  std::string text = Json(std::move(members)).dump();
  if (!call.is_a()) {
    text.pop_back();
    text += ",\"id_digest\":" + std::to_string(digest_of(node.id)) + "}";
  }
  return text;
}

}  // namespace

Response tell_map(const Call& call) {
  const Cluster& cluster = call.world.cluster;
  const std::string what = call.request.parameter("what");
  if (what != "smap") {
    return error(call.request, 400, "",
                 call.is_a()
                     ? "invalid GET /daemon request: unrecognized what=" + what
                     : "invalid '/v1/daemon' request: unrecognized 'what=" + what + "' query");
  }
  std::string proxies, targets, primary;
  for (size_t k = 0; k < cluster.nodes.size(); ++k) {
    const Node& node = cluster.nodes[k];
    if (!node.in_map) continue;
    std::string& list = node.is_proxy ? proxies : targets;
    if (!list.empty()) list += ',';
    const std::string json = node_json(call, k);
    list += Json(node.id).dump() + ":" + json;
    if (node.is_primary) primary = json;
  }
  std::string out = "{\"pmap\":{" + proxies + "},\"proxy_si\":" + primary + ",\"tmap\":{" +
                    targets + "},\"uuid\":" + Json(cluster.uuid).dump() +
                    ",\"creation_time\":\"2026-01-01 00:00:00\"" + ",\"version\":\"" +
                    std::to_string(cluster.map_version) + "\"}\n";
  Response response{.body = Body(std::move(out))};
  response.set("Content-Type", "application/json; charset=utf-8");
  return response;
}

Response tell_health(const Call& call) {
  const auto up_ns = static_cast<uint64_t>(call.world.now_s() * 1e9);
  Response response;
  response.headers = {{"Ais-Cluster-Uptime", std::to_string(up_ns)},
                      {"Ais-Node-Uptime", std::to_string(up_ns)}};
  return response;
}

}  // namespace faultserver::ais
