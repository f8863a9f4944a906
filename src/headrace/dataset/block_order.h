// An order whose neighbours stay together, so that few requests read them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "headrace/dataset/order.h"

namespace headrace {

// Position in the epoch → index of the object, each once. Blocks of `block_size` consecutive
// objects come in a random order, and the objects of `window_blocks` successive blocks are
// shuffled.
//
// Where the first block begins differs from epoch to epoch, so that the same objects do not always
// come together; the last block continues at index 0. The rest that fills no block comes with the
// last window, and is any objects, each with the same probability. A pure function of its
// arguments, the same on every machine and in every version, and nothing is stored for a position.
// Thread: any (immutable).
class BlockOrder {
 public:
  // `count` is below 2^63; `block_size` and `window_blocks` are at least 1.
  BlockOrder(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t block_size,
             uint64_t window_blocks);

  // Reads positions in any order, faster if those of one window come together. Thread: confined.
  class Reader {
   public:
    explicit Reader(const BlockOrder& order) : order_(order) {}
    uint64_t index(uint64_t position);

   private:
    struct Window {
      uint64_t number;
      Order order;
    };

    const BlockOrder& order_;
    std::optional<Window> latest_;
  };

  uint64_t count() const { return count_; }
  // `position` is below count().
  uint64_t index(uint64_t position) const { return Reader(*this).index(position); }
  // The indices of positions [begin, begin + out.size()).
  void indices(uint64_t begin, std::span<int64_t> out) const;

 private:
  uint64_t window_size(uint64_t number) const;

  uint64_t count_, block_size_, block_count_;  // of full blocks
  uint64_t window_blocks_, last_window_;
  uint64_t shift_ = 0;  // the index at which the first block begins
  uint64_t window_seed_;
  Order blocks_;
};

}  // namespace headrace
