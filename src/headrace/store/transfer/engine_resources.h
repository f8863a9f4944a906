// What the engine lends to a store.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/base/gate.h"
#include "headrace/base/log.h"
#include "headrace/base/thread_pool.h"
#include "headrace/http/io_thread.h"

namespace headrace {

class WriterRegistry;

// Outlives the stores.
struct EngineResources {
  std::shared_ptr<Gate> gate;
  std::vector<std::shared_ptr<IoThread>> io_threads;
  std::shared_ptr<BlockPool> pool;
  std::shared_ptr<WriterRegistry> writers;
  std::shared_ptr<Log> log;
  // For computing (decompressing), away from the I/O threads.
  std::shared_ptr<ThreadPool> compute;
  // Decompressions that wait for memory. A batch that somebody waits for wakes them.
  mutable std::atomic<uint32_t> decompressions_waiting = 0;
  mutable std::atomic<bool> stopping = false;
};

}  // namespace headrace
