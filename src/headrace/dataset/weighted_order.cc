#include "headrace/dataset/weighted_order.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "headrace/base/split_mix.h"

namespace headrace {
namespace {

constexpr double kTwoTo64 = 18446744073709551616.0;

uint64_t to_height(double share) {
  const double height = share * kTwoTo64;
  return height >= kTwoTo64 ? UINT64_MAX : static_cast<uint64_t>(height);
}

}  // namespace

Result<std::shared_ptr<const DrawTable>> DrawTable::make(std::span<const double> weights) {
  if (weights.empty()) return invalid_argument("there are no weights");
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0) {
      return invalid_argument("weight ", i, " is ", weights[i],
                              "; weights must be finite numbers of at least 0");
    }
    sum += weights[i];
  }
  if (sum == 0) return invalid_argument("all weights are 0; nothing can be drawn");
  if (!std::isfinite(sum)) {
    return invalid_argument("the weights add up to more than a float holds; divide them");
  }
  const size_t count = weights.size();
  const auto heaviest = static_cast<uint64_t>(std::ranges::max_element(weights) - weights.begin());
  auto table = std::make_shared<DrawTable>();
  table->columns_.resize(count);
  // The sum of the shares is `count`: a share below 1 leaves room in its column for another's rest.
  std::vector<double> shares(count);
  std::vector<uint64_t> small, large;
  for (size_t i = 0; i < count; ++i) {
    const double part = weights[i] / sum;
    shares[i] = part * static_cast<double>(count);
    (shares[i] < 1 ? small : large).push_back(i);
  }
  while (!small.empty() && !large.empty()) {
    const uint64_t low = small.back(), high = large.back();
    small.pop_back();
    table->columns_[low] = {.height = to_height(shares[low]), .other = high};
    const double taken = 1 - shares[low];
    shares[high] -= taken;
    if (shares[high] < 1) {
      large.pop_back();
      small.push_back(high);
    }
  }
  for (const uint64_t i : large) table->columns_[i] = {.height = UINT64_MAX, .other = i};
  // Rounding may leave some of these. What has no weight is never drawn.
  for (const uint64_t i : small) {
    const bool is_drawn = weights[i] > 0;
    table->columns_[i] = {.height = is_drawn ? UINT64_MAX : 0, .other = is_drawn ? i : heaviest};
  }
  return table;
}

uint64_t DrawTable::draw(uint64_t which, uint64_t height) const {
  __extension__ using Wide = unsigned __int128;
  const auto at = static_cast<uint64_t>(Wide{which} * columns_.size() >> 64);
  const Column& column = columns_[at];
  return height < column.height ? at : column.other;
}

WeightedOrder::WeightedOrder(std::shared_ptr<const DrawTable> table, uint64_t count, uint64_t seed,
                             uint64_t epoch)
    : table_(std::move(table)), count_(count) {
  key_ = split_mix_state(split_mix_state(split_mix_state(0, seed), epoch), 0);
}

uint64_t WeightedOrder::index(uint64_t position) const {
  const uint64_t state = key_ + 2 * position * kSplitMixStep;
  return table_->draw(split_mix(state + kSplitMixStep), split_mix(state + 2 * kSplitMixStep));
}

void WeightedOrder::indices(uint64_t begin, std::span<int64_t> out) const {
  for (int64_t& index_out : out) index_out = static_cast<int64_t>(index(begin++));
}

}  // namespace headrace
