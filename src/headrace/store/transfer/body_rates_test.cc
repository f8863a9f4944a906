#include "headrace/store/transfer/body_rates.h"

#include <gtest/gtest.h>

#include "headrace/base/units.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const BodyRates::TimePoint kStart = BodyRates::TimePoint() + std::chrono::hours(1);

// Bodies of 8 MiB within 100 ms each, the last of them at `until`.
BodyRates with_usual(int bodies, BodyRates::TimePoint until) {
  BodyRates rates;
  for (int i = bodies - 1; i >= 0; --i) {
    rates.took(8 * kMiB, milliseconds(100), until - i * milliseconds(10));
  }
  return rates;
}

TEST(BodyRates, ABodyFarBelowItsNeighboursIsSlow) {
  const auto now = kStart + seconds(5);
  const BodyRates rates = with_usual(100, now);
  EXPECT_TRUE(rates.is_slow(4 * kMiB, 4 * kMiB, now - seconds(1), now));
  EXPECT_TRUE(rates.is_slow(1, 8 * kMiB, now - seconds(1), now)) << "it stalls";
  EXPECT_FALSE(rates.is_slow(4 * kMiB, 4 * kMiB, now - milliseconds(990), now)) << "not for long";
  EXPECT_FALSE(rates.is_slow(16 * kMiB, 16 * kMiB, now - seconds(1), now))
      << "five times as slow as others is not far below them";
}

TEST(BodyRates, ABodyThatIsNearlyThereIsWaitedFor) {
  const auto now = kStart + seconds(5);
  const BodyRates rates = with_usual(100, now);
  EXPECT_FALSE(rates.is_slow(7 * kMiB, 1 * kMiB, now - seconds(2), now));
}

TEST(BodyRates, WhereNoneComesToItsEndNoneIsSlow) {
  const auto now = kStart + seconds(5);
  const BodyRates rates = with_usual(100, now - seconds(2));
  EXPECT_FALSE(rates.is_slow(1 * kMiB, 7 * kMiB, now - seconds(2), now));
  BodyRates others = rates;
  for (int i = 0; i < 7; ++i) others.took(1 * kMiB, milliseconds(20), now);
  EXPECT_FALSE(others.is_slow(1 * kMiB, 7 * kMiB, now - milliseconds(1900), now));
  others.took(1 * kMiB, milliseconds(20), now);
  EXPECT_TRUE(others.is_slow(1 * kMiB, 7 * kMiB, now - milliseconds(1900), now)) << "eight did";
}

TEST(BodyRates, FewBodiesSayNothing) {
  const auto now = kStart + seconds(5);
  EXPECT_FALSE(BodyRates().is_slow(1, 8 * kMiB, kStart, now));
  EXPECT_FALSE(with_usual(31, now).is_slow(1, 8 * kMiB, now - seconds(2), now));
  EXPECT_TRUE(with_usual(32, now).is_slow(1, 8 * kMiB, now - seconds(2), now));
}

TEST(BodyRates, SmallBodiesDoNotCount) {
  BodyRates rates;
  const auto now = kStart + seconds(5);
  for (int i = 0; i < 100; ++i) rates.took(BodyRates::kLeastBytes - 1, milliseconds(1), now);
  EXPECT_FALSE(rates.is_slow(1, 8 * kMiB, now - seconds(2), now));
}

TEST(BodyRates, FollowsALinkThatBecomesSlower) {
  auto now = kStart;
  BodyRates rates = with_usual(200, now);
  for (int i = 0; i < 300; ++i) rates.took(8 * kMiB, seconds(2), now += milliseconds(50));
  EXPECT_FALSE(rates.is_slow(4 * kMiB, 4 * kMiB, now - seconds(1), now));
}

}  // namespace
}  // namespace headrace
