// The memory of a slot: taken once its size is known, given back if the read fails.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "headrace/base/block_pool.h"
#include "headrace/store/read_batch.h"

namespace headrace {

// What memory for `size_bytes` of the slot will count against the budget: as one block, or as the
// blocks of its places.
uint64_t charge_of(const ReadSlot& slot, uint64_t size_bytes);

// Whether the slot has to get memory before it is read. Not if it has it already, if the caller
// gave it, or if the read can only fail: its range is none, or its size is known and exceeds the
// whole budget.
bool needs_room(const BlockPool& pool, const ReadSlot& slot);

// Whether there is room now. If not, the caller waits for room and asks again.
enum class Room : uint8_t { kMade, kNotNow };

// Allocates `size_bytes` for the slot if it has no memory yet. With `waited_for`, even beyond the
// budget. Errors: kExhausted if there will never be room.
Result<Room> make_room(BlockPool& pool, ReadSlot& slot, uint64_t size_bytes, bool waited_for);

// Tries to get memory. If there is none, asks the pool to notify us and tries once more, because
// room may have appeared in between. False: the pool will notify us.
template <class Try>
bool try_or_ask_for_room(BlockPool& pool, Try&& attempt) {
  if (attempt()) return true;
  pool.ask_for_room();
  return attempt();
}

// The same for bytes that have come already, and must not be fetched again: there is always room.
// They count as in flight as far as there is room.
Result<void> make_room_for_arrived(BlockPool& pool, ReadSlot& slot, uint64_t size_bytes);

// Makes memory other than a slot's count as in flight for as long as this object lives, as far as
// there is room. Movable. Borrows the pool.
class Flight {
 public:
  Flight(BlockPool& pool, uint64_t size_bytes)
      : pool_(pool.try_begin_flight(size_bytes) ? &pool : nullptr), size_bytes_(size_bytes) {}
  ~Flight() {
    if (pool_ != nullptr) pool_->end_flight(size_bytes_);
  }
  Flight(Flight&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), size_bytes_(other.size_bytes_) {}
  Flight& operator=(Flight&&) = delete;

 private:
  BlockPool* pool_;
  uint64_t size_bytes_;
};

// Memory for slots that lack it, and whose sizes are known, as one step. False, and nothing has
// changed, unless there is plenty.
inline constexpr size_t kMostSlotsAtOnce = 16;
bool make_room_for_many(BlockPool& pool, std::span<ReadSlot* const> slots);

// Releases what was reserved before the memory was allocated.
void drop_reservation(BlockPool& pool, ReadSlot& slot);

// The read has completed or failed: its memory is no longer in flight.
void end_flight(BlockPool& pool, ReadSlot& slot);

// Undoes make_room().
void give_memory_back(BlockPool& pool, ReadSlot& slot);

}  // namespace headrace
