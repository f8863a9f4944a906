#include "ais/placement.h"

#include <bit>

#include "digest.h"
#include "text.h"

namespace faultserver::ais {
namespace {

constexpr uint64_t kSeed = 1103515245;
constexpr uint64_t kLeaving = 4 | 8;  // In maintenance, or being decommissioned.

uint64_t score(uint64_t node_digest, uint64_t name_digest) {
  const uint64_t mixed = mix(mix(node_digest ^ name_digest));
  return std::rotl(mixed * 5, 7) * 9;
}

}  // namespace

uint64_t digest_of(std::string_view name) { return xxh64(name, kSeed); }

size_t owner_among(const std::vector<Node>& nodes, const std::vector<size_t>& candidates,
                   std::string_view unique_name) {
  const uint64_t name_digest = digest_of(unique_name);
  size_t owner = 0;
  uint64_t greatest = 0;
  for (const size_t k : candidates) {
    const uint64_t own = score(digest_of(nodes[k].id), name_digest);
    if (owner == 0 || own > greatest) {
      owner = k;
      greatest = own;
    }
  }
  return owner;
}

std::vector<size_t> eligible_targets(const Cluster& cluster) {
  std::vector<size_t> out;
  for (size_t k = 1; k < cluster.nodes.size(); ++k) {
    const Node& node = cluster.nodes[k];
    if (!node.is_proxy && node.in_map && (node.map_flags & kLeaving) == 0) out.push_back(k);
  }
  return out;
}

}  // namespace faultserver::ais
