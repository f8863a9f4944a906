// The memory of one slot: taken when its size is known, given back when the read fails.
#pragma once

#include <cstdint>

#include "headrace/base/block_pool.h"
#include "headrace/store/read_batch.h"

namespace headrace {

// Makes the slot's memory for `size_bytes`, if it has none. `waited_for` is admitted even beyond
// the budget. Errors: kExhausted; a deferral if there is no room now.
Result<void> make_room(BlockPool& pool, ReadSlot& slot, uint64_t size_bytes, bool waited_for);

// kExhausted without a message: there is no room at present. Never shown to a user; whoever gets it
// tries again when there is room.
inline bool is_deferral(const Error& error) {
  return error.code() == Code::kExhausted && error.message().empty();
}

// Tries for memory; where there is none, puts the wish for it on record and tries once more,
// because room may have come before it was there. False: the pool calls when there is room.
template <class Try>
bool try_or_ask_for_room(BlockPool& pool, Try&& attempt) {
  if (attempt()) return true;
  pool.ask_for_room();
  return attempt();
}

// What was reserved before the memory was made is free for others.
void drop_reservation(BlockPool& pool, ReadSlot& slot);

// The read is complete, or given up: its memory no longer counts as in flight.
void end_flight(BlockPool& pool, ReadSlot& slot);

// All that make_room() did is undone.
void give_memory_back(BlockPool& pool, ReadSlot& slot);

}  // namespace headrace
