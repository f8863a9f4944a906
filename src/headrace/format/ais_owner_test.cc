#include "headrace/format/ais_owner.h"

#include <gtest/gtest.h>

#include <string>

#include "headrace/format/running_sum.h"

namespace headrace {
namespace {

AisMap five_targets() {
  AisMap map;
  for (const char* id : {"ydWt8081", "GSCt8082", "QMbt8083", "kqpt8084", "Zzzt8085"}) {
    map.targets.push_back({.id = id});
  }
  return map;
}

// From the server's own packages (its hash, and xoshiro256 of 3.23).
TEST(AisOwners, AreThoseOfTheServer) {
  const AisOwners owners(five_targets());
  struct Case {
    std::string bucket_uname, name;
    size_t owner;
  };
  for (const Case& each : {
           Case{"ais/@#/b/", "o", 4},
           Case{"ais/@#/bucket/", "dir/name with space", 3},
           Case{"ais/@#ns1/bucket/", "000001.jpg", 2},
           Case{"ais/@uuid9#ns/bucket/", "x", 3},
           Case{"aws/@#/imagenet/", "train/n01440764/a.JPEG", 0},
           Case{"gcp/@#/b/", "p%q#r?s", 1},
           Case{"ais/@#/b/", "\xC3\xA9", 2},
           Case{"ais/@#/" + std::string(30, 'b') + "/", std::string(100, 'n'), 3},
       }) {
    EXPECT_EQ(owners.owner(each.bucket_uname, each.name), each.owner)
        << each.bucket_uname << each.name;
    // Where the bucket ends and the name begins makes no difference.
    EXPECT_EQ(owners.owner("", each.bucket_uname + each.name), each.owner);
  }
}

TEST(AisOwners, OfTenThousandNamesAreThoseOfTheServer) {
  const AisOwners owners(five_targets());
  std::string all;
  for (int i = 0; i < 10'000; ++i) {
    const std::string digits = std::to_string(1'000'000 + i).substr(1);
    all += static_cast<char>('0' + owners.owner("ais/@#/b/", "obj-" + digits).value());
  }
  EXPECT_EQ(all.substr(0, 40), "4320232434210421323414400341211224320202");
  EXPECT_EQ(to_hex(sum_of(ChecksumKind::kCrc32, std::as_bytes(std::span(all)))), "19850dc9");
}

TEST(AisOwners, TargetsThatLeaveOwnNothingAndTheOthersKeepWhatTheyHave) {
  AisMap map = five_targets();
  const AisOwners before(map);
  map.targets[2].flags = 4;
  map.targets[4].flags = 8;
  const AisOwners after(map);
  size_t moved = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string name = std::to_string(i);
    const size_t was = before.owner("ais/@#/b/", name).value();
    const size_t is = after.owner("ais/@#/b/", name).value();
    EXPECT_TRUE(is != 2 && is != 4);
    if (was != 2 && was != 4) EXPECT_EQ(is, was);
    moved += is != was;
  }
  EXPECT_GT(moved, 0u);
  for (AisNode& target : map.targets) target.flags = 4;
  EXPECT_EQ(AisOwners(map).owner("ais/@#/b/", "o"), std::nullopt);
  EXPECT_EQ(AisOwners().owner("ais/@#/b/", "o"), std::nullopt);
}

TEST(AisBucketUname, HasProviderNamespaceAndName) {
  EXPECT_EQ(ais_bucket_uname("ais", "", "", "b"), "ais/@#/b/");
  EXPECT_EQ(ais_bucket_uname("aws", "uuid", "ns", "b"), "aws/@uuid#ns/b/");
}

}  // namespace
}  // namespace headrace
