#include "headrace/store/writing/change.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <new>
#include <thread>

#include "headrace/store/writing/played_service_test_support.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;

using Number = std::shared_ptr<Pending<int>>;
Number number() { return std::make_shared<Pending<int>>(); }

class Steps final : public Change {
 public:
  explicit Steps(const std::shared_ptr<RemoteRoot>& remote)
      : Change(remote, "gs://bucket/a", next_thread(*remote)) {}
  ~Steps() override { is_alive = false; }
  using Change::cancel_requests;
  using Change::cancelled;
  using Change::running_count;

  // Takes the numbers one after the other, and adds them up.
  void add(std::vector<Number> numbers) {
    start<int>([&] { return sum(std::move(numbers)); },
               [](Result<int> result) { results.push_back(std::move(result)); });
  }
  // Waits until so many others have ended.
  void wait_for(size_t count) {
    start<int>([&] { return parked(count); },
               [](Result<int> result) { results.push_back(std::move(result)); });
  }
  void hold(std::shared_ptr<int> held, std::function<void()> done) {
    start<int>([&] { return holding(std::move(held)); },
               [done = std::move(done)](const Result<int>&) { done(); });
  }
  void run_out_of_memory() {
    start<int>([&] { return throwing(); },
               [](Result<int> result) { results.push_back(std::move(result)); });
  }

  static inline bool is_alive = true;
  static inline std::vector<Result<int>> results;

 private:
  awaitable<Result<int>> sum(std::vector<Number> numbers) {
    int all = 0;
    for (Number& each : numbers) {
      const Result<int> next = co_await request(std::move(each));
      if (!next) co_return next;
      all += *next;
    }
    co_return all;
  }
  awaitable<Result<int>> parked(size_t count) {
    while (results.size() < count) co_await park();
    co_return static_cast<int>(results.size());
  }
  static awaitable<Result<int>> holding(std::shared_ptr<int> held) { co_return *held; }
  static awaitable<Result<int>> throwing() {
    throw std::bad_alloc();
    co_return 0;
  }
};

class ChangeTest : public PlayedServiceTest {
 protected:
  ChangeTest() {
    begin<PlayedGcs>("gs://bucket");
    Steps::is_alive = true;
    Steps::results.clear();
  }
  std::vector<Result<int>>& results() { return Steps::results; }
  std::shared_ptr<Steps> steps() { return std::make_shared<Steps>(remote_); }
};

TEST_F(ChangeTest, RunsOnItsThreadAloneWhereverItsRequestsEnd) {
  const std::shared_ptr<Steps> change = steps();
  const Number first = number(), second = number();
  change->add({first, second});
  EXPECT_EQ(change->running_count(), 0u) << "not on the thread that has called";
  poll();
  EXPECT_EQ(change->running_count(), 1u);
  std::thread([&] { first->complete(1); }).join();
  std::thread([&] { second->complete(2); }).join();
  EXPECT_TRUE(results().empty()) << "not on the thread that has completed it";
  poll();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0].value(), 3);
}

TEST_F(ChangeTest, WhatWasCompletedBeforeIsTakenAtOnce) {
  const Number first = number();
  first->complete(7);
  steps()->add({first});
  poll();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0].value(), 7);
}

TEST_F(ChangeTest, CancellingReachesTheRequestInProgressAndThoseToCome) {
  const std::shared_ptr<Steps> change = steps();
  const Number first = number(), second = number();
  int cancelled = 0;
  for (const Number& each : {first, second}) each->set_on_cancel([&] { ++cancelled; });
  change->add({first, second});
  poll();
  change->cancel_requests();
  EXPECT_EQ(cancelled, 0) << "not on the thread that has called";
  poll();
  EXPECT_TRUE(first->cancelled());
  EXPECT_FALSE(second->cancelled());
  first->complete(1);  // cancelling is only a request
  poll();
  EXPECT_TRUE(second->cancelled());
  EXPECT_EQ(cancelled, 2);
  second->complete(fail(Code::kCancelled, "as it was told"));
  poll();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0].error().code(), Code::kCancelled);
}

TEST_F(ChangeTest, KeepsItselfAliveUntilItHasEnded) {
  const Number first = number();
  steps()->add({first});
  poll();
  EXPECT_TRUE(Steps::is_alive);
  first->complete(1);
  poll();
  EXPECT_EQ(results().size(), 1u);
  EXPECT_FALSE(Steps::is_alive);
}

TEST_F(ChangeTest, KeepsTheEngineUntilItHasEnded) {
  const Number first = number();
  steps()->add({first});
  EXPECT_FALSE(is_idle()) << "from the call on";
  poll();
  stop();
  EXPECT_FALSE(is_idle());
  first->complete(1);
  poll();
  EXPECT_TRUE(is_idle());
  EXPECT_EQ(results().size(), 1u);
}

TEST_F(ChangeTest, OnceTheEngineHasStoppedNothingBegins) {
  stop();
  const std::shared_ptr<Steps> change = steps();
  const Number first = number();
  change->add({first});
  ASSERT_EQ(results().size(), 1u) << "there may be no thread any more that could tell later";
  EXPECT_EQ(results()[0].error().to_string(), "gs://bucket/a: the engine was stopped");
  change->cancel_requests();
  poll();
  EXPECT_FALSE(change->cancelled());
}

TEST_F(ChangeTest, WhatItHeldIsReleasedBeforeItsEndIsTold) {
  auto held = std::make_shared<int>(5);
  const std::weak_ptr<int> lent = held;
  bool was_released = false;
  steps()->hold(std::move(held), [&] { was_released = lent.expired(); });
  EXPECT_FALSE(lent.expired());
  poll();
  EXPECT_TRUE(was_released);
}

TEST_F(ChangeTest, AnExceptionIsItsResult) {
  steps()->run_out_of_memory();
  poll();
  ASSERT_EQ(results().size(), 1u);
  EXPECT_EQ(results()[0].error().code(), Code::kInternal);
}

TEST_F(ChangeTest, WhoeverParksIsWokenByTheEndOfAnother) {
  const std::shared_ptr<Steps> change = steps();
  const Number first = number(), second = number();
  change->wait_for(2);
  change->add({first});
  change->add({second});
  poll();
  first->complete(1);
  poll();
  EXPECT_EQ(results().size(), 1u);
  second->complete(2);
  poll();
  std::vector<int> values;
  for (const Result<int>& each : results()) values.push_back(each.value());
  EXPECT_THAT(values, ElementsAre(1, 2, 2));
}

TEST_F(ChangeTest, WhatIsNeverResumedIsDestroyedWithItsThread) {
  const Number first = number();
  auto held = std::make_shared<int>(5);
  const std::weak_ptr<int> lent = held;
  const auto wait = [](Number pending, std::shared_ptr<int>) -> awaitable<void> {
    static_cast<void>(co_await result_of(std::move(pending)));
  };
  {
    const std::shared_ptr<IoThread> thread = IoThread::without_thread(7, clock_);
    asio::co_spawn(thread->context(), wait(first, std::move(held)), asio::detached);
    thread->context().poll();
    first->complete(1);  // the thread does not run any more
    EXPECT_FALSE(lent.expired());
  }
  EXPECT_TRUE(lent.expired());
}

}  // namespace
}  // namespace headrace
