#include "headrace/format/ais_map.h"

#include <algorithm>

#include "headrace/base/ascii.h"
#include "headrace/format/json.h"

namespace headrace {
namespace {

namespace dom = simdjson::dom;

// One of the other networks. What is no address is passed over: nothing is sent there.
void add_other_endpoint(const dom::object& net, AisNode& node) {
  std::string url;
  MemberReader(net).text("direct_url", url);
  const Result<Endpoint> endpoint = parse_endpoint(url, /*default_tls=*/false);
  if (!endpoint || !endpoint->base_path.empty() || *endpoint == node.endpoint) return;
  std::vector<Endpoint>& known = node.other_endpoints;
  if (std::ranges::find(known, *endpoint) == known.end()) known.push_back(*endpoint);
}

void add_other_endpoints(const dom::object& json, AisNode& node) {
  dom::object net;
  for (const char* name : {"intra_data_net", "intra_control_net"}) {
    if (json[name].get(net) == simdjson::SUCCESS) add_other_endpoint(net, node);
  }
  dom::array more;
  if (json["pub_extra"].get(more) != simdjson::SUCCESS) return;
  for (const dom::element& each : more) {
    if (each.get(net) == simdjson::SUCCESS) add_other_endpoint(net, node);
  }
}

// Errors: kCorrupt.
Result<AisNode> read_node(const dom::object& json) {
  AisNode node;
  std::string url;
  MemberReader reader(json);
  reader.text("daemon_id", node.id);
  reader.number("flags", node.flags);
  dom::object net;
  if (reader.object("public_net", net) && reader.wrong() == nullptr) {
    MemberReader net_reader(net);
    net_reader.text("direct_url", url);
    if (net_reader.wrong() != nullptr) reader.fail("direct_url");
  }
  if (node.id.empty()) reader.fail("daemon_id");
  if (reader.wrong() != nullptr) {
    return corrupt("a cluster map with a node whose '", reader.wrong(),
                   "' is missing or malformed");
  }
  Result<Endpoint> endpoint = parse_endpoint(url, /*default_tls=*/false);
  if (!endpoint || !endpoint->base_path.empty()) {
    return corrupt("a cluster map with a node at '", printable_line(url), "'");
  }
  node.endpoint = std::move(*endpoint);
  add_other_endpoints(json, node);
  return node;
}

Result<void> read_nodes(const dom::object& json, std::vector<AisNode>& out) {
  if (json.size() > AisMap::kMaxNodes) {
    return corrupt("a cluster map with more than ", AisMap::kMaxNodes, " nodes");
  }
  out.reserve(json.size());
  for (const auto [id, value] : json) {
    dom::object object;
    if (value.get(object) != simdjson::SUCCESS) {
      return corrupt("a cluster map with a node that is not an object");
    }
    Result<AisNode> node = read_node(object);
    if (!node) return std::unexpected(std::move(node.error()));
    if (node->id != id) return corrupt("a cluster map with two names for one node");
    out.push_back(std::move(*node));
  }
  std::ranges::sort(out, {}, &AisNode::id);
  if (std::ranges::adjacent_find(out, {}, &AisNode::id) != out.end()) {
    return corrupt("a cluster map with a node that is listed twice");
  }
  return {};
}

}  // namespace

Result<AisMap> parse_ais_map(std::string_view json) {
  const Result<dom::element> root = parse_json(json);
  if (!root) return std::unexpected(root.error());
  dom::object object;
  if (root->get(object) != simdjson::SUCCESS) return corrupt("a cluster map that is not an object");
  AisMap map;
  MemberReader reader(object);
  reader.number("version", map.version);
  reader.text("uuid", map.uuid);
  dom::object proxies, targets, primary;
  const bool has_proxies = reader.object("pmap", proxies);
  const bool has_targets = reader.object("tmap", targets);
  if (!reader.object("proxy_si", primary)) reader.fail("proxy_si");
  if (map.version == 0) reader.fail("version");
  if (!has_proxies) reader.fail("pmap");
  if (reader.wrong() != nullptr) {
    return corrupt("a cluster map whose '", reader.wrong(), "' is missing or malformed");
  }
  MemberReader primary_reader(primary);
  primary_reader.text("daemon_id", map.primary_id);
  if (primary_reader.wrong() != nullptr || map.primary_id.empty()) {
    return corrupt("a cluster map without a primary proxy");
  }
  for (const auto& [nodes, out] :
       {std::pair(&proxies, &map.proxies), std::pair(&targets, &map.targets)}) {
    if (out == &map.targets && !has_targets) continue;
    if (Result<void> read = read_nodes(*nodes, *out); !read) {
      return std::unexpected(std::move(read.error()));
    }
  }
  if (map.proxies.empty()) return corrupt("a cluster map without proxies");
  return map;
}

}  // namespace headrace
