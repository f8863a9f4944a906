// Everything that the threads of one server share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "faults.h"
#include "record.h"
#include "storage.h"
#include "throttle.h"

namespace faultserver {

// Thread: any; all but the atomics is touched only with `mutex` held.
struct World {
  explicit World(size_t log_capacity) : record(log_capacity) {}

  double now_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  }
  void wake_all() const;  // So that every thread looks at the epochs below.

  const std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  std::mutex mutex;
  Storage storage;
  Faults faults;
  Throttle throttle;
  Record record;
  std::set<std::string> tokens;                    // Of the whole server; empty: none needed.
  std::map<std::string, std::string> connect_map;  // CONNECT target to where it really goes.
  std::vector<int> wake_fds;

  std::atomic<bool> shapes_bytes = false;
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> release_epoch = 0;     // Raised: stalled answers end with a reset.
  std::atomic<uint64_t> close_epoch = 0;       // Raised: all but control connections are closed...
  std::atomic<bool> close_with_reset = false;  // ... so.
};

}  // namespace faultserver
