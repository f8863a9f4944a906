#include "headrace/dataset/shard_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using ::testing::HasSubstr;

TEST(MemberName, IsTakenApartAtTheFirstDotOfItsLastPart) {
  const auto shown_name = [](std::string_view name) {
    const MemberName parts = split_member_name(name);
    return parts.has_key ? cat(parts.key, "|", parts.field) : "none";
  };
  EXPECT_EQ(shown_name("a.jpg"), "a|jpg");
  EXPECT_EQ(shown_name("a.seg.png"), "a|seg.png");
  EXPECT_EQ(shown_name("x.y/a.jpg"), "x.y/a|jpg");
  EXPECT_EQ(shown_name("./a.JPG"), "./a|JPG");
  EXPECT_EQ(shown_name("../a.jpg"), "../a|jpg");
  EXPECT_EQ(shown_name("a."), "a|");
  EXPECT_EQ(shown_name("x/__a__.jpg"), "x/__a__|jpg");
  for (const char* name : {"", "readme", "x.y/readme", ".hidden", ".a.jpg", "x/.a.jpg",
                           "__meta.json__", "__meta__/a.jpg", "____/a.jpg"}) {
    EXPECT_EQ(shown_name(name), "none") << name;
  }
}

TEST(ShardNames, NeighboursOfOneKeyAreASample) {
  ShardNames names;
  EXPECT_TRUE(names.add("a.JPG").value().begins_sample);
  EXPECT_EQ(names.add("a.seg.png").value().field, "seg.png");
  EXPECT_FALSE(names.add("README").value().has_key);
  EXPECT_FALSE(names.add("a.cls").value().begins_sample);
  EXPECT_EQ(names.key(), "a");
  const ShardNames::Place place = names.add("d/a.JPG").value();
  EXPECT_TRUE(place.begins_sample);
  EXPECT_EQ(place.field, "jpg");
  EXPECT_EQ(names.key(), "d/a");
}

TEST(ShardNames, RefusesAKeyInTwoPlacesOfOneShard) {
  ShardNames names;
  for (const char* const name : {"a.x", "b.x"}) EXPECT_TRUE(names.add(name).has_value());
  EXPECT_THAT(names.add("a.y").error().message(), HasSubstr("two places"));
  names.begin_shard();
  EXPECT_TRUE(names.add("a.x").value().begins_sample);
}

TEST(ShardNames, RefusesAFieldTwiceAndTheNamesOfItsOwn) {
  ShardNames names;
  EXPECT_TRUE(names.add("a.x").has_value());
  EXPECT_THAT(names.add("a.X").error().message(), HasSubstr("already"));
  EXPECT_THAT(names.add("a.__key__").error().message(), HasSubstr("of their own"));
}

TEST(ShardNames, RefusesMoreFieldsThanASampleMayHave) {
  ShardNames names;
  for (size_t i = 0; i < kMaxSampleFields; ++i) {
    ASSERT_EQ(names.add(cat("a.", i)).value().field, std::to_string(i));
  }
  EXPECT_THAT(names.add("a.x").error().message(), HasSubstr("pack members whose names differ"));
  EXPECT_TRUE(names.add("b.x").value().begins_sample);
}

}  // namespace
}  // namespace headrace
