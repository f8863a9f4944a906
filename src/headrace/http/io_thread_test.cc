// How an I/O thread ends.
#include "headrace/http/io_thread.h"

#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/http/activity_test_support.h"
#include "headrace/http/completion.h"
#include "headrace/http/manual_clock_test_support.h"

namespace headrace {
namespace {

// Parks until it is stopped, and then takes a few more turns of the thread, as what closes a
// connection does.
awaitable<void> end_slowly(IoThread& thread, std::promise<void>& began,
                           std::shared_ptr<bool> ended) {
  {
    TestActivity activity(thread);
    began.set_value();
    while (!activity.stopped()) co_await activity.park(activity.deadline());
    for (int turn = 0; turn < 100; ++turn) co_await asio::post(thread.context(), kAwait);
  }
  *ended = true;
}

TEST(IoThread, EndsWhenItsLastActivityHas) {
  const std::shared_ptr<IoThread> thread = IoThread::start(0);
  const auto ended = std::make_shared<bool>(false);
  for (int i = 0; i < 3; ++i) {
    std::promise<void> began;
    asio::co_spawn(thread->context(), end_slowly(*thread, began, ended), asio::detached);
    began.get_future().wait();
  }
  thread->stop_all();
  thread->join();
  EXPECT_TRUE(*ended);
  EXPECT_EQ(ended.use_count(), 1) << "a coroutine was left to be destroyed with the context";
}

class IoThreadOnAClock : public ::testing::Test {
 protected:
  void end() {
    thread_->stop_all();
    thread_->join();
    thread_->context().poll();
  }

  ManualClock clock_;
  const std::shared_ptr<IoThread> thread_ = IoThread::without_thread(0, clock_);
};

TEST_F(IoThreadOnAClock, WithoutActivitiesEndsBeforeTimePasses) {
  end();
  EXPECT_TRUE(thread_->context().stopped());
}

TEST_F(IoThreadOnAClock, EndsBehindWhatACoroutineLeavesThatEndedInOneTurn) {
  auto held = std::make_shared<bool>(true);
  const std::weak_ptr<bool> left = held;
  spawn(
      thread_->context(),
      [this]() -> awaitable<void> {
        thread_->join();
        co_return;
      },
      [held = std::move(held)] {});
  thread_->context().run();
  EXPECT_TRUE(thread_->context().stopped());
  EXPECT_TRUE(left.expired());
}

TEST_F(IoThreadOnAClock, EndsBehindAnActivityThatBeginsWhenItWasAboutToEnd) {
  auto held = std::make_shared<bool>(true);
  const std::weak_ptr<bool> left = held;
  thread_->stop_all();
  thread_->join();
  thread_->post([this, held = std::move(held)] {
    asio::co_spawn(
        thread_->context(),
        [](IoThread& thread, std::shared_ptr<bool>) -> awaitable<void> {
          const TestActivity activity(thread);
          for (int turn = 0; turn < 9; ++turn) co_await asio::post(thread.context(), kAwait);
        }(*thread_, held),
        asio::detached);
  });
  thread_->context().run();
  EXPECT_TRUE(thread_->context().stopped());
  EXPECT_TRUE(left.expired()) << "a coroutine was left to be destroyed with the context";
}

TEST_F(IoThreadOnAClock, GivesBackFreeMemoryThatNobodyHasUsedForAWhile) {
  auto pool = BlockPool::create(64 * kMiB);
  thread_->trim_when_unused(pool);
  const auto use_all = [&pool] {
    std::vector<Block> blocks;
    for (int i = 0; i < 16; ++i) blocks.push_back(pool->allocate(4 * kMiB));
  };
  const auto pass = [this](std::chrono::milliseconds time) {
    clock_.advance(time);
    thread_->context().poll();
  };
  use_all();
  pass(std::chrono::milliseconds(0));
  pass(IoThread::kUnusedBeforeTrim - std::chrono::milliseconds(1));
  EXPECT_EQ(pool->use().cached_bytes, 64 * kMiB);
  use_all();
  pass(std::chrono::milliseconds(1));
  EXPECT_EQ(pool->use().cached_bytes, 64 * kMiB) << "it was used in these ten seconds";
  pass(IoThread::kUnusedBeforeTrim);
  EXPECT_EQ(pool->use().cached_bytes, 16 * kMiB);
  EXPECT_FALSE(clock_.advance_to_next()) << "there is nothing more to see to";
  use_all();
  pass(std::chrono::milliseconds(0));
  pool->set_on_surplus(nullptr);
  pool.reset();
  pass(IoThread::kUnusedBeforeTrim);
  // It may end while it is about to.
  pool = BlockPool::create(64 * kMiB);
  thread_->trim_when_unused(pool);
  use_all();
  end();
  EXPECT_TRUE(thread_->context().stopped());
}

TEST_F(IoThreadOnAClock, WaitsForAnActivityThatDoesNotEndNoLongerThanItSays) {
  Timer never(thread_->context(), Timer::time_point::max());
  asio::co_spawn(
      thread_->context(),
      [](IoThread& thread, Timer& never) -> awaitable<void> {
        const TestActivity activity(thread);
        co_await never.async_wait(kAwait);
      }(*thread_, never),
      asio::detached);
  end();
  EXPECT_FALSE(thread_->context().stopped());
  clock_.advance(IoThread::kLongestEnd);
  thread_->context().poll();
  EXPECT_TRUE(thread_->context().stopped());
  thread_->context().restart();
  never.cancel();
  thread_->context().poll();
}

}  // namespace
}  // namespace headrace
