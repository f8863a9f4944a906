#include "headrace/store/transfer/latency_histogram.h"

#include <algorithm>
#include <cmath>

namespace headrace {

std::chrono::nanoseconds LatencyHistogram::end_of(Bucket bucket) {
  const int exponent = bucket / 8 + kFirstBits;
  return std::chrono::nanoseconds(int64_t{9 + bucket % 8} << (exponent - 3));
}

std::chrono::nanoseconds LatencyHistogram::quantile(double share) const {
  if (total_ == 0) return std::chrono::nanoseconds(0);
  const auto wanted = static_cast<uint64_t>(std::ceil(share * total_));
  uint64_t seen = 0;
  for (size_t bucket = 0; bucket < kBucketCount; ++bucket) {
    seen += counts_[bucket];
    if (seen >= wanted && seen > 0) return end_of(static_cast<Bucket>(bucket));
  }
  return end_of(kBucketCount - 1);
}

std::chrono::nanoseconds LatencyHistogram::mean(std::chrono::nanoseconds most) const {
  if (total_ == 0) return std::chrono::nanoseconds(0);
  std::chrono::nanoseconds sum(0);
  for (size_t bucket = 0; bucket < kBucketCount; ++bucket) {
    if (counts_[bucket] == 0) continue;
    const std::chrono::nanoseconds end = end_of(static_cast<Bucket>(bucket));
    const auto width = std::chrono::nanoseconds(int64_t{1} << (bucket / 8 + kFirstBits - 3));
    sum += counts_[bucket] * std::min(end - width / 2, most);
  }
  return sum / total_;
}

void LatencyHistogram::halve() {
  total_ = 0;
  for (uint32_t& count : counts_) {
    count /= 2;
    total_ += count;
  }
}

}  // namespace headrace
