// Everything that the threads of one server share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ais/state.h"
#include "cluster.h"
#include "dialect.h"
#include "faults.h"
#include "record.h"
#include "storage.h"
#include "throttle.h"

namespace faultserver {

// An access key of S3, as the control API sets it.
struct AccessKey {
  std::string id, secret;
  std::string session_token;  // Empty: none must come.
  bool expired = false;
};

// Thread: any; all but the atomics and what is const is touched only with `mutex` held.
struct World {
  World(std::unique_ptr<Dialect> spoken, size_t log_capacity)
      : dialect(std::move(spoken)), record(log_capacity) {}

  double now_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  }
  void wake_all();  // So that every thread looks at the epochs below.
  // Whether every thread has done so since the last wake_all().
  bool has_settled() const { return wakes_taken == wakes * wake_fds.size(); }

  const std::unique_ptr<const Dialect> dialect;
  const std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  std::mutex mutex;
  Cluster cluster;
  AisState ais;
  Storage storage;
  Faults faults;
  Throttle throttle;
  Record record;
  std::set<std::string> tokens;                    // GCS and AIStore: empty: none needed.
  std::vector<AccessKey> access_keys;              // S3: empty: signatures are not looked at.
  std::map<std::string, std::string> connect_map;  // CONNECT target to where it really goes.
  std::vector<int> wake_fds;
  std::atomic<uint64_t> wakes = 0, wakes_taken = 0;  // The latter by all threads.

  std::atomic<int64_t> clock_offset_us = 0;  // What the server's clock is off by.
  std::atomic<bool> shapes_bytes = false;
  std::atomic<double> idle_close_s = 0;  // Connections without a request for so long are closed.
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> release_epoch = 0;     // Raised: stalled answers end with a reset.
  std::atomic<uint64_t> close_epoch = 0;       // Raised: all but control connections are closed...
  std::atomic<bool> close_with_reset = false;  // ... so.
};

}  // namespace faultserver
