#include "headrace/store/transfer/map_keeper.h"
#include "headrace/store/placement.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace headrace {
namespace {

using std::chrono::seconds;

class MapKeeperTest : public ::testing::Test {
 protected:
  void tell(uint64_t version, std::vector<std::string> members, std::string cluster = "u") {
    auto map = std::make_shared<HostMap>();
    map->version = version;
    map->cluster = std::move(cluster);
    map->members = std::move(members);
    EXPECT_TRUE(keeper_.begin_fetch());
    keeper_.fetched(std::shared_ptr<const HostMap>(std::move(map)), now_);
  }
  void fail_fetch() {
    EXPECT_TRUE(keeper_.begin_fetch());
    keeper_.fetched(fail(Code::kUnavailable, "no"), now_);
  }

  MapKeeper keeper_;
  MapKeeper::TimePoint now_{std::chrono::hours(1)};
};

TEST_F(MapKeeperTest, AMapIsWantedUntilThereIsOneAndAgainWhenItIsOld) {
  EXPECT_TRUE(keeper_.is_wanted(now_));
  tell(1, {"a"});
  EXPECT_FALSE(keeper_.is_wanted(now_ + MapKeeper::kMaxAge - seconds(1)));
  EXPECT_TRUE(keeper_.is_wanted(now_ + MapKeeper::kMaxAge));
}

TEST_F(MapKeeperTest, AfterAFailureItIsWantedAfterPausesThatGrow) {
  for (const int pause : {5, 10, 20, 40, 60, 60}) {
    fail_fetch();
    EXPECT_FALSE(keeper_.is_wanted(now_ + seconds(pause - 1)));
    now_ += seconds(pause);
    EXPECT_TRUE(keeper_.is_wanted(now_));
  }
  tell(1, {"a"});
  now_ += MapKeeper::kMaxAge;
  fail_fetch();
  EXPECT_TRUE(keeper_.is_wanted(now_ + MapKeeper::kPause));
}

TEST_F(MapKeeperTest, AnOlderMapOfTheSameClusterIsNotTaken) {
  tell(5, {"a"});
  tell(4, {"b"});
  EXPECT_EQ(keeper_.map()->version, 5u);
  EXPECT_FALSE(keeper_.is_unsettled(now_));
  tell(1, {"a"}, "another");
  EXPECT_EQ(keeper_.map()->version, 1u);
}

TEST_F(MapKeeperTest, AMemberThatIsAwayMayComeBackForTwoMinutes) {
  tell(1, {"a", "b"});
  EXPECT_FALSE(keeper_.is_unsettled(now_));
  tell(2, {"a"});
  EXPECT_TRUE(keeper_.is_unsettled(now_ + MapKeeper::kMayComeBack - seconds(1)));
  EXPECT_FALSE(keeper_.is_unsettled(now_ + MapKeeper::kMayComeBack));
  now_ += seconds(100);
  tell(3, {"a", "b"});
  EXPECT_TRUE(keeper_.is_unsettled(now_ + MapKeeper::kUnsettled - seconds(1)));
  EXPECT_FALSE(keeper_.is_unsettled(now_ + MapKeeper::kUnsettled));
}

TEST_F(MapKeeperTest, AMapThatIsContradictedIsNotUsedUntilANewerOneIsThere) {
  tell(1, {"a"});
  EXPECT_TRUE(keeper_.takes_direct(now_));
  keeper_.contradicted(now_);
  EXPECT_FALSE(keeper_.takes_direct(now_));
  EXPECT_TRUE(keeper_.is_wanted(now_));
  fail_fetch();
  EXPECT_FALSE(keeper_.takes_direct(now_));
  now_ += MapKeeper::kPause;
  tell(2, {"a", "b"});
  EXPECT_TRUE(keeper_.takes_direct(now_));
}

TEST_F(MapKeeperTest, AFetchThatHadBegunBeforeTheContradictionSaysNothingAboutIt) {
  EXPECT_TRUE(keeper_.begin_fetch());
  keeper_.contradicted(now_);
  auto map = std::make_shared<HostMap>();
  map->version = 2;
  keeper_.fetched(std::shared_ptr<const HostMap>(std::move(map)), now_);
  EXPECT_FALSE(keeper_.takes_direct(now_));
  EXPECT_TRUE(keeper_.is_wanted(now_));
  tell(3, {"a"}, "");
  EXPECT_TRUE(keeper_.takes_direct(now_));
}

TEST_F(MapKeeperTest, AMapThatStaysTheSameThoughItIsContradictedIsBelievedAfterASecondLook) {
  tell(1, {"a"});
  keeper_.contradicted(now_);
  tell(1, {"a"});
  EXPECT_FALSE(keeper_.takes_direct(now_)) << "another proxy may know more";
  EXPECT_FALSE(keeper_.is_wanted(now_ + MapKeeper::kPause - seconds(1)));
  now_ += MapKeeper::kPause;
  EXPECT_FALSE(keeper_.takes_direct(now_));
  EXPECT_TRUE(keeper_.is_wanted(now_));
  tell(1, {"a"});
  EXPECT_TRUE(keeper_.takes_direct(now_));
}

TEST_F(MapKeeperTest, AMapThatIsContradictedDuringEveryFetchIsFetchedAfterPauses) {
  tell(1, {"a"});
  int fetches = 0;
  for (const auto end = now_ + seconds(60); now_ < end; now_ += std::chrono::milliseconds(100)) {
    keeper_.contradicted(now_);
    if (!keeper_.is_wanted(now_)) continue;
    ++fetches;
    EXPECT_TRUE(keeper_.begin_fetch());
    keeper_.contradicted(now_);
    auto map = std::make_shared<HostMap>();
    map->version = 1;
    map->cluster = "u";
    keeper_.fetched(std::shared_ptr<const HostMap>(std::move(map)), now_);
    EXPECT_FALSE(keeper_.takes_direct(now_));
  }
  EXPECT_EQ(fetches, 12) << "one every 5 s";
}

TEST_F(MapKeeperTest, ThatTheyDoNotComeToAgreeIsKnownOnceTwoFetchesHaveBroughtTheSameMap) {
  tell(1, {"a"});
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(keeper_.contradicted(now_));
    tell(1, {"a"});
    now_ += MapKeeper::kPause - seconds(1);
  }
  EXPECT_TRUE(keeper_.contradicted(now_));
  tell(2, {"b"});
  EXPECT_TRUE(keeper_.takes_direct(now_));
  EXPECT_FALSE(keeper_.contradicted(now_)) << "by a newer map, for the first time";
}

TEST_F(MapKeeperTest, WhyThereIsNoMapIsKeptUntilThereIsOne) {
  EXPECT_FALSE(keeper_.why_unknown().has_value());
  fail_fetch();
  EXPECT_EQ(keeper_.why_unknown()->message(), "no");
  now_ += MapKeeper::kPause;
  tell(1, {"a"});
  EXPECT_FALSE(keeper_.why_unknown().has_value());
  fail_fetch();
  EXPECT_FALSE(keeper_.why_unknown().has_value()) << "that one is still there";
}

TEST_F(MapKeeperTest, AFetchIsMadeOnce) {
  const uint64_t fetch = keeper_.next_fetch();
  EXPECT_TRUE(keeper_.begin_fetch(fetch));
  EXPECT_FALSE(keeper_.begin_fetch(fetch));
  keeper_.fetched(fail(Code::kUnavailable, "no"), now_);
  EXPECT_FALSE(keeper_.begin_fetch(fetch)) << "it is over";
}

}  // namespace
}  // namespace headrace
