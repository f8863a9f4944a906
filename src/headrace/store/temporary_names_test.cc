#include "headrace/store/temporary_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using namespace std::string_literals;

const std::string kDigits = "0123456789abcdef0123456789abcdef";
const TemporaryNames kNames;

TEST(TemporaryNames, AreHiddenUnlessThePrefixThatWasAskedForLiesThere) {
  for (const std::string hidden : {"dataflux-composed-objects/", "headrace-uploads/"}) {
    for (const std::string& name : {hidden, hidden + "x", hidden + "x/y"}) {
      EXPECT_TRUE(kNames.hides(name, "")) << name;
      EXPECT_TRUE(kNames.hides(name, hidden.substr(0, 5))) << name;
      EXPECT_FALSE(kNames.hides(name, hidden)) << name;
      EXPECT_FALSE(kNames.hides(name, hidden + "x")) << name;
    }
    EXPECT_FALSE(kNames.hides(hidden.substr(0, hidden.size() - 1), ""));
    EXPECT_FALSE(kNames.hides("sub/" + hidden + "x", ""));
  }
  EXPECT_FALSE(kNames.hides("", ""));
}

TEST(TemporaryNames, OfOurCompositesHaveExactlyOneForm) {
  const std::string good = "dataflux-composed-objects/headrace-" + kDigits;
  EXPECT_TRUE(kNames.is_own_composite(good));
  for (const std::string& other :
       {good + "0", good.substr(0, good.size() - 1), good + "/", "x" + good,
        "dataflux-composed-objects/" + kDigits, "headrace-" + kDigits, std::string(),
        std::string("dataflux-composed-objects/headrace-0123456789ABCDEF0123456789ABCDEF"),
        std::string("dataflux-composed-objects/6f1b2c3d-0a1b-4c2d-8e3f-0123456789ab")}) {
    EXPECT_FALSE(kNames.is_own_composite(other)) << other;
  }
}

TEST(TemporaryNames, BelowAPrefixOfTheirOwnAreHiddenAsThoseAtTheRootAre) {
  for (const std::string prefix : {"team/tmp", "team/tmp/"}) {
    const TemporaryNames names(prefix);
    EXPECT_EQ(names.uploads(), "team/tmp/headrace-uploads/");
    for (const std::string& name :
         {"team/tmp/headrace-uploads/x"s, "team/tmp/dataflux-composed-objects/"s,
          "headrace-uploads/x"s, "dataflux-composed-objects/x"s}) {
      EXPECT_TRUE(names.hides(name, "")) << name;
      EXPECT_FALSE(names.hides(name, name)) << name;
    }
    EXPECT_FALSE(names.hides("team/tmp/x", ""));
    EXPECT_TRUE(names.is_own_composite("team/tmp/dataflux-composed-objects/headrace-" + kDigits));
    EXPECT_FALSE(names.is_own_composite("dataflux-composed-objects/headrace-" + kDigits));
  }
  EXPECT_FALSE(kNames.hides("team/tmp/headrace-uploads/x", ""));
}

TEST(TemporaryNames, ComeOffAPageFromAnyPlace) {
  ColumnPage page;
  for (const char* name : {"a", "dataflux-composed-objects/x", "e", "headrace-uploads/x", "z"}) {
    page.add(ObjectInfo{.name = name});
  }
  page.prefixes = {"dataflux-composed-objects/", "e/", "headrace-uploads/"};
  page.next_page_token = "t";
  kNames.hide(page, "");
  EXPECT_THAT(page.prefixes, ElementsAre("e/"));
  EXPECT_EQ(page.next_page_token, "t");
  ASSERT_EQ(page.size(), 3u);
  EXPECT_EQ(page.name(0), "a");
  EXPECT_EQ(page.name(1), "e");
  EXPECT_EQ(page.name(2), "z");
}

}  // namespace
}  // namespace headrace
