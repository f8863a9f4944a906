#include "headrace/dataset/glob.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace {

using ::testing::HasSubstr;

bool matches(std::string_view pattern, std::string_view name) {
  return Glob::parse(pattern).value().matches(name);
}

TEST(Glob, MatchesWholeNames) {
  EXPECT_TRUE(matches("a/b.jpg", "a/b.jpg"));
  EXPECT_FALSE(matches("a/b", "a/b.jpg"));
  EXPECT_FALSE(matches("b.jpg", "a/b.jpg"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "a"));
}

TEST(Glob, StarStaysInItsFolder) {
  EXPECT_TRUE(matches("*.jpg", "a.jpg"));
  EXPECT_TRUE(matches("*.jpg", ".jpg"));
  EXPECT_FALSE(matches("*.jpg", "a/b.jpg"));
  EXPECT_TRUE(matches("train/*/img-*-?.png", "train/07/img-a-b-1.png"));
  EXPECT_FALSE(matches("train/*/img-*-?.png", "train/07/8/img-a-b-1.png"));
  EXPECT_TRUE(matches("*a*b*", "xxaaxbxb"));
  EXPECT_FALSE(matches("*a*b*c", "xxaaxbxb"));
}

TEST(Glob, TwoStarsCrossFolders) {
  EXPECT_TRUE(matches("**", "a/b/c"));
  EXPECT_TRUE(matches("**", ""));
  EXPECT_TRUE(matches("a**c", "a/b/c"));
  EXPECT_TRUE(matches("train/**.jpg", "train/a/b.jpg"));
  EXPECT_TRUE(matches("**/*.jpg", "a.jpg"));
  EXPECT_TRUE(matches("**/*.jpg", "x/y/a.jpg"));
  EXPECT_TRUE(matches("a/**/b", "a/b"));
  EXPECT_TRUE(matches("a/**/b", "a/x/y/b"));
  EXPECT_FALSE(matches("a/**/b", "a/xb"));
  EXPECT_FALSE(matches("a/**/b", "ab"));
  EXPECT_TRUE(matches("**/a/*/c", "a/b/a/b/c"));
  EXPECT_TRUE(matches("a**/b", "ax/b"));
  EXPECT_FALSE(matches("a**/b", "ab"));
}

TEST(Glob, BracketsAreOneCharacter) {
  EXPECT_TRUE(matches("[a-c][!a-c]", "bz"));
  EXPECT_FALSE(matches("[a-c][!a-c]", "bb"));
  EXPECT_TRUE(matches("[]]", "]"));
  EXPECT_TRUE(matches("[!]]", "a"));
  EXPECT_TRUE(matches("[a-]", "-"));
  EXPECT_TRUE(matches("[*]", "*"));
  EXPECT_FALSE(matches("[*]", "a"));
  EXPECT_FALSE(matches("[!a]", "/"));
  EXPECT_FALSE(matches("[+-9]", "/"));
}

TEST(Glob, CountsCodePoints) {
  EXPECT_TRUE(matches("?", "\xc3\xa4"));
  EXPECT_TRUE(matches("[\xc3\xa0-\xc3\xbc]", "\xc3\xa4"));
  EXPECT_TRUE(matches("?.jpg", "\xf0\x9f\x90\x98.jpg"));
  EXPECT_TRUE(matches("??", "\xff\xc3"));  // no UTF-8: byte for byte
  EXPECT_TRUE(matches("\xff*", "\xff\xfe"));
  EXPECT_FALSE(matches("\xff", "\xfe"));
}

// Each of these says `[`, `/`, `*` or `a` in more bytes than it takes; the last is beyond Unicode.
TEST(Glob, ALongerFormOfACharacterIsNotThatCharacter) {
  for (const std::string longer :
       {"\xc1\x9b", "\xc0\xaf", "\xe0\x80\xaa", "\xf0\x80\x81\xa1", "\xf7\xbf\xbf\xbf"}) {
    ASSERT_TRUE(Glob::parse(longer).has_value());
    EXPECT_TRUE(matches(longer, longer));
    EXPECT_FALSE(matches(longer, "["));
    EXPECT_FALSE(matches(longer, "a"));
    EXPECT_TRUE(matches("*", longer));
    EXPECT_FALSE(matches("?", longer));
    EXPECT_TRUE(matches(std::string(longer.size(), '?'), longer));
  }
}

TEST(Glob, RefusesBracketsThatMakeNoSense) {
  for (const std::string pattern : {"[", "a[", "[]", "[!]", "[!", "[a-", "x[abc"}) {
    const auto parsed = Glob::parse(pattern);
    ASSERT_FALSE(parsed.has_value()) << pattern;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().message(), HasSubstr("'[' without its ']'"));
  }
  EXPECT_THAT(Glob::parse("[b-a]").error().message(), HasSubstr("upside down"));
}

// With naive backtracking this would take longer than the universe has.
TEST(Glob, TakesNoExponentialTime) {
  std::string pattern, name;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  for (int i = 0; i < 1000; ++i) name += "a";
  EXPECT_TRUE(matches(pattern, name));
  EXPECT_FALSE(matches(pattern + "b", name));
  EXPECT_FALSE(matches("**" + pattern + "b", name));
}

}  // namespace
}  // namespace headrace
