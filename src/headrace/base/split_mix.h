// SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators").
#pragma once

#include <cstdint>

namespace headrace {

// Odd, 2^64 over the golden ratio: the step from one state of the generator to the next.
inline constexpr uint64_t kSplitMixStep = 0x9E3779B97F4A7C15;

// The output of the generator in state `x`. A bijection in which every bit of `x` reaches all bits.
constexpr uint64_t split_mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

}  // namespace headrace
