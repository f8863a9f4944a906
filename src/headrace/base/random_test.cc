#include "headrace/base/random.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <set>

namespace headrace {
namespace {

TEST(RandomNumber, DoesNotRepeat) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random_number());
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(RandomNumber, EveryBitIsSometimesSetAndSometimesNot) {
  uint64_t set_once = 0, clear_once = 0;
  for (int i = 0; i < 200; ++i) {
    const uint64_t number = random_number();
    set_once |= number;
    clear_once |= ~number;
  }
  EXPECT_EQ(std::popcount(set_once), 64);
  EXPECT_EQ(std::popcount(clear_once), 64);
}

TEST(RandomNumber, IsAnotherOneInAForkedChild) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  const uint64_t number = random_number();
  if (child == 0) {
    ::_exit(::write(ends[1], &number, sizeof number) == sizeof number ? 0 : 1);
  }
  uint64_t of_child = 0;
  EXPECT_EQ(::read(ends[0], &of_child, sizeof of_child), ssize_t{sizeof of_child});
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_NE(number, of_child);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace headrace
