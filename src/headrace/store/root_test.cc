#include "headrace/store/root.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Root, IsTheSameWithAndWithoutSlashesAtItsEnd) {
  for (const std::string_view path : {"run", "run/", "run//"}) {
    EXPECT_EQ(Root(path).text(), "run/") << path;
  }
  for (const std::string_view path : {"", "/", "//"}) {
    EXPECT_TRUE(Root(path).is_bucket()) << path;
    EXPECT_EQ(Root(path).text(), "") << path;
  }
  EXPECT_EQ(Root("/a//b").text(), "/a//b/");
  EXPECT_EQ(Root("..").text(), "../");
}

TEST(Root, ComesOffEveryNameOfAPageAndLeavesOutItsPlaceholder) {
  ColumnPage whole;
  for (const char* name : {"run/", "run/a", "run//b"}) whole.add(ObjectInfo{.name = name});
  whole.prefixes = {"run/c/"};
  whole.next_page_token = "t";
  ColumnPage page = whole;
  ASSERT_TRUE(Root("run").strip(page));
  ASSERT_EQ(page.size(), 2u);
  EXPECT_EQ(page.name(0), "a");
  EXPECT_EQ(page.name(1), "/b");
  EXPECT_THAT(page.prefixes, ElementsAre("c/"));
  EXPECT_EQ(page.next_page_token, "t");
  EXPECT_EQ(page.placeholders, 1u);
  // The bucket's own root has no placeholder, and takes nothing off.
  page = whole;
  ASSERT_TRUE(Root().strip(page));
  EXPECT_EQ(page.size(), 3u);
  EXPECT_EQ(page.name(1), "run/a");
  EXPECT_EQ(page.placeholders, 0u);
}

TEST(Root, AnswersAboutWhatIsNotBelowItAreCorrupt) {
  const Root root("run");
  for (const std::string_view other : {"run2/a", "ru", "x", ""}) {
    std::string name(other);
    const Result<void> stripped = root.strip(name);
    ASSERT_FALSE(stripped) << other;
    EXPECT_EQ(stripped.error().code(), Code::kCorrupt);
    EXPECT_THAT(stripped.error().message(), HasSubstr("not below the root \"run/\""));
    EXPECT_EQ(name, other);
    ColumnPage prefixes;
    prefixes.prefixes = {std::string(other)};
    EXPECT_FALSE(root.strip(prefixes));
    ColumnPage columns;
    columns.add(ObjectInfo{.name = "run/a"});
    columns.add(ObjectInfo{.name = std::string(other)});
    EXPECT_FALSE(root.strip(columns));
    UploadsPage uploads{.uploads = {{.name = std::string(other)}}};
    EXPECT_FALSE(root.strip(uploads));
  }
}

}  // namespace
}  // namespace headrace
