// An order that draws objects by their weights.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "headrace/base/result.h"

namespace headrace {

// How likely each of several objects is drawn: a table in which one look suffices (Walker 1977,
// "An efficient method for generating discrete random variables with general distributions"; made
// as in Vose 1991). 16 bytes a weight. Thread: any (immutable).
class DrawTable {
 public:
  // Errors: kInvalidArgument if there is no weight, a weight is negative, infinite or NaN, all are
  // 0, or they add up to more than a double holds.
  static Result<std::shared_ptr<const DrawTable>> make(std::span<const double> weights);

  uint64_t size() const { return columns_.size(); }
  // The object that belongs to two evenly distributed numbers.
  uint64_t draw(uint64_t which, uint64_t height) const;

 private:
  // The part of a column below `height`, of 2^64, belongs to its own object, the rest to `other`.
  struct Column {
    uint64_t height, other;
  };

  std::vector<Column> columns_;
};

// Draws with replacement: position in the epoch → index of the object. A pure function of (weights,
// seed, epoch); each position is computed without those before it, so resuming costs nothing.
// Thread: any (immutable).
class WeightedOrder {
 public:
  WeightedOrder(std::shared_ptr<const DrawTable> table, uint64_t count, uint64_t seed,
                uint64_t epoch);

  uint64_t count() const { return count_; }
  // `position` is below count().
  uint64_t index(uint64_t position) const;
  // The indices of positions [begin, begin + out.size()).
  void indices(uint64_t begin, std::span<int64_t> out) const;

 private:
  std::shared_ptr<const DrawTable> table_;
  uint64_t count_, key_;
};

}  // namespace headrace
