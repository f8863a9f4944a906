// Which objects of a batch are joined on the server.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace headrace {

// Objects that are joined, in the order of the batch.
struct JoinGroup {
  std::vector<uint32_t> slots;  // their places in the batch
  uint64_t size_bytes = 0;      // of all together
  bool operator==(const JoinGroup&) const = default;
};

// `sizes_bytes[i]`: of object i; none where it must be read alone. Takes objects in their order as
// long as they fit: at most `max_objects` with at most `max_size_bytes` together, never more. What
// is larger by itself, or has no company, is in no group, and nor are objects without a byte
// between them. Pure.
std::vector<JoinGroup> plan_groups(std::span<const std::optional<uint64_t>> sizes_bytes,
                                   uint64_t max_size_bytes, uint32_t max_objects);

}  // namespace headrace
