#include "headrace/store/temporary_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace {

using ::testing::ElementsAre;

const std::string kDigits = "0123456789abcdef0123456789abcdef";

TEST(TemporaryNames, AreHiddenUnlessThePrefixThatWasAskedForLiesThere) {
  for (const std::string hidden : {"dataflux-composed-objects/", "headrace-uploads/"}) {
    for (const std::string& name : {hidden, hidden + "x", hidden + "x/y"}) {
      EXPECT_TRUE(is_hidden(name, "")) << name;
      EXPECT_TRUE(is_hidden(name, hidden.substr(0, 5))) << name;
      EXPECT_FALSE(is_hidden(name, hidden)) << name;
      EXPECT_FALSE(is_hidden(name, hidden + "x")) << name;
    }
    EXPECT_FALSE(is_hidden(hidden.substr(0, hidden.size() - 1), ""));
    EXPECT_FALSE(is_hidden("sub/" + hidden + "x", ""));
  }
  EXPECT_FALSE(is_hidden("", ""));
}

TEST(TemporaryNames, OfOurCompositesHaveExactlyOneForm) {
  const std::string good = "dataflux-composed-objects/headrace-" + kDigits;
  EXPECT_TRUE(is_own_composite(good));
  for (const std::string& other :
       {good + "0", good.substr(0, good.size() - 1), good + "/", "x" + good,
        "dataflux-composed-objects/" + kDigits, "headrace-" + kDigits, std::string(),
        std::string("dataflux-composed-objects/headrace-0123456789ABCDEF0123456789ABCDEF"),
        std::string("dataflux-composed-objects/6f1b2c3d-0a1b-4c2d-8e3f-0123456789ab")}) {
    EXPECT_FALSE(is_own_composite(other)) << other;
  }
}

TEST(TemporaryNames, ComeOffAPageFromAnyPlace) {
  ObjectPage page{.objects = {{.name = "a"},
                              {.name = "dataflux-composed-objects/x"},
                              {.name = "e"},
                              {.name = "headrace-uploads/x"},
                              {.name = "z"}},
                  .prefixes = {"dataflux-composed-objects/", "e/", "headrace-uploads/"},
                  .next_page_token = "t"};
  ColumnPage columns;
  for (const ObjectInfo& info : page.objects) columns.add(info);
  hide_temporaries(page, "");
  EXPECT_THAT(page.prefixes, ElementsAre("e/"));
  EXPECT_EQ(page.next_page_token, "t");
  hide_temporaries(columns, "");
  ASSERT_EQ(page.objects.size(), 3u);
  ASSERT_EQ(columns.size(), 3u);
  const std::string expected[] = {"a", "e", "z"};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(page.objects[i].name, expected[i]);
    EXPECT_EQ(columns.name(i), expected[i]);
  }
}

}  // namespace
}  // namespace headrace
