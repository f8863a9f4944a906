// Counters that stores add to and Engine::metrics() sums.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace headrace {

// One per thread that does I/O, on a cache line of its own: counting costs no contention.
struct alignas(64) Metrics {
  std::atomic<uint64_t> requests_total = 0;
  std::atomic<uint64_t> retries_total = 0;
  std::atomic<uint64_t> throttled_total = 0;
  std::atomic<uint64_t> connections_opened_total = 0;
  std::atomic<uint64_t> tls_resumed_total = 0;
  std::atomic<uint64_t> bytes_read_total = 0;
  std::atomic<uint64_t> objects_read_total = 0;
  std::atomic<uint64_t> checksums_verified_total = 0;
  std::atomic<uint64_t> connections_open = 0;
  std::atomic<uint64_t> in_flight = 0;
  std::atomic<uint64_t> pieces_considered_total = 0;
  std::atomic<uint64_t> hedges_total = 0, hedges_won_total = 0, hedges_cut_total = 0;
  std::atomic<uint64_t> hedge_bytes_dropped_total = 0;
  std::atomic<uint64_t> bodies_replaced_total = 0;
  // Where the time of requests goes, in nanoseconds, summed over requests in parallel: reads wait
  // for memory and a slot, a request that was sent for the first byte of its answer, then for the
  // rest.
  std::atomic<uint64_t> queue_ns_total = 0, first_byte_ns_total = 0, body_ns_total = 0;
};

// For the thread that alone writes to these metrics: without a locked instruction.
inline void tally(std::atomic<uint64_t>& counter, uint64_t by = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

inline void tally_time(std::atomic<uint64_t>& counter, std::chrono::nanoseconds by) {
  tally(counter, static_cast<uint64_t>(std::max<int64_t>(0, by.count())));
}

// For metrics that several threads write to.
inline void count(std::atomic<uint64_t>& counter, uint64_t by = 1) {
  counter.fetch_add(by, std::memory_order_relaxed);
}

}  // namespace headrace
