#include "headrace/dataset/order.h"

#include <bit>
#include <utility>

#include "headrace/base/split_mix.h"

namespace headrace {
namespace {

class Stream {
 public:
  explicit Stream(uint64_t state) : state_(state) {}
  uint64_t operator()() { return split_mix(state_ += kSplitMixStep); }
  // Evenly from [0, bound), bound < 2^32: the few draws that would favour some values are repeated
  // (Lemire 2019, "Fast random integer generation in an interval").
  uint64_t below(uint64_t bound) {
    for (;;) {
      const uint64_t product = (operator()() >> 32) * bound;
      const uint64_t low = product & UINT32_MAX;
      if (low >= bound || low >= (uint64_t{1} << 32) % bound) return product >> 32;
    }
  }

 private:
  uint64_t state_;
};

// Two multiplications, so that every bit of half and key reaches every bit that is used.
uint64_t round_bits(uint64_t half, uint64_t key) {
  constexpr uint64_t kFactor = 0x9FB21C651E98DF25;  // odd, its bits well spread
  uint64_t bits = (half ^ key) * kFactor;
  bits = (bits ^ bits >> 32) * kFactor;
  return bits >> 32;
}

}  // namespace

Order::Order(uint64_t count, uint64_t seed, uint64_t epoch, bool shuffle)
    : count_(count), shuffle_(shuffle && count > 1) {
  if (!shuffle_) return;
  Stream stream(split_mix_state(split_mix_state(split_mix_state(0, seed), epoch), count));
  if (count <= kTableCount) {
    auto table = std::make_shared<Table>();
    for (uint64_t i = 0; i < count; ++i) (*table)[i] = static_cast<uint16_t>(i);
    for (uint64_t i = count - 1; i > 0; --i) std::swap((*table)[i], (*table)[stream.below(i + 1)]);
    table_ = std::move(table);
    return;
  }
  const auto bits = static_cast<uint32_t>(std::bit_width(count - 1));
  right_bits_ = bits - bits / 2;
  left_mask_ = (uint64_t{1} << bits / 2) - 1;
  right_mask_ = (uint64_t{1} << right_bits_) - 1;
  for (uint64_t& key : keys_) key = stream();
}

uint64_t Order::permuted(uint64_t block) const {
  uint64_t left = block >> right_bits_, right = block & right_mask_;
  for (size_t i = 0; i < kRounds; i += 2) {
    left ^= round_bits(right, keys_[i]) & left_mask_;
    right ^= round_bits(left, keys_[i + 1]) & right_mask_;
  }
  return left << right_bits_ | right;
}

uint64_t Order::index(uint64_t position) const {
  if (!shuffle_) return position;
  if (table_) return (*table_)[position];
  // The bijection's domain is less than twice the count: less than two steps on average.
  do {
    position = permuted(position);
  } while (position >= count_);
  return position;
}

void Order::indices(uint64_t begin, std::span<int64_t> out) const {
  for (int64_t& index_out : out) index_out = static_cast<int64_t>(index(begin++));
}

}  // namespace headrace
