// Processes that tell each other their limits: no server, no clock.
#include "headrace/store/transfer/neighbours.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "headrace/base/temporary_folder_test_support.h"
#include "headrace/base/units.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Optional;
using Share = Neighbours::Share;
using TimePoint = Neighbours::TimePoint;

const TimePoint kNow = TimePoint(std::chrono::hours(1));
const std::string kHost = "https://storage.example";

Share limit_of(uint32_t limit) {
  return {.limit = limit,
          .max_limit = 512,
          .request_bytes = 100 * kKiB,
          .is_busy = true,
          .interval = milliseconds(100)};
}
Share with(Share share, uint32_t max_limit, uint64_t request_bytes) {
  share.max_limit = max_limit;
  share.request_bytes = request_bytes;
  return share;
}

class NeighboursTest : public ::testing::Test {
 protected:
  const std::string& folder() const { return folder_.path(); }
  std::string file() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      found.push_back(entry.path().string());
    }
    return found.size() == 1 ? found.front() : "";
  }

 private:
  const TemporaryFolder folder_;
};

TEST_F(NeighboursTest, WhoeverIsAloneHasNoMean) {
  Neighbours alone(kHost, folder());
  EXPECT_FALSE(alone.mean_limit(limit_of(100), kNow));
  EXPECT_FALSE(alone.mean_limit(limit_of(100), kNow));
}

TEST_F(NeighboursTest, TheMeanIsThatOfAllThatReadFromTheHost) {
  Neighbours one(kHost, folder()), two(kHost, folder()), three(kHost, folder());
  Neighbours elsewhere("http://storage.example", folder());
  elsewhere.mean_limit(limit_of(500), kNow);
  one.mean_limit(limit_of(100), kNow);
  EXPECT_THAT(two.mean_limit(limit_of(200), kNow), Optional(150));
  EXPECT_THAT(three.mean_limit(limit_of(300), kNow), Optional(200));
  EXPECT_THAT(one.mean_limit(limit_of(400), kNow), Optional(300)) << "what was told last counts";
}

