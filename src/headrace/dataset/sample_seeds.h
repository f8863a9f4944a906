// The random numbers of one epoch's samples.
#pragma once

#include <cstdint>

#include "headrace/base/split_mix.h"

namespace headrace {

// A seed for every position of an epoch: position p gets the lower 63 bits of output p + 1 of a
// SplitMix64 whose initial state is made from `seed` and `epoch`. A pure function, the same on
// every machine and in every version, so that a sample's random numbers do not depend on which
// thread makes it, or when. 63 bits, because int64 is what tensors hold. Thread: any (immutable).
class SampleSeeds {
 public:
  constexpr SampleSeeds(uint64_t seed, uint64_t epoch)
      : state_(split_mix_state(split_mix_state(split_mix_state(0, seed), epoch), kPurpose)) {}

  constexpr uint64_t at(uint64_t position) const {
    return split_mix(state_ + (position + 1) * kSplitMixStep) & kMostSeed;
  }

 private:
  static constexpr uint64_t kMostSeed = (uint64_t{1} << 63) - 1;
  static constexpr uint64_t kPurpose =
      0x73616D706C65;  // "sample": nothing in common with the order

  uint64_t state_;
};

}  // namespace headrace
