// Counters that stores add to and Engine::metrics() sums.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace headrace {

// Every counter, once: Metrics counts it, Engine::metrics() sums it, and the bindings hand it to
// Python by its name (`_ns_total` as seconds, `_s_total`).
#define HEADRACE_COUNTERS(COUNTER)                                                                 \
  COUNTER(requests_total)  /* attempts that were sent */                                           \
  COUNTER(retries_total)   /* of these, all but the first of each request */                       \
  COUNTER(throttled_total) /* answers 429 and 503 SlowDown */                                      \
  COUNTER(connections_opened_total)                                                                \
  COUNTER(tls_resumed_total) /* TLS handshakes that resumed a session */                           \
  COUNTER(bytes_read_total)  /* object bytes that arrived */                                       \
  COUNTER(objects_read_total)                                                                      \
  COUNTER(checksums_verified_total) /* objects whose checksum was compared and matched */          \
  COUNTER(hedges_total)             /* second and third attempts, since the one before was late */ \
  COUNTER(hedges_won_total)         /* of these, those that were answered first */                 \
  COUNTER(hedges_cut_total)         /* connections closed under large answers without a use */     \
  COUNTER(hedge_bytes_dropped_total) /* of answers without a use */                                \
  COUNTER(bodies_replaced_total)     /* bodies that came so slowly that others took their place */ \
  /* Summed over all requests, which run in parallel; of files, nothing is told: */                \
  COUNTER(queue_ns_total)      /* how long reads waited for memory and a permit, */                \
  COUNTER(first_byte_ns_total) /* requests that were sent for the first byte of an answer, */      \
  COUNTER(body_ns_total)       /* and from there to its end */                                     \
  COUNTER(connections_open)                                                                        \
  COUNTER(in_flight) /* requests in progress */

// One per thread that does I/O, on a cache line of its own: counting costs no contention.
struct alignas(64) Metrics {
#define HEADRACE_COUNTER(name) std::atomic<uint64_t> name = 0;
  HEADRACE_COUNTERS(HEADRACE_COUNTER)
#undef HEADRACE_COUNTER
  std::atomic<uint64_t> pieces_considered_total = 0;  // for tests
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