TEST_F(NeighboursTest, AnotherProcessIsANeighbour) {
  Neighbours here(kHost, folder());
  const pid_t child = ::fork();
  if (child == 0) {
    Neighbours there(kHost, folder());
    there.mean_limit(limit_of(300), kNow);
    ::_exit(0);  // as if it were killed
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_THAT(here.mean_limit(limit_of(100), kNow), Optional(200));
  EXPECT_THAT(here.mean_limit(limit_of(100), kNow + milliseconds(300)), Optional(200));
  EXPECT_FALSE(here.mean_limit(limit_of(100), kNow + milliseconds(301))) << "it has not said more";
}

TEST_F(NeighboursTest, WhoeverEndsIsNoNeighbourAnyMore) {
  Neighbours stays(kHost, folder());
  auto ends = std::make_unique<Neighbours>(kHost, folder());
  ends->mean_limit(limit_of(300), kNow);
  EXPECT_THAT(stays.mean_limit(limit_of(100), kNow), Optional(200));
  ends.reset();
  EXPECT_FALSE(stays.mean_limit(limit_of(100), kNow));
}

TEST_F(NeighboursTest, WhereNobodyFindsTheHostBusyThereIsRoomForAll) {
  Neighbours one(kHost, folder()), two(kHost, folder());
  Share idle = limit_of(100);
  idle.is_busy = false;
  EXPECT_FALSE(one.mean_limit(idle, kNow));
  EXPECT_FALSE(two.mean_limit(idle, kNow));
  EXPECT_THAT(one.mean_limit(limit_of(300), kNow), Optional(200));
  EXPECT_THAT(two.mean_limit(idle, kNow), Optional(200)) << "who came later knows no better";
}

TEST_F(NeighboursTest, WhatASlowHostIsToldOfCountsForLonger) {
  Neighbours one(kHost, folder()), two(kHost, folder());
  Share slow = limit_of(100);
  slow.interval = seconds(4);
  one.mean_limit(slow, kNow);
  EXPECT_THAT(two.mean_limit(limit_of(300), kNow + seconds(12)), Optional(200));
  EXPECT_FALSE(two.mean_limit(limit_of(300), kNow + seconds(13)));
}

TEST_F(NeighboursTest, ObjectsOfAnotherSizeAreAnotherKindOfWork) {
  Neighbours small(kHost, folder()), large(kHost, folder());
  large.mean_limit(with(limit_of(32), 512, 500 * kKiB), kNow);
  EXPECT_FALSE(small.mean_limit(limit_of(400), kNow));
  large.mean_limit(with(limit_of(32), 512, 300 * kKiB), kNow);
  EXPECT_THAT(small.mean_limit(limit_of(400), kNow), Optional(216));
}

TEST_F(NeighboursTest, ProcessesWithAnotherCeilingAreNotLikeThese) {
  Neighbours gentle(kHost, folder()), other(kHost, folder());
  EXPECT_FALSE(gentle.mean_limit(with(limit_of(12), 16, 100 * kKiB), kNow));
  EXPECT_FALSE(other.mean_limit(limit_of(400), kNow));
  EXPECT_FALSE(gentle.mean_limit(with(limit_of(12), 16, 100 * kKiB), kNow));
}

TEST_F(NeighboursTest, SeatsOfTheKilledAreTakenAgainAndMoreProcessesThanSeatsAreAlone) {
  std::vector<std::unique_ptr<Neighbours>> all;
  for (size_t i = 0; i < Neighbours::kMostProcesses; ++i) {
    all.push_back(std::make_unique<Neighbours>("http://other", folder()));
    all.back()->mean_limit(limit_of(100), kNow);
  }
  Neighbours late(kHost, folder());
  Neighbours later(kHost, folder());
  EXPECT_FALSE(late.mean_limit(limit_of(100), kNow));
  EXPECT_FALSE(later.mean_limit(limit_of(300), kNow));
  const TimePoint then = kNow + Neighbours::kForgotten + seconds(1);
  EXPECT_FALSE(late.mean_limit(limit_of(100), then));
  EXPECT_THAT(later.mean_limit(limit_of(300), then), Optional(200));
  // Those that live take another place; what they tell is not lost.
  for (const auto& each : all) each->mean_limit(limit_of(100), then);
  EXPECT_THAT(late.mean_limit(limit_of(100), then), Optional(200));
}

TEST_F(NeighboursTest, AFileThatOthersMayWriteIsNotUsed) {
  const auto told = [this] {
    Neighbours one(kHost, folder()), two(kHost, folder());
    one.mean_limit(limit_of(100), kNow);
    return two.mean_limit(limit_of(200), kNow);
  };
  EXPECT_THAT(told(), Optional(150));
  const std::string path = file();
  ASSERT_FALSE(path.empty());
  struct stat status = {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0600u);
  ASSERT_EQ(::chmod(path.c_str(), 0606), 0);
  EXPECT_FALSE(told());
  ASSERT_EQ(::unlink(path.c_str()), 0);
  std::ofstream(folder() + "/target").close();
  ASSERT_EQ(::symlink("target", path.c_str()), 0);
  EXPECT_FALSE(told());
}

TEST_F(NeighboursTest, WithoutAFolderThereIsNobody) {
  Neighbours one(kHost, folder() + "/missing"), two(kHost, folder() + "/missing");
  one.mean_limit(limit_of(100), kNow);
  EXPECT_FALSE(two.mean_limit(limit_of(200), kNow));
}

TEST_F(NeighboursTest, WhateverAFileHoldsAMeanIsOneOfLimits) {
  const auto write = [this](const std::string& bytes) {
    std::ofstream(file(), std::ios::binary | std::ios::in).write(bytes.data(), std::ssize(bytes));
  };
  std::string told;
  {
    Neighbours one(kHost, folder());
    one.mean_limit(limit_of(100), kNow);
    std::ifstream stream(file(), std::ios::binary);
    told.assign(std::istreambuf_iterator<char>(stream), {});
  }
  ASSERT_EQ(told.size(), Neighbours::kMostProcesses * 64);
  const size_t place = told.find_first_not_of('\0') / 64 * 64;
  const std::string like_one = told.substr(place, 64);
  std::mt19937 rng(1);
  for (int round = 0; round < 2000; ++round) {
    // Seats of this host, of which some numbers are anything.
    std::string bytes;
    for (size_t i = 0; i < Neighbours::kMostProcesses; ++i) bytes += like_one;
    for (size_t i = 0; i < Neighbours::kMostProcesses; i += rng() % 64) {
      const size_t at = i * 64 + 8 * (rng() % 8);
      const bool is_extreme = rng() % 2 == 0;
      for (size_t k = 0; k < 8; ++k) {
        bytes[at + k] = static_cast<char>(is_extreme ? (k == 7 ? 0x80 : 0) : rng());
      }
      if (i + 64 >= Neighbours::kMostProcesses) break;
    }
    write(bytes);
    Neighbours one(kHost, folder());
    const auto mean = one.mean_limit(limit_of(100), kNow + seconds(round % 2 == 0 ? 0 : 61));
    if (mean) {
      EXPECT_GE(*mean, 0);
      EXPECT_LE(*mean, 512);
    }
  }
}

TEST_F(NeighboursTest, WhatIsToldInTheFutureIsOfAnotherClock) {
  Neighbours one(kHost, folder()), two(kHost, folder());
  one.mean_limit(limit_of(100), kNow + std::chrono::hours(1));
  EXPECT_FALSE(two.mean_limit(limit_of(300), kNow));
}

}  // namespace
}  // namespace headrace
