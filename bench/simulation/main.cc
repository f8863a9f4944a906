// headrace-simulate-admission [NAME=VALUE...]: one run of a fleet, as a JSON object on one line.
// bench/scripts/plot_admission.py runs it; docs/measurements has what came out.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "simulation/fleet.h"

namespace {

using namespace headrace::simulation;

constexpr const char* kUsage =
    "usage: headrace-simulate-admission [NAME=VALUE...]\n"
    "  processes=100        how many read from the start\n"
    "  newcomers=60:25,...  how many more begin at that second\n"
    "  cap=5000             requests per second that the service lets through\n"
    "  moves=60:2500,...    the cap from that second on\n"
    "  burst=0.1            seconds of the cap that may come at once\n"
    "  latency=0.03         seconds to the first byte, median\n"
    "  slow=0.01            share of the requests that take a second\n"
    "  spread=1             seconds within which a group of processes begins\n"
    "  seconds=120          how long\n"
    "  limit=64             requests in flight of a process at first\n"
    "  seed=1\n";

bool to_number(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

bool to_changes(std::string_view text, std::vector<Change>& changes) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t colon = item.find(':');
    Change& change = changes.emplace_back();
    if (colon == item.npos || !to_number(item.substr(0, colon), change.at_s) ||
        !to_number(item.substr(colon + 1), change.value)) {
      return false;
    }
  }
  return true;
}

bool set(FleetOptions& options, std::string_view name, std::string_view text) {
  if (name == "newcomers") return to_changes(text, options.newcomers);
  if (name == "moves") return to_changes(text, options.service.cap_moves);
  double value = 0;
  if (!to_number(text, value)) return false;
  if (name == "processes") {
    options.process_count = static_cast<size_t>(value);
  } else if (name == "cap") {
    options.service.cap_per_s = value;
  } else if (name == "burst") {
    options.service.burst_s = value;
  } else if (name == "latency") {
    options.service.median_latency_s = value;
  } else if (name == "slow") {
    options.service.slow_fraction = value;
  } else if (name == "spread") {
    options.start_spread_s = value;
  } else if (name == "seconds") {
    options.duration_s = static_cast<uint32_t>(value);
  } else if (name == "limit") {
    options.initial_in_flight = static_cast<uint32_t>(value);
  } else if (name == "seed") {
    options.seed = static_cast<uint64_t>(value);
  } else {
    return false;
  }
  return true;
}

void print_seconds(const FleetRun& run) {
  std::printf("\"seconds\": [");
  for (size_t second = 0; second < run.seconds.size(); ++second) {
    const FleetRun::Second& each = run.seconds[second];
    // Fairness over the ten seconds that end here: a slow process is not served every second.
    const FleetRun::Totals recent = run.totals(second < 9 ? 0 : second - 9, second + 1);
    std::printf("%s{\"allowed\": %.1f, \"served\": %llu, \"refused\": %llu, \"fairness\": %.4f}",
                second == 0 ? "" : ", ", each.allowed, static_cast<unsigned long long>(each.served),
                static_cast<unsigned long long>(each.refused), recent.fairness);
  }
  std::printf("]");
}

// A phase lasts from one change to the next.
void print_phases(const FleetOptions& options, const FleetRun& run) {
  std::vector<size_t> begins = {0};
  for (const std::vector<Change>* changes : {&options.newcomers, &options.service.cap_moves}) {
    for (const Change& change : *changes) begins.push_back(static_cast<size_t>(change.at_s));
  }
  std::ranges::sort(begins);
  begins.erase(std::ranges::unique(begins).begin(), begins.end());
  begins.push_back(run.seconds.size());
  std::printf("\"phases\": [");
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    const size_t from = begins[i], to = begins[i + 1];
    const std::optional<size_t> settled = settled_after_s(run, from, to, {});
    const FleetRun::Totals all = run.totals(from, to);
    const FleetRun::Totals late = run.totals((from + to) / 2, to);
    std::printf("%s{\"from_s\": %zu, \"to_s\": %zu, \"settled_after_s\": ", i == 0 ? "" : ", ",
                from, to);
    if (settled) {
      std::printf("%zu", *settled);
    } else {
      std::printf("null");
    }
    std::printf(
        ", \"used\": %.4f, \"refused\": %.4f, \"second_half\": "
        "{\"used\": %.4f, \"refused\": %.4f, \"fairness\": %.4f}}",
        all.used, all.refused, late.used, late.refused, late.fairness);
  }
  std::printf("]");
}

}  // namespace

int main(int argc, char** argv) {
  FleetOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == argument.npos ||
        !set(options, argument.substr(0, equals), argument.substr(equals + 1))) {
      std::fprintf(stderr, "cannot use %s\n%s", argv[i], kUsage);
      return 2;
    }
  }
  const FleetRun run = simulate(options);
  std::printf("{\"processes\": %zu, ", run.process_count);
  print_phases(options, run);
  std::printf(", ");
  print_seconds(run);
  std::printf("}\n");
  return 0;
}
