#include "headrace/dataset/block_order.h"

#include <algorithm>

#include "headrace/base/split_mix.h"

namespace headrace {
namespace {

constexpr uint64_t kBlockPurpose = 0x626C6F636B;  // "block"

}  // namespace

BlockOrder::BlockOrder(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t block_size,
                       uint64_t window_blocks)
    : count_(count),
      block_size_(block_size),
      block_count_(count / block_size),
      // At most all blocks, so that a window has fewer than 2^63 objects.
      window_blocks_(std::clamp<uint64_t>(window_blocks, 1, std::max<uint64_t>(block_count_, 1))),
      last_window_(block_count_ == 0 ? 0 : (block_count_ - 1) / window_blocks_),
      window_seed_(split_mix_state(split_mix_state(seed, kBlockPurpose), epoch)),
      blocks_(block_count_, split_mix_state(seed, kBlockPurpose), epoch, true) {
  __extension__ using Wide = unsigned __int128;
  shift_ = static_cast<uint64_t>(Wide{split_mix_state(window_seed_, count)} * count >> 64);
}

uint64_t BlockOrder::window_size(uint64_t number) const {
  const uint64_t size = window_blocks_ * block_size_;
  return number < last_window_ ? size : count_ - number * size;
}

uint64_t BlockOrder::Reader::index(uint64_t position) {
  const uint64_t block_size = order_.block_size_, in_window = order_.window_blocks_ * block_size;
  const uint64_t number = std::min(position / in_window, order_.last_window_);
  if (!latest_ || latest_->number != number) {
    latest_.emplace(
        Window{.number = number,
               .order = Order(order_.window_size(number), order_.window_seed_, number, true)});
  }
  const uint64_t at = latest_->order.index(position - number * in_window);
  // The rest is a block of its own behind the others.
  uint64_t block = number * order_.window_blocks_ + at / block_size;
  if (block < order_.block_count_) block = order_.blocks_.index(block);
  const uint64_t shifted = block * block_size + at % block_size + order_.shift_;
  return shifted < order_.count_ ? shifted : shifted - order_.count_;
}

void BlockOrder::indices(uint64_t begin, std::span<int64_t> out) const {
  Reader reader(*this);
  for (int64_t& index : out) index = static_cast<int64_t>(reader.index(begin++));
}

}  // namespace headrace
