// The engine: threads, memory and hosts of one process, and the stores that use them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/base/log.h"
#include "headrace/base/metrics.h"
#include "headrace/base/result.h"
#include "headrace/format/url.h"
#include "headrace/store/object_store.h"
#include "headrace/store/options.h"

namespace headrace {

// Counters since the engine started, summed over its threads; base/metrics.h says what each is.
struct EngineMetrics {
#define HEADRACE_COUNTER(name) uint64_t name = 0;
  HEADRACE_COUNTERS(HEADRACE_COUNTER)
#undef HEADRACE_COUNTER
  uint64_t in_flight_limit = 0;  // of the busiest host
  MemoryUse memory;
};

// Starts its I/O threads at once and its file threads when first needed. stop() and the destructor
// end everything in progress with kCancelled, wait for it, and join. A process usually has one
// engine; several are independent of each other.
// Thread: any. Not usable in a forked child: make a new one there. The inherited one's descriptors
// are already closed, and its destructor does nothing.
class Engine {
 public:
  explicit Engine(const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // A store whose root is the URL, a bucket ("gs://bucket"), a place in one ("gs://bucket/run") or
  // a directory. Names are relative to it. Trailing slashes are ignored.
  // Errors: kInvalidArgument for options or URLs that cannot work; kCancelled after stop().
  Result<std::shared_ptr<ObjectStore>> open(const Url& url, const StoreOptions& options = {});

  // Ends everything in progress. Stores stay valid and answer kCancelled. Temporary objects are
  // deleted first, which may take a few seconds. Idempotent.
  void stop();

  // What users should know although nothing has failed; only what is new since the last call.
  std::vector<std::string> take_warnings();

  // Its log. Without EngineOptions::on_log, take the records from here.
  const std::shared_ptr<Log>& log() const;

  EngineMetrics metrics() const;
  BlockPool& pool();
  bool usable_in_this_process() const;  // false after a fork

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace headrace
