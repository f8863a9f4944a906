#include "headrace/store/reading/many_jobs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace headrace {
namespace {

struct Request {
  void cancel() { cancelled = true; }
  std::atomic<bool> cancelled = false;
};

// Job `at` answers with its number.
class Jobs : public ManyJobs<size_t, Request> {
 public:
  Jobs(size_t count, size_t max_in_flight) : ManyJobs(count, max_in_flight, "not done") {}

  void finish(size_t at, bool ends_all = false) { end(at, at, ends_all); }

  std::vector<size_t> begun;
  std::vector<std::shared_ptr<Request>> requests;
  bool at_once = false;

 private:
  void begin(size_t at) override {
    begun.push_back(at);
    requests.push_back(std::make_shared<Request>());
    if (!running(at, requests.back())) requests.back()->cancel();
    if (at_once) finish(at);
  }
};

std::vector<Result<size_t>> take(Pending<std::vector<Result<size_t>>>& pending) {
  std::optional<std::vector<Result<size_t>>> answers;
  pending.then([&](Result<std::vector<Result<size_t>>> all) { answers = std::move(all).value(); });
  EXPECT_TRUE(answers.has_value()) << "the jobs are not done";
  return std::move(answers).value_or(std::vector<Result<size_t>>());
}

TEST(ManyJobs, BeginsAnotherJobWhenOneEnds) {
  const auto jobs = std::make_shared<Jobs>(4, 2);
  const auto pending = jobs->start();
  EXPECT_EQ(jobs->begun, (std::vector<size_t>{0, 1}));
  jobs->finish(1);
  EXPECT_EQ(jobs->begun, (std::vector<size_t>{0, 1, 2}));
  for (const size_t at : {2u, 0u, 3u}) jobs->finish(at);
  const std::vector<Result<size_t>> answers = take(*pending);
  ASSERT_EQ(answers.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(answers[i].value(), i);
}

TEST(ManyJobs, JobsThatEndAtOnceTakeNoStack) {
  const auto jobs = std::make_shared<Jobs>(1'000'000, 3);
  jobs->at_once = true;
  EXPECT_EQ(take(*jobs->start()).size(), 1'000'000u);
}

TEST(ManyJobs, NoneIsDoneAtOnce) {
  EXPECT_TRUE(take(*std::make_shared<Jobs>(0, 3)->start()).empty());
}

TEST(ManyJobs, OneThatEndsAllCancelsTheOthersAndBeginsNone) {
  const auto jobs = std::make_shared<Jobs>(5, 3);
  const auto pending = jobs->start();
  jobs->finish(1, true);
  EXPECT_TRUE(jobs->requests[0]->cancelled);
  EXPECT_TRUE(jobs->requests[2]->cancelled);
  jobs->finish(0);
  jobs->finish(2);
  EXPECT_EQ(jobs->begun.size(), 3u);
  const std::vector<Result<size_t>> answers = take(*pending);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(answers[i].value(), i);
  for (size_t i = 3; i < 5; ++i) EXPECT_EQ(answers[i].error().code(), Code::kCancelled);
}

TEST(ManyJobs, CancellingIsTheSame) {
  const auto jobs = std::make_shared<Jobs>(5, 2);
  const auto pending = jobs->start();
  pending->cancel();
  EXPECT_TRUE(jobs->requests[0]->cancelled);
  EXPECT_TRUE(jobs->requests[1]->cancelled);
  jobs->finish(0);
  jobs->finish(1);
  EXPECT_EQ(take(*pending)[4].error().code(), Code::kCancelled);
  EXPECT_EQ(jobs->begun.size(), 2u);
}

TEST(ManyJobs, EndsOnManyThreadsBeginEveryJobOnce) {
  constexpr size_t kJobs = 20'000;
  struct Threaded : ManyJobs<size_t, Request> {
    Threaded() : ManyJobs(kJobs, 8, "not done") {}
    void begin(size_t at) override {
      const size_t now = ++in_flight;
      size_t most = max_in_flight;
      while (now > most && !max_in_flight.compare_exchange_weak(most, now)) {
      }
      running(at, std::make_shared<Request>());
      {
        const Lock lock(mutex);
        waiting.push_back(at);
      }
    }
    void work() {
      for (;;) {
        size_t at = 0;
        {
          const Lock lock(mutex);
          if (done == kJobs) return;
          if (waiting.empty()) continue;
          at = waiting.back();
          waiting.pop_back();
          ++done;
        }
        --in_flight;
        end(at, at, false);
      }
    }
    std::atomic<size_t> in_flight = 0, max_in_flight = 0;
    Mutex mutex;
    std::vector<size_t> waiting HEADRACE_GUARDED_BY(mutex);
    size_t done HEADRACE_GUARDED_BY(mutex) = 0;
  };
  const auto jobs = std::make_shared<Threaded>();
  const auto pending = jobs->start();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { jobs->work(); });
  }
  const std::vector<Result<size_t>> answers = take(*pending);
  for (size_t i = 0; i < kJobs; ++i) ASSERT_EQ(answers[i].value(), i);
  EXPECT_LE(jobs->max_in_flight, 8u);
}

// A thread may have ended its job when another completes all.
TEST(ManyJobs, ThreadsThatEndTheLastJobsTogetherBeginNoOther) {
  for (int i = 0; i < 2'000; ++i) {
    const auto jobs = std::make_shared<Jobs>(3, 3);
    const auto pending = jobs->start();
    {
      std::vector<std::jthread> threads;
      for (size_t at = 0; at < 3; ++at) threads.emplace_back([&jobs, at] { jobs->finish(at); });
    }
    ASSERT_EQ(jobs->begun.size(), 3u);
    ASSERT_EQ(take(*pending).size(), 3u);
  }
}

}  // namespace
}  // namespace headrace
