#include "cluster.h"

#include <sys/socket.h>

#include <algorithm>

#include "text.h"

namespace faultserver {

std::string node_id(size_t k, bool is_proxy) {
  std::string id = is_proxy ? "pro" : "tar";
  append_padded(id, k, 5);
  return id;
}

void start_listening(int fd) { listen(fd, 4096); }

// The socket stays bound, so that nobody else takes its port.
void stop_listening(int fd) { shutdown(fd, SHUT_RD); }

void Cluster::set_up(Node& node, bool is_up) {
  if (node.is_up == is_up) return;
  node.is_up = is_up;
  if (is_up) {
    start_listening(node.address().fd);
  } else {
    stop_listening(node.address().fd);
    ++node.close_epoch;
  }
}

void Cluster::move(Node& node, size_t to) {
  if (node.at == to) return;
  const bool was_up = node.is_up;
  set_up(node, false);
  node.at = to;
  set_up(node, was_up);
  ++map_version;
}

const Node& Cluster::primary() const {
  return *std::ranges::find_if(nodes, [](const Node& node) { return node.is_primary; });
}

void Cluster::hand_over(Node& node) {
  if (node.is_primary) return;
  for (Node& each : nodes) each.is_primary = &each == &node;
  ++map_version;
}

std::string Cluster::change_node(const Json& spec) {
  const int64_t index = spec["node"].integer(-1);
  if (index < 0 || static_cast<size_t>(index) >= nodes.size()) return "there is no such node";
  Node& node = nodes[static_cast<size_t>(index)];
  for (const auto& [member, value] : spec.object()) {
    if (member == "up") {
      set_up(node, value.boolean());
    } else if (member == "in_map") {
      if (node.is_primary) return "a map without its primary does not exist";
      if (node.in_map != value.boolean()) ++map_version;
      node.in_map = value.boolean();
    } else if (member == "map_flags") {
      node.map_flags = static_cast<uint64_t>(value.integer());
      ++map_version;
    } else if (member == "primary") {
      if (!node.is_proxy || !node.in_map) return "the primary is a proxy that is in the map";
      hand_over(node);
    } else if (member == "move") {
      if (value.boolean()) move(node, (node.at + 1) % node.addresses.size());
    } else if (member != "node") {
      return "no such member of a node: " + member;
    }
  }
  return {};
}

void Cluster::reset() {
  hand_over(nodes[0]);
  for (Node& node : nodes) {
    set_up(node, true);
    move(node, 0);
    if (!node.in_map || node.map_flags != 0) ++map_version;
    node.in_map = true;
    node.map_flags = 0;
  }
}

}  // namespace faultserver
