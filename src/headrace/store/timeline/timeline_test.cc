#include "headrace/store/timeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <string>
#include <thread>
#include <vector>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

AttemptRecord numbered(uint32_t number) {
  AttemptRecord record;
  record.number = number;
  return record;
}

std::vector<uint32_t> numbers(const Timeline& timeline) {
  std::vector<uint32_t> all;
  for (const AttemptRecord& each : timeline.attempts) all.push_back(each.number);
  return all;
}

TEST(Timeline, IsOffUntilItIsAskedFor) {
  EXPECT_FALSE(timeline_is_on());
  begin_timeline(4);
  EXPECT_TRUE(timeline_is_on());
  static_cast<void>(end_timeline());
  EXPECT_FALSE(timeline_is_on());
}

TEST(Timeline, ReturnsWhatWasNotedInOrderAndOnlyOnce) {
  begin_timeline(4);
  for (uint32_t i = 1; i <= 4; ++i) note_attempt(numbered(i));
  const Timeline first = end_timeline();
  EXPECT_THAT(numbers(first), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(first.dropped, 0u);
  EXPECT_THAT(end_timeline().attempts, IsEmpty());
}

TEST(Timeline, AFullRingOverwritesTheOldestAndCountsThem) {
  begin_timeline(3);
  for (uint32_t i = 1; i <= 8; ++i) note_attempt(numbered(i));
  const Timeline taken = end_timeline();
  EXPECT_THAT(numbers(taken), ElementsAre(6, 7, 8));
  EXPECT_EQ(taken.dropped, 5u);
}

TEST(Timeline, ARingHoldsAtLeastOne) {
  begin_timeline(0);
  note_attempt(numbered(1));
  note_attempt(numbered(2));
  EXPECT_THAT(numbers(end_timeline()), ElementsAre(2));
}

TEST(Timeline, BeginsAnewWithoutWhatWasNotTaken) {
  begin_timeline(3);
  note_attempt(numbered(1));
  begin_timeline(3);
  note_attempt(numbered(2));
  EXPECT_THAT(numbers(end_timeline()), ElementsAre(2));
}

TEST(Timeline, DropsWhatIsNotedAfterItsEnd) {
  begin_timeline(3);
  static_cast<void>(end_timeline());
  note_attempt(numbered(1));
  EXPECT_THAT(end_timeline().attempts, IsEmpty());
}

TEST(Timeline, TakesWhatThreadsHaveNotedThatAreGone) {
  begin_timeline(3);
  std::thread([] { note_attempt(numbered(1)); }).join();
  std::thread([] { note_attempt(numbered(2)); }).join();
  EXPECT_THAT(numbers(end_timeline()), UnorderedElementsAre(1, 2));
}

TEST(Timeline, LosesNothingOfWhatManyThreadsNote) {
  constexpr uint32_t kThreads = 4, kEach = 20'000, kRoom = 15'000;
  begin_timeline(kRoom);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([] {
      for (uint32_t number = 1; number <= kEach; ++number) note_attempt(numbered(number));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Timeline taken = end_timeline();
  EXPECT_EQ(taken.attempts.size(), kThreads * kRoom);
  EXPECT_EQ(taken.dropped, kThreads * (kEach - kRoom));
}

TEST(Timeline, CountsNothingTwiceWhileItBeginsAndEndsUnderThreadsThatNote) {
  constexpr uint32_t kThreads = 4, kEach = 20'000;
  std::atomic<uint64_t> noted = 0;
  std::latch begin(kThreads + 1);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&begin, &noted] {
      begin.arrive_and_wait();
      for (uint32_t number = 1; number <= kEach; ++number) {
        if (!timeline_is_on()) continue;
        note_attempt(numbered(number));
        noted.fetch_add(1);
      }
    });
  }
  uint64_t taken = 0;
  begin.arrive_and_wait();
  for (int i = 0; i < 200; ++i) {
    begin_timeline(100);
    const Timeline part = end_timeline();
    EXPECT_LE(part.attempts.size(), 100u * kThreads);
    taken += part.attempts.size() + part.dropped;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(taken, noted);
}

TEST(Timeline, AForkedChildBeginsWithoutOneAndCanHaveItsOwn) {
  begin_timeline(3);
  note_attempt(numbered(1));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool good = !timeline_is_on() && end_timeline().attempts.empty();
    begin_timeline(3);
    note_attempt(numbered(2));
    good = good && numbers(end_timeline()) == std::vector<uint32_t>{2};
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(timeline_is_on());
  EXPECT_THAT(numbers(end_timeline()), ElementsAre(1));
}

TEST(AttemptRecord, KeepsTheEndOfAPathAndNoQuery) {
  AttemptRecord record;
  record.set_target("/b/o?X-Goog-Signature=secret");
  EXPECT_EQ(record.target.view(), "/b/o");
  const std::string longer = "/bucket/" + std::string(100, 'x') + "/end";
  record.set_target(longer + "?alt=media");
  EXPECT_EQ(record.target.view(), longer.substr(longer.size() - 71));
  record.set_target("");
  EXPECT_EQ(record.target.view(), "");
  record.host.keep_front("a-very-long-host-name.storage.example.com:443");
  EXPECT_EQ(record.host.view(), "a-very-long-host-name.storage.e");
}

TEST(AttemptEnd, EachHasAName) {
  for (const AttemptEnd end : {AttemptEnd::kDone, AttemptEnd::kFailed, AttemptEnd::kLost}) {
    EXPECT_FALSE(to_string(end).empty());
  }
}

}  // namespace
}  // namespace headrace
