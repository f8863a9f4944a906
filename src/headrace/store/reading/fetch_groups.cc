#include "headrace/store/reading/fetch_groups.h"

#include <utility>

namespace headrace {

std::vector<PlannedGroup> plan_groups(std::span<const std::optional<uint64_t>> sizes_bytes,
                                      uint64_t max_size_bytes, uint32_t max_objects) {
  std::vector<PlannedGroup> groups;
  PlannedGroup group;
  const auto close = [&groups, &group] {
    PlannedGroup closed = std::exchange(group, {});
    if (closed.slots.size() > 1 && closed.size_bytes > 0) groups.push_back(std::move(closed));
  };
  for (size_t i = 0; i < sizes_bytes.size(); ++i) {
    if (!sizes_bytes[i] || *sizes_bytes[i] > max_size_bytes) continue;
    const bool is_full = group.slots.size() == max_objects;
    if (is_full || *sizes_bytes[i] > max_size_bytes - group.size_bytes) close();
    group.slots.push_back(static_cast<uint32_t>(i));
    group.size_bytes += *sizes_bytes[i];
  }
  close();
  return groups;
}

}  // namespace headrace
