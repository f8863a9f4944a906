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

// A state made of another one and a value. Of the same values in another order, states that have
// nothing in common are made; the first one is 0.
constexpr uint64_t split_mix_state(uint64_t state, uint64_t value) {
  return split_mix((state ^ value) + kSplitMixStep);
}

}  // namespace headrace
