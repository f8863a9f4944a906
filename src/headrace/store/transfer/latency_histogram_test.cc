#include "headrace/store/transfer/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace headrace {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(LatencyHistogram, QuantilesAreAtMostAnEighthTooHighAndNeverTooLow) {
  std::mt19937 rng(7);
  for (const double spread : {0.1, 1.0, 3.0}) {
    std::lognormal_distribution<double> latency_ns(17, spread);  // around 24 ms
    LatencyHistogram histogram;
    std::vector<nanoseconds> all;
    for (int i = 0; i < 10'000; ++i) {
      const nanoseconds latency(
          std::clamp<int64_t>(static_cast<int64_t>(latency_ns(rng)), 1 << 14, int64_t{1} << 37));
      histogram.add(latency);
      all.push_back(latency);
    }
    std::ranges::sort(all);
    for (const double share : {0.01, 0.5, 0.95, 0.999, 1.0}) {
      const double exact =
          static_cast<double>(all[static_cast<size_t>(std::ceil(share * 10'000)) - 1].count());
      const auto told = static_cast<double>(histogram.quantile(share).count());
      EXPECT_GT(told, exact) << share;
      EXPECT_LE(told, exact * 1.126) << share;
    }
  }
}

TEST(LatencyHistogram, BucketsCoverAllLatenciesWithoutGaps) {
  EXPECT_EQ(LatencyHistogram::bucket_of(nanoseconds(0)), 0);
  EXPECT_EQ(LatencyHistogram::bucket_of(nanoseconds(-5)), 0) << "a clock that went back";
  EXPECT_EQ(LatencyHistogram::bucket_of(hours(24)), LatencyHistogram::kBucketCount - 1);
  for (size_t i = 0; i + 1 < LatencyHistogram::kBucketCount; ++i) {
    const auto bucket = static_cast<LatencyHistogram::Bucket>(i);
    const nanoseconds end = LatencyHistogram::end_of(bucket);
    EXPECT_EQ(LatencyHistogram::bucket_of(end - nanoseconds(1)), i);
    EXPECT_EQ(LatencyHistogram::bucket_of(end), i + 1);
  }
}

TEST(LatencyHistogram, WithoutAnswersItTellsZero) {
  EXPECT_EQ(LatencyHistogram().quantile(0.5), nanoseconds(0));
}

TEST(LatencyHistogram, ItsMeanIsWithinASixteenthAndWhatIsSlowCountsNoMoreThanTold) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.mean(hours(1)), nanoseconds(0)) << "without answers";
  for (const int64_t us : {20, 333, 5'000, 70'001, 900'000}) {
    const nanoseconds latency = microseconds(us);
    histogram.clear();
    histogram.add(latency);
    EXPECT_NEAR(static_cast<double>(histogram.mean(hours(1)).count()),
                static_cast<double>(latency.count()), static_cast<double>(latency.count()) / 16);
  }
  histogram.clear();
  for (int i = 0; i < 99; ++i) histogram.add(milliseconds(10));
  histogram.add(hours(1));
  EXPECT_NEAR(static_cast<double>(histogram.mean(milliseconds(20)).count()), 10.1e6, 0.7e6);
}

TEST(LatencyHistogram, HalvingMakesNewAnswersWeighMore) {
  LatencyHistogram histogram;
  for (int i = 0; i < 100; ++i) histogram.add(milliseconds(100));
  histogram.halve();
  EXPECT_EQ(histogram.total(), 50u);
  for (int i = 0; i < 60; ++i) histogram.add(milliseconds(10));
  EXPECT_LT(histogram.quantile(0.5), milliseconds(12));
  histogram.clear();
  EXPECT_EQ(histogram.total(), 0u);
}

}  // namespace
}  // namespace headrace
