#include "headrace/dataset/name_table.h"

#include <bit>
#include <string>

namespace headrace {

NameTable::NameTable(const ObjectIndex& index) : index_(index) {
  const size_t count = index.object_count_;
  const auto bits = static_cast<uint32_t>(std::bit_width(count));
  number_mask_ = bits >= 32 ? UINT32_MAX : (uint32_t{1} << bits) - 1;
  // At most three quarters are taken.
  slots_.resize(std::bit_ceil(count + count / 3 + 1));
  mask_ = slots_.size() - 1;
  std::string name;
  for (size_t object = 0; object < count; ++object) {
    name.clear();
    index.names_.append_to(object, name);
    const uint64_t root = index.object_roots_[object];
    bool known = false;
    find(name, [&](uint64_t other) {
      known = index.object_roots_[other] == root;
      return !known;
    });
    if (known) continue;
    const uint64_t hash = hash_of(name);
    uint64_t at = hash & mask_;
    while (slots_[at] != 0) at = (at + 1) & mask_;
    slots_[at] =
        static_cast<uint32_t>(object + 1) | (static_cast<uint32_t>(hash >> 32) & ~number_mask_);
  }
  if (!index.has_ranges_) return;
  first_entries_.resize(count, UINT64_MAX);
  const ObjectIndex::Runs& runs = index.runs_;
  for (size_t run = 0; run < runs.objects.count(); ++run) {
    uint64_t& first = first_entries_[runs.objects[run]];
    if (first == UINT64_MAX) first = runs.one_each ? run : runs.firsts[run];
  }
}

std::optional<size_t> NameTable::entry_of(uint64_t object) const {
  if (first_entries_.empty()) return object;
  if (first_entries_[object] == UINT64_MAX) return {};
  return first_entries_[object];
}

}  // namespace headrace
