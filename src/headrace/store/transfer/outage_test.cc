// When a service counts as away, and when it is asked again. What waits meanwhile:
// recovery_test.cc.
#include "headrace/store/transfer/outage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

namespace headrace {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;
using TimePoint = Outage::TimePoint;

TimePoint at(double time_s) {
  return TimePoint(std::chrono::hours(1)) +
         duration_cast<TimePoint::duration>(duration<double>(time_s));
}

class OutageTest : public ::testing::Test {
 protected:
  std::shared_ptr<Outage> fail(double time_s, uint32_t times = 1) {
    std::shared_ptr<Outage> outage;
    for (uint32_t i = 0; i < times; ++i) outage = watch_.failed(at(time_s), rng_);
    return outage;
  }

  Rng rng_{1};
  OutageWatch watch_;
};

TEST_F(OutageTest, AFewFailuresAreNone) {
  const std::shared_ptr<Outage> outage = fail(0, Outage::kCertain - 1);
  EXPECT_EQ(outage->next_probe(), std::nullopt);
  EXPECT_FALSE(watch_.succeeded());
  EXPECT_FALSE(outage->is_over()) << "it was none";
  EXPECT_FALSE(watch_.succeeded());
}

TEST_F(OutageTest, ASuccessAmongFailuresBeginsTheCountAgain) {
  const std::shared_ptr<Outage> before = fail(0, Outage::kCertain - 1);
  watch_.succeeded();
  const std::shared_ptr<Outage> after = fail(1, Outage::kCertain - 1);
  EXPECT_NE(before, after);
  EXPECT_EQ(after->next_probe(), std::nullopt);
}

TEST_F(OutageTest, ItEndsOnceAndIsOverForAllThatFailedAmidIt) {
  const std::shared_ptr<Outage> first = fail(0);
  const std::shared_ptr<Outage> last = fail(1, Outage::kCertain);
  EXPECT_EQ(first, last);
  EXPECT_FALSE(last->is_over());
  EXPECT_TRUE(watch_.succeeded());
  EXPECT_FALSE(watch_.succeeded());
  EXPECT_TRUE(first->is_over());
  EXPECT_EQ(first->next_probe(), std::nullopt);
  fail(2, Outage::kCertain);
  EXPECT_TRUE(first->is_over()) << "another one";
}

TEST_F(OutageTest, EachProbeHasOneTaker) {
  const std::shared_ptr<Outage> outage = fail(0, Outage::kCertain);
  const TimePoint probe = outage->next_probe().value();
  EXPECT_FALSE(outage->take_probe(probe - milliseconds(1), rng_));
  EXPECT_TRUE(outage->take_probe(probe, rng_));
  EXPECT_FALSE(outage->take_probe(probe, rng_));
  EXPECT_GT(outage->next_probe().value(), probe);
}

TEST_F(OutageTest, AFailurePutsTheProbeOffByAQuarterOfTheOutage) {
  const std::shared_ptr<Outage> outage = fail(0, Outage::kCertain);
  EXPECT_GE(outage->next_probe().value(), at(0) + Outage::kLeastProbe * 3 / 4);
  EXPECT_LE(outage->next_probe().value(), at(0) + Outage::kLeastProbe * 5 / 4);
  fail(20);
  EXPECT_GE(outage->next_probe().value(), at(20 + 5 * 0.75));
  EXPECT_LE(outage->next_probe().value(), at(20 + 5 * 1.25));
}

TEST_F(OutageTest, ALongOneCostsFewProbes) {
  const std::shared_ptr<Outage> outage = fail(0, Outage::kCertain);
  int count = 0;
  while (outage->next_probe().value() < at(300)) {
    EXPECT_TRUE(outage->take_probe(outage->next_probe().value(), rng_));
    ++count;
  }
  EXPECT_GE(count, 20);
  EXPECT_LE(count, 40);
}

}  // namespace
}  // namespace headrace
