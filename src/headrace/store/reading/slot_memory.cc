#include "headrace/store/reading/slot_memory.h"

#include <optional>
#include <utility>

namespace headrace {

bool needs_room(const BlockPool& pool, const ReadSlot& slot) {
  if (slot.has_into || slot.block.data() != nullptr) return false;
  if (slot.range.begin > slot.range.end) return false;
  return slot.object_bytes == kUnknownSize ||
         BlockPool::charged_bytes(slot.range.size_bytes()) <= pool.budget_bytes();
}

Result<void> make_room(BlockPool& pool, ReadSlot& slot, uint64_t size_bytes, bool waited_for) {
  if (slot.has_into || slot.block.data() != nullptr || size_bytes == 0) return {};
  const uint64_t charged = BlockPool::charged_bytes(size_bytes);
  if (charged > pool.budget_bytes()) {
    return fail(Code::kExhausted, size_bytes, " bytes do not fit into the memory budget of ",
                pool.budget_bytes(), " bytes; raise memory_budget_bytes, or read a range");
  }
  // Checked first, not just tried: a flight that ends at once would wake those who wait for room.
  if (!waited_for && pool.live_bytes() + charged > pool.budget_bytes()) {
    return fail(Code::kExhausted);
  }
  if (!pool.try_begin_flight(size_bytes)) return fail(Code::kExhausted);
  std::optional<Block> block =
      waited_for ? pool.allocate(size_bytes) : pool.allocate_within_budget(size_bytes);
  if (!block) {
    pool.end_flight(size_bytes);
    return fail(Code::kExhausted);
  }
  slot.block = std::move(*block);
  if (slot.block.data() == nullptr) {
    pool.end_flight(size_bytes);
    return fail(Code::kExhausted, "the system has no memory for ", size_bytes, " bytes");
  }
  slot.in_flight_charged = true;
  slot.into = slot.block.bytes();
  drop_reservation(pool, slot);  // not before: the room would be given away
  return {};
}

Result<void> make_room_for_arrived(BlockPool& pool, ReadSlot& slot, uint64_t size_bytes) {
  if (slot.has_into || slot.block.data() != nullptr || size_bytes == 0) return {};
  slot.block = pool.allocate(size_bytes);
  if (slot.block.data() == nullptr) {
    return fail(Code::kExhausted, "the system has no memory for ", size_bytes, " bytes");
  }
  slot.in_flight_charged = pool.try_begin_flight(size_bytes);
  slot.into = slot.block.bytes();
  drop_reservation(pool, slot);
  return {};
}

void drop_reservation(BlockPool& pool, ReadSlot& slot) {
  if (slot.reserved_bytes != 0) pool.unreserve(std::exchange(slot.reserved_bytes, 0));
}

void end_flight(BlockPool& pool, ReadSlot& slot) {
  if (std::exchange(slot.in_flight_charged, false)) pool.end_flight(slot.block.size_bytes());
}

void give_memory_back(BlockPool& pool, ReadSlot& slot) {
  drop_reservation(pool, slot);
  end_flight(pool, slot);
  slot.block.release();
  if (!slot.has_into) slot.into = {};
}

}  // namespace headrace
