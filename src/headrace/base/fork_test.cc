#include "headrace/base/fork.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>
#include <vector>

namespace headrace {
namespace {

bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) >= 0; }

// True if `check` holds in a forked child.
bool in_child(const std::function<bool()>& check) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(check() ? 0 : 1);
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(Fork, EveryForkIsAnEpochOfItsOwn) {
  const uint64_t here = fork_epoch();
  EXPECT_TRUE(in_child([&] {
    return fork_epoch() == here + 1 && in_child([&] { return fork_epoch() == here + 2; });
  }));
  EXPECT_EQ(fork_epoch(), here);
}

TEST(Fork, TrackedDescriptorsAreClosedInTheChildAlone) {
  std::array<int, 2> tracked{}, untracked{};
  ASSERT_EQ(::pipe(tracked.data()), 0);
  ASSERT_EQ(::pipe(untracked.data()), 0);
  const uint64_t count = tracked_descriptor_count();
  close_in_child(tracked[0]);
  close_in_child(tracked[1]);
  close_in_child(tracked[1]);
  EXPECT_EQ(tracked_descriptor_count(), count + 2);
  EXPECT_TRUE(in_child([&] {
    return !is_open(tracked[0]) && !is_open(tracked[1]) && is_open(untracked[0]) &&
           is_open(untracked[1]) && tracked_descriptor_count() == 0;
  }));
  EXPECT_TRUE(is_open(tracked[0]));
  EXPECT_TRUE(is_open(tracked[1]));
  EXPECT_EQ(tracked_descriptor_count(), count + 2);
  for (const int descriptor : tracked) {
    forget_in_child(descriptor);
    ::close(descriptor);
  }
  for (const int descriptor : untracked) ::close(descriptor);
  EXPECT_EQ(tracked_descriptor_count(), count);
}

TEST(Fork, AForkWaitsForWhoeverHoldsItOff) {
  std::atomic<bool> is_held = false, is_forking = false, is_over = false, has_forked = false;
  std::thread other([&] {
    {
      const HoldsOffForks outer;
      const HoldsOffForks nested;
      is_held = true;
      while (!is_forking) std::this_thread::yield();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      is_over = true;
    }
    // The child would have an ended thread that nobody can join, which ThreadSanitizer calls a
    // leak.
    while (!has_forked) std::this_thread::yield();
  });
  while (!is_held) std::this_thread::yield();
  is_forking = true;
  EXPECT_TRUE(in_child([&] {
    const HoldsOffForks here;
    return is_over.load();
  }));
  has_forked = true;
  other.join();
  EXPECT_TRUE(in_child([] { return in_child([] { return true; }); }));
}

TEST(Fork, AForkWaitsForEachOfManyThreads) {
  constexpr int kThreads = 40;
  std::atomic<int> held = 0, over = 0;
  std::atomic<bool> is_forking = false, has_forked = false;
  std::vector<std::thread> others;
  for (int i = 0; i < kThreads; ++i) {
    others.emplace_back([&, i] {
      {
        const HoldsOffForks here;
        ++held;
        while (!is_forking) std::this_thread::yield();
        for (int turn = 0; turn < 20 * i; ++turn) std::this_thread::yield();
        ++over;
      }
      while (!has_forked) std::this_thread::yield();
    });
  }
  while (held < kThreads) std::this_thread::yield();
  is_forking = true;
  EXPECT_TRUE(in_child([&] { return over == kThreads; }));
  has_forked = true;
  for (std::thread& each : others) each.join();
}

TEST(Fork, AForgottenDescriptorStaysOpenInTheChild) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  close_in_child(ends[0]);
  forget_in_child(ends[0]);
  EXPECT_TRUE(in_child([&] { return is_open(ends[0]); }));
  for (const int descriptor : ends) ::close(descriptor);
}

TEST(Fork, TheReaderSeesTheEndThoughAChildLives) {
  std::array<int, 2> ends{}, gate{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::pipe(gate.data()), 0);
  close_in_child(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(gate[1]);
    char byte;
    static_cast<void>(::read(gate[0], &byte, 1));  // lives until the parent closes the gate
    ::_exit(0);
  }
  forget_in_child(ends[1]);
  ::close(ends[1]);
  char byte;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(gate[1]);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  ::close(gate[0]);
  ::close(ends[0]);
}

TEST(Fork, DescriptorsOutsideTheTableAreIgnored) {
  const uint64_t count = tracked_descriptor_count();
  for (const int descriptor : {-1, 1 << 20, (1 << 20) + 1}) {
    close_in_child(descriptor);
    forget_in_child(descriptor);
  }
  EXPECT_EQ(tracked_descriptor_count(), count);
}

}  // namespace
}  // namespace headrace
