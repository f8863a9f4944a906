#include "headrace/store/slot_memory.h"

#include <array>
#include <optional>
#include <vector>

namespace headrace {

namespace {

// The size of the memory that it has, or gets for `size_bytes` of its range.
uint64_t memory_bytes(const ReadSlot& slot, uint64_t size_bytes) {
  return slot.into.scatter() != nullptr ? slot.into.scatter()->own_bytes() : size_bytes;
}

Error no_memory(uint64_t size_bytes) {
  return Error(Code::kExhausted, cat("the system has no memory for ", size_bytes, " bytes"));
}

// Gives the slot what `allocate` returns for each of its blocks.
template <class Allocate>
Result<Room> take_memory(ReadSlot& slot, uint64_t size_bytes, const Allocate& allocate) {
  Scatter* const scatter = slot.into.scatter();
  std::vector<Block> blocks;
  const std::span<const uint64_t> sizes = scatter != nullptr
                                              ? std::span<const uint64_t>(scatter->own_sizes)
                                              : std::span(&size_bytes, 1);
  if (scatter != nullptr) blocks.reserve(sizes.size());
  for (const uint64_t each : sizes) {
    std::optional<Block> block = allocate(each);
    if (!block) return Room::kNotNow;
    if (block->data() == nullptr) return std::unexpected(no_memory(each));
    if (scatter != nullptr) {
      blocks.push_back(std::move(*block));
    } else {
      slot.into = ReadMemory(std::move(*block));
    }
  }
  if (scatter != nullptr) scatter->take_blocks(std::move(blocks));
  return Room::kMade;
}

}  // namespace

uint64_t charge_of(const ReadSlot& slot, uint64_t size_bytes) {
  return slot.into.scatter() != nullptr ? slot.into.scatter()->charged_bytes()
                                        : BlockPool::charged_bytes(size_bytes);
}

bool needs_room(const BlockPool& pool, const ReadSlot& slot) {
  if (!slot.into.is_lacking()) return false;
  if (slot.range.begin > slot.range.end) return false;
  return slot.object_bytes == kUnknownSize ||
         charge_of(slot, slot.range.size_bytes()) <= pool.budget_bytes();
}

Result<Room> make_room(BlockPool& pool, ReadSlot& slot, uint64_t size_bytes, bool waited_for) {
  if (!slot.into.is_lacking() || size_bytes == 0) return Room::kMade;
  const uint64_t charged = charge_of(slot, size_bytes);
  if (charged > pool.budget_bytes()) {
    return fail(Code::kExhausted, size_bytes, " bytes do not fit into the memory budget of ",
                pool.budget_bytes(), " bytes; raise memory_budget_bytes, or read a range");
  }
  // Checked first, not just tried: a flight that ends at once would wake those who wait for room.
  // Only what is live counts here; what batches take has counted when room was reserved.
  const uint64_t most_bytes = pool.budget_bytes() + pool.batch_bytes();
  if (!waited_for && pool.taken_bytes(charged) - pool.reserved_bytes() > most_bytes) {
    return Room::kNotNow;
  }
  const uint64_t flight_bytes = memory_bytes(slot, size_bytes);
  if (!pool.try_begin_flight(flight_bytes)) return Room::kNotNow;
  const auto allocate = [&pool, waited_for](uint64_t bytes) {
    return waited_for ? std::optional(pool.allocate(bytes)) : pool.allocate_within_budget(bytes);
  };
  Result<Room> taken = take_memory(slot, size_bytes, allocate);
  if (!taken || *taken == Room::kNotNow) {
    pool.end_flight(flight_bytes);
    return taken;
  }
  slot.in_flight_charged = true;
  drop_reservation(pool, slot);  // not before: the room would be given away
  return taken;
}

Result<void> make_room_for_arrived(BlockPool& pool, ReadSlot& slot, uint64_t size_bytes) {
  if (!slot.into.is_lacking() || size_bytes == 0) return {};
  const auto allocate = [&pool](uint64_t bytes) { return std::optional(pool.allocate(bytes)); };
  if (Result<Room> taken = take_memory(slot, size_bytes, allocate); !taken) {
    return std::unexpected(std::move(taken.error()));
  }
  slot.in_flight_charged = pool.try_begin_flight(memory_bytes(slot, size_bytes));
  drop_reservation(pool, slot);
  return {};
}

void drop_reservation(BlockPool& pool, ReadSlot& slot) {
  if (slot.reserved_bytes != 0) pool.unreserve(std::exchange(slot.reserved_bytes, 0));
}

bool make_room_for_many(BlockPool& pool, std::span<ReadSlot* const> slots) {
  std::array<uint64_t, kMostSlotsAtOnce> sizes_bytes{};
  std::array<Block, kMostSlotsAtOnce> blocks;
  for (size_t i = 0; i < slots.size(); ++i) sizes_bytes[i] = slots[i]->range.size_bytes();
  if (!pool.allocate_many(std::span(sizes_bytes).first(slots.size()), blocks)) return false;
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i]->into = ReadMemory(std::move(blocks[i]));
    slots[i]->in_flight_charged = true;
  }
  return true;
}

void end_flight(BlockPool& pool, ReadSlot& slot) {
  if (!std::exchange(slot.in_flight_charged, false)) return;
  pool.end_flight(memory_bytes(slot, slot.into.size()));
}

void give_memory_back(BlockPool& pool, ReadSlot& slot) {
  drop_reservation(pool, slot);
  end_flight(pool, slot);
  slot.into.release();
}

}  // namespace headrace
