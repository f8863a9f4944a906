// How an I/O thread ends.
#include "headrace/http/io_thread.h"

#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>

#include <future>
#include <memory>
#include <utility>

namespace headrace {
namespace {

using std::chrono::steady_clock;

class Parked final : public Activity {
 public:
  explicit Parked(IoThread& thread)
      : Activity(thread, nullptr, steady_clock::now() + std::chrono::hours(1)) {}

 private:
  void interrupt(const Error&) override {}
  void sweep(steady_clock::time_point) override {}
};

// Parks until it is stopped, and then takes a few more turns of the thread, as what closes a
// connection does.
awaitable<void> end_slowly(IoThread& thread, std::promise<void>& began,
                           std::shared_ptr<bool> ended) {
  {
    Parked activity(thread);
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

TEST(IoThread, EndsAtOnceWithoutActivities) {
  const std::shared_ptr<IoThread> thread = IoThread::start(0);
  const auto began = steady_clock::now();
  thread->stop_all();
  thread->join();
  EXPECT_LT(steady_clock::now() - began, IoThread::kLongestEnd);
}

}  // namespace
}  // namespace headrace
