// The order in which an epoch visits the objects.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

namespace headrace {

// A permutation of [0, count): position in the epoch → index of the object. A pure function of
// (count, seed, epoch), the same on every machine and in every version. It stores nothing but keys
// and computes any position directly, so resuming costs nothing.
//
// Large counts: a keyed bijection (an eight-round Feistel network) on the next power of two,
// iterated until the result is an index (Black and Rogaway 2002, "Ciphers with arbitrary finite
// domains"). Up to kTableCount, where such a network cannot reach every permutation evenly, a table
// made by a Fisher-Yates shuffle. Thread: any (immutable).
class Order {
 public:
  static constexpr uint64_t kTableCount = 1024;

  // `shuffle` false: the identity.
  Order(uint64_t count, uint64_t seed, uint64_t epoch, bool shuffle);

  uint64_t count() const { return count_; }
  // `position` is below count().
  uint64_t index(uint64_t position) const;
  // The indices of positions [begin, begin + out.size()).
  void indices(uint64_t begin, std::span<int64_t> out) const;

 private:
  static constexpr size_t kRounds = 8;
  using Table = std::array<uint16_t, kTableCount>;

  uint64_t permuted(uint64_t block) const;

  uint64_t count_;
  bool shuffle_;
  uint32_t right_bits_ = 0;
  uint64_t left_mask_ = 0, right_mask_ = 0;
  std::array<uint64_t, kRounds> keys_{};
  std::shared_ptr<const Table> table_;  // for small counts
};

}  // namespace headrace
