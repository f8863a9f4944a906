// The engine: threads, memory and hosts of one process, and the stores that use them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/base/log.h"
#include "headrace/base/result.h"
#include "headrace/format/url.h"
#include "headrace/store/object_store.h"
#include "headrace/store/options.h"

namespace headrace {

// Counters since the engine started, summed over its threads.
struct EngineMetrics {
  uint64_t requests_total = 0;   // attempts that were sent
  uint64_t retries_total = 0;    // of these, all but the first of each request
  uint64_t throttled_total = 0;  // answers 429 and 503 SlowDown
  uint64_t connections_opened_total = 0;
  uint64_t tls_resumed_total = 0;  // TLS handshakes that resumed a session
  uint64_t bytes_read_total = 0;   // object bytes that arrived
  uint64_t objects_read_total = 0;
  uint64_t checksums_verified_total = 0;  // objects whose CRC32C was compared and matched
  // Second and third attempts that were sent because the one before was late; how many of them were
  // answered first; how many connections were closed since their answer was not needed and large;
  // and the bytes of answers that were dropped, for which there was no use.
  uint64_t hedges_total = 0, hedges_won_total = 0, hedges_cut_total = 0;
  uint64_t hedge_bytes_dropped_total = 0;
  uint64_t bodies_replaced_total = 0;
  // Summed over all requests, which run in parallel: how long reads waited for memory and a slot,
  // answers for their first byte, and from there to their end. Of files, nothing is told.
  std::chrono::nanoseconds queue_time_total{}, first_byte_time_total{}, body_time_total{};
  uint64_t connections_open = 0;
  uint64_t in_flight = 0;        // requests in progress
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
