// From names to the objects of an index.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "headrace/dataset/object_index.h"

namespace headrace {

// A hash table of object numbers; the names stay in the index's image. If several objects have the
// same name below the same root, it has the first.
// Thread: any (immutable). Borrows the index.
class NameTable {
 public:
  explicit NameTable(const ObjectIndex& index);

  // Calls `visit(object)` for each object with this name, in the order of the index, until it
  // returns false.
  template <class Visit>
  void find(std::string_view name, Visit visit) const {
    const uint64_t hash = hash_of(name);
    for (uint64_t at = hash & mask_; slots_[at] != 0; at = (at + 1) & mask_) {
      if (!has_tag(slots_[at], hash)) continue;
      const uint64_t object = object_in(slots_[at]);
      if (index_.names_.equals(object, name) && !visit(object)) return;
    }
  }
  // The first entry that is this object or a range of it; none if it has no entries.
  std::optional<size_t> entry_of(uint64_t object) const;

 private:
  static uint64_t hash_of(std::string_view name) { return std::hash<std::string_view>()(name); }
  uint64_t object_in(uint32_t slot) const { return (slot & number_mask_) - 1; }
  // The bits of a slot that the number does not need hold part of the hash, so that few wrong names
  // are compared.
  bool has_tag(uint32_t slot, uint64_t hash) const {
    return ((slot ^ static_cast<uint32_t>(hash >> 32)) & ~number_mask_) == 0;
  }

  const ObjectIndex& index_;
  uint32_t number_mask_ = 0;
  uint64_t mask_ = 0;
  std::vector<uint32_t> slots_;          // 0: free; else a number, plus one, and a tag
  std::vector<uint64_t> first_entries_;  // of objects, where there are ranges
};

}  // namespace headrace
