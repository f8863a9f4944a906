// How long a host takes to answer: counts by latency, from which any quantile can be read.
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstdint>

namespace headrace {

// Eight buckets to a doubling, from 16 µs to four minutes: a quantile is at most an eighth too
// high. Adding is a handful of instructions, so that every answer can be counted. Thread: confined.
class LatencyHistogram {
 public:
  using Bucket = uint8_t;
  static constexpr size_t kBucketCount = 192;

  static Bucket bucket_of(std::chrono::nanoseconds latency);
  // The latency that everything in the bucket is below.
  static std::chrono::nanoseconds end_of(Bucket bucket);

  void add(Bucket bucket) {
    ++counts_[bucket];
    ++total_;
  }
  void add(std::chrono::nanoseconds latency) { add(bucket_of(latency)); }
  uint32_t total() const { return total_; }
  // The latency that this share of all did not exceed, rounded up to the end of its bucket. 0 if
  // nothing was added.
  std::chrono::nanoseconds quantile(double share) const;
  // What exceeds `most` counts as that, and all else as the middle of its bucket. 0 if nothing was
  // added.
  std::chrono::nanoseconds mean(std::chrono::nanoseconds most) const;
  // Halves what was counted, so that what comes from now on weighs more.
  void halve();
  void clear() { *this = {}; }

 private:
  static constexpr int kFirstBits = 14;  // below 2^14 ns, all is one bucket

  std::array<uint32_t, kBucketCount> counts_{};
  uint32_t total_ = 0;
};

inline LatencyHistogram::Bucket LatencyHistogram::bucket_of(std::chrono::nanoseconds latency) {
  const int64_t ns = latency.count();
  if (ns < (int64_t{1} << kFirstBits)) return 0;
  const auto exponent = static_cast<int>(std::bit_width(static_cast<uint64_t>(ns))) - 1;
  const auto eighth = static_cast<size_t>(ns >> (exponent - 3)) & 7;
  const size_t bucket = static_cast<size_t>(exponent - kFirstBits) * 8 + eighth;
  return static_cast<Bucket>(bucket < kBucketCount ? bucket : kBucketCount - 1);
}

}  // namespace headrace
