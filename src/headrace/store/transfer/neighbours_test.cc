// Processes that tell each other their limits: no server, no clock.
#include "headrace/store/transfer/neighbours.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/temporary_folder_test_support.h"
#include "headrace/base/units.h"

namespace headrace {
namespace {

using std::chrono::seconds;
using ::testing::Optional;
using Share = Neighbours::Share;
using TimePoint = Neighbours::TimePoint;

const TimePoint kNow = TimePoint(std::chrono::hours(1));
const std::string kHost = "https://storage.example";

Share limit_of(uint32_t limit) {
  return {.limit = limit, .max_limit = 512, .request_bytes = 100 * kKiB};
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
  EXPECT_FALSE(here.mean_limit(limit_of(100), kNow + seconds(3))) << "it has not said more";
}

TEST_F(NeighboursTest, WhoeverEndsIsNoNeighbourAnyMore) {
  Neighbours stays(kHost, folder());
  auto ends = std::make_unique<Neighbours>(kHost, folder());
  ends->mean_limit(limit_of(300), kNow);
  EXPECT_THAT(stays.mean_limit(limit_of(100), kNow), Optional(200));
  ends.reset();
  EXPECT_FALSE(stays.mean_limit(limit_of(100), kNow));
}

TEST_F(NeighboursTest, ObjectsOfAnotherSizeAreAnotherKindOfWork) {
  Neighbours small(kHost, folder()), large(kHost, folder());
  large.mean_limit({.limit = 32, .max_limit = 512, .request_bytes = 8 * kMiB}, kNow);
  EXPECT_FALSE(small.mean_limit(limit_of(400), kNow));
  large.mean_limit({.limit = 32, .max_limit = 512, .request_bytes = 300 * kKiB}, kNow);
  EXPECT_THAT(small.mean_limit(limit_of(400), kNow), Optional(216));
}

TEST_F(NeighboursTest, ALowerCeilingIsNoReasonForOthers) {
  Neighbours gentle(kHost, folder()), other(kHost, folder());
  EXPECT_FALSE(
      gentle.mean_limit({.limit = 16, .max_limit = 16, .request_bytes = 100 * kKiB}, kNow));
  EXPECT_FALSE(other.mean_limit(limit_of(400), kNow));
}

TEST_F(NeighboursTest, PlacesOfTheKilledAreTakenAgainAndMoreProcessesThanPlacesAreAlone) {
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

TEST_F(NeighboursTest, WhatAFileHoldsFromBeforeCannotMislead) {
  {
    Neighbours one(kHost, folder());
    one.mean_limit(limit_of(100), kNow);
  }
  std::string noise(Neighbours::kMostProcesses * 64, '\0');
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(i * 131 + 7);
  std::ofstream(file(), std::ios::binary | std::ios::in).write(noise.data(), std::ssize(noise));
  Neighbours one(kHost, folder()), two(kHost, folder());
  EXPECT_FALSE(one.mean_limit(limit_of(100), kNow));
  EXPECT_THAT(two.mean_limit(limit_of(200), kNow), Optional(150));
}

}  // namespace
}  // namespace headrace
