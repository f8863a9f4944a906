// Reading a shard of an index.
#pragma once

#include "batch_handle.h"
#include "headrace/shards/shard_read.h"

namespace headrace::python {

struct PieceWindowHandle {
  std::shared_ptr<PieceWindow> window;
};

// Starts reading entry `entry` as `shard` says, and returns a ShardRead.
nb::object start_shard(OpenStore store, nb::handle index, size_t entry, ShardToRead shard,
                       uint64_t seed, uint64_t epoch);

}  // namespace headrace::python
