// What tests of orders share.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace headrace {

std::vector<int64_t> all_of(const auto& order) {
  std::vector<int64_t> out(order.count());
  order.indices(0, out);
  return out;
}

// By how many standard deviations the sum of squares is off what chance gives.
inline double chi_square_deviations(const std::vector<double>& counted, double expected) {
  double sum = 0;
  for (const double count : counted) sum += (count - expected) * (count - expected) / expected;
  const auto freedom = static_cast<double>(counted.size() - 1);
  return (sum - freedom) / std::sqrt(2 * freedom);
}

}  // namespace headrace
