#include "headrace/dataset/row_mix.h"

#include <algorithm>
#include <cstddef>

#include "headrace/base/split_mix.h"

namespace headrace {
namespace {

constexpr uint64_t kRowMixPurpose =
    0x726F776D6978;  // "rowmix": nothing in common with other numbers

uint64_t state_of(uint64_t seed, uint64_t epoch, uint64_t lane) {
  uint64_t state = 0;
  for (const uint64_t each : {seed, epoch, lane, kRowMixPurpose})
    state = split_mix_state(state, each);
  return state;
}

// Spreads 32 random bits evenly over [0, count).
size_t pick(uint64_t bits, size_t count) { return (bits >> 32) * count >> 32; }

}  // namespace

RowMix mix_rows(uint64_t seed, uint64_t epoch, uint64_t lane, uint64_t first, uint64_t count,
                std::span<const uint64_t> left) {
  RowMix mix;
  mix.counts.resize(left.size());
  if (left.empty()) return mix;
  const uint64_t state = state_of(seed, epoch, lane);
  std::vector<uint32_t> groups;
  for (uint64_t i = 0; i < count; ++i) {
    const size_t group = pick(split_mix(state + (first + i + 1) * kSplitMixStep), left.size());
    groups.push_back(static_cast<uint32_t>(group));
    if (++mix.counts[group] >= left[group]) break;
  }
  std::vector<int64_t> next(left.size());
  for (size_t group = 1; group < left.size(); ++group) {
    next[group] = next[group - 1] + static_cast<int64_t>(mix.counts[group - 1]);
  }
  mix.order.reserve(groups.size());
  for (const uint32_t group : groups) mix.order.push_back(next[group]++);
  return mix;
}

}  // namespace headrace
