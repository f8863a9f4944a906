#include "headrace/base/pending.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace headrace {
namespace {

const MayBlock kMayBlock = MayBlock::on_this_thread();
constexpr auto kPast = std::chrono::steady_clock::time_point::min();
constexpr auto kForEver = std::chrono::steady_clock::time_point::max();

TEST(Pending, DeliversWhatAnotherThreadCompletes) {
  Pending<int> pending;
  EXPECT_FALSE(pending.wait_until(kPast, kMayBlock));
  std::thread engine([&] { pending.complete(42); });
  EXPECT_TRUE(pending.wait_until(kForEver, kMayBlock));
  EXPECT_EQ(pending.take(kMayBlock).value(), 42);
  engine.join();
}

TEST(Pending, DeliversErrorsAndThingsThatOnlyMove) {
  Pending<std::unique_ptr<int>> pending, failing;
  pending.complete(std::make_unique<int>(7));
  EXPECT_EQ(*pending.take(kMayBlock).value(), 7);
  failing.complete(fail(Code::kUnavailable, "no"));
  EXPECT_EQ(failing.take(kMayBlock).error().code(), Code::kUnavailable);
}

TEST(Pending, TheFirstCompletionCounts) {
  Pending<int> pending;
  pending.complete(1);
  pending.complete(2);
  EXPECT_EQ(pending.take(kMayBlock).value(), 1);
}

TEST(Pending, CancellingAsksOnceAndTheCompletionStillComes) {
  Pending<int> pending;
  int asked = 0;
  pending.set_on_cancel([&] { ++asked; });
  EXPECT_FALSE(pending.cancelled());
  pending.cancel();
  pending.cancel();
  EXPECT_TRUE(pending.cancelled());
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(pending.wait_until(kPast, kMayBlock));
  pending.complete(fail(Code::kCancelled, "cancelled"));
  EXPECT_EQ(pending.take(kMayBlock).error().code(), Code::kCancelled);
}

TEST(Pending, ACancelThatCameFirstIsNotLost) {
  Pending<int> pending;
  pending.cancel();
  int asked = 0;
  pending.set_on_cancel([&] { ++asked; });
  EXPECT_EQ(asked, 1);
}

TEST(Pending, WhatIsCompleteIsNotAskedToCancel) {
  Pending<int> pending;
  int asked = 0;
  pending.set_on_cancel([&] { ++asked; });
  pending.complete(1);
  pending.cancel();
  pending.set_on_cancel([&] { ++asked; });
  EXPECT_EQ(asked, 0);
}

TEST(Pending, CompletingLetsGoOfWhatTheCancelFunctionHolds) {
  const auto pending = std::make_shared<Pending<int>>();
  auto operation = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = operation;
  // The operation owns the Pending and the other way round, until it is complete.
  pending->set_on_cancel([operation = std::move(operation), pending] {});
  pending->complete(1);
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(pending.use_count(), 1);
}

TEST(Pending, ThenTakesTheResultInPlaceOfAWait) {
  int early = 0, late = 0;
  Pending<int> pending;
  pending.then([&](Result<int> result) { early = result.value(); });
  pending.complete(7);
  pending.complete(8);
  EXPECT_EQ(early, 7);
  Pending<int> done;
  done.complete(9);
  done.then([&](Result<int> result) { late = result.value(); });
  EXPECT_EQ(late, 9);
}

}  // namespace
}  // namespace headrace
