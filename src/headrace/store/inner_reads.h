// Reads on behalf of a batch: other batches, the inner ones, read it, each a part of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "headrace/store/object_store.h"
#include "headrace/store/read_batch.h"

namespace headrace {

// One of them. The inner batch keeps the outer one and the store alive until it is done.
struct InnerRead {
  std::shared_ptr<ObjectStore> store;
  std::shared_ptr<ReadBatch> batch;
  // Is called when `batch` is done: ends the slots of the outer batch that it was for.
  std::function<void(ReadBatch& outer, ReadBatch& inner)> give_back;
};

// Reads these slots as they were asked for: each outcome goes back to its slot.
InnerRead read_slots(const ReadBatch& outer, std::vector<uint32_t> slots,
                     std::shared_ptr<ObjectStore> store, ReadBatch::Planned planned);

// Hands `outer` over and has it read by `plan`, which ends each of its slots once.
void carry_out(const std::shared_ptr<ReadBatch>& outer, std::vector<InnerRead> plan);

// Begins one more read for slots of `outer` that are not done. `outer` was handed over.
void add_read(const std::shared_ptr<ReadBatch>& outer, InnerRead read);

}  // namespace headrace
