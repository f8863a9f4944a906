// Which target an object belongs to: the greatest of the scores of a rendezvous hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cluster.h"

namespace faultserver::ais {

uint64_t digest_of(std::string_view name);
// The number of the node among `candidates` with the greatest score, 0 if there is none.
size_t owner_among(const std::vector<Node>& nodes, const std::vector<size_t>& candidates,
                   std::string_view unique_name);
// The targets that a map offers for new objects: in it, and not on their way out.
std::vector<size_t> eligible_targets(const Cluster& cluster);

}  // namespace faultserver::ais
