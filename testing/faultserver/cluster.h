// The nodes that one process plays: where each listens, and what the cluster's map says of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "json.h"

namespace faultserver {

struct Address {
  int fd = -1;  // Bound; listening while the node is up and is here.
  std::string host{};
  uint16_t port = 0;
  std::string url{};
};

// A proxy, or a target that keeps objects. Servers of GCS and S3 are one node.
struct Node {
  std::string id{};
  std::vector<Address> addresses{};  // It listens at one, and moves from each to the next.
  size_t at = 0;
  bool is_up = true;   // Else connections are refused.
  bool in_map = true;  // Else the proxies send nobody here.
  bool is_proxy = true;
  bool is_primary = false;   // The one that alone lists, and changes buckets; others ask it to.
  uint64_t map_flags = 0;    // 4: in maintenance, 8: being decommissioned.
  uint64_t close_epoch = 0;  // Raised: its connections are reset.

  const Address& address() const { return addresses[at]; }
};

// Thread: confined (the server's lock guards it).
class Cluster {
 public:
  std::vector<Node> nodes;  // A proxy, the targets, the other proxies.
  std::string uuid;
  uint64_t map_version = 1;

  const Node& primary() const;
  // What the control request `node` says: up, in_map, map_flags, primary, move. A sentence if it is
  // wrong.
  std::string change_node(const Json& spec);
  // All nodes up, in the map, and at their first address; the first is the primary.
  void reset();

 private:
  void hand_over(Node& node);
  void set_up(Node& node, bool is_up);
  void move(Node& node, size_t to);
};

// "pro00000" for the first proxy, and "tar00001" for the first target.
std::string node_id(size_t k, bool is_proxy);

// Lets a bound socket accept connections, or refuse them.
void start_listening(int fd);
void stop_listening(int fd);

}  // namespace faultserver
