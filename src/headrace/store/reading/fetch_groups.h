// Which objects of a batch are fetched together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace headrace {

// Objects to be fetched together, in the order of the batch.
struct PlannedGroup {
  std::vector<uint32_t> slots;  // their positions in the batch
  uint64_t size_bytes = 0;      // of all of them together
  bool operator==(const PlannedGroup&) const = default;
};

// `sizes_bytes[i]` is the size of object i, or none if it must be read alone. Fills groups in
// order, each with at most `max_objects` objects of at most `max_size_bytes` in total. Objects that
// are too large or would be alone in their group are in none, and neither are groups of empty
// objects. Pure.
std::vector<PlannedGroup> plan_groups(std::span<const std::optional<uint64_t>> sizes_bytes,
                                      uint64_t max_size_bytes, uint32_t max_objects);

}  // namespace headrace
