// Many processes below one hidden rate cap, each with the engine's own in-flight limit and pace, in
// simulated time: no clock, no threads, no server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace headrace::simulation {

// From this second on, something else.
struct Change {
  double at_s = 0;
  double value = 0;
};

// The service: a bucket of tokens that answers what it lets through after a while.
struct ServiceOptions {
  double cap_per_s = 5'000;         // requests; what exceeds it is refused (429)
  std::vector<Change> cap_moves{};  // `value`: the cap from then on, in order of time
  double burst_s = 0.1;             // how much of what was not used may be made up
  double median_latency_s = 0.03;   // to the first byte, log-normal ...
  double latency_sigma = 0.25;      // ... with this spread of its logarithm
  double slow_fraction = 0.01;      // of the requests take ...
  double slow_latency_s = 1.0;      // ... this long instead
  double refusal_latency_s = 0.01;  // and a refusal this long, give or take a fifth
};

struct FleetOptions {
  ServiceOptions service{};
  size_t process_count = 100;
  std::vector<Change> newcomers{};  // `value`: how many more processes begin then
  double start_spread_s = 1;        // each process begins within so long of its group's start
  uint32_t duration_s = 120;
  uint32_t initial_in_flight = 64;  // the engine's defaults
  uint32_t max_in_flight = 512;
  uint64_t seed = 1;
};

// What a fleet got, second by second. All processes want as much as they can get.
struct FleetRun {
  struct Second {
    double allowed = 0;  // the integral of the cap
    uint64_t served = 0, refused = 0;
  };
  std::vector<Second> seconds{};
  size_t process_count = 0;                // newcomers included
  std::vector<double> began_s{};           // by process
  std::vector<uint32_t> served_by_each{};  // by second, then by process

  // Sums over the seconds [from, to).
  struct Totals {
    double used = 0;      // share of what was allowed
    double refused = 0;   // share of all requests
    double fairness = 0;  // Jain's index over the processes that were there all the time
  };
  Totals totals(size_t from, size_t to) const;
  // What processes [first, end) were served in the seconds [from, to), each.
  std::vector<uint64_t> served(size_t from, size_t to, size_t first, size_t end) const;
};

// (Σx)² / (n Σx²): 1 if all have the same, 1/n if one has everything
// (https://www.cse.wustl.edu/~jain/papers/ftp/fairness.pdf). 1 for none.
double jain_index(const std::vector<uint64_t>& shares);

// How long after `from` the fleet was settled for good: from then to `to`, each `window_s` seconds
// reach these targets. None: never.
struct Targets {
  double used_at_least = 0.9;
  double refused_at_most = 0.02;
  double fairness_at_least = 0.95;
};
std::optional<size_t> settled_after_s(const FleetRun& run, size_t from, size_t to,
                                      const Targets& targets, size_t window_s = 10);

// The same run for the same options, on every machine that rounds alike.
FleetRun simulate(const FleetOptions& options);

}  // namespace headrace::simulation
