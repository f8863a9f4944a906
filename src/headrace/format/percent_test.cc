#include "headrace/format/percent.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

using namespace std::string_view_literals;

TEST(Percent, KeepsOnlyTheUnreservedCharacters) {
  EXPECT_EQ(percent_encode("AZaz09-._~"), "AZaz09-._~");
  EXPECT_EQ(percent_encode("a b/c?d#e%f+g&h=i\n"), "a%20b%2Fc%3Fd%23e%25f%2Bg%26h%3Di%0A");
  EXPECT_EQ(percent_encode("\xC3\xA4\0"sv), "%C3%A4%00");
}

TEST(Percent, AppendsToWhatIsThere) {
  std::string out = "/o/";
  percent_encode_to(out, "a/b");
  EXPECT_EQ(out, "/o/a%2Fb");
}

TEST(Percent, KeepsSlashesInAPath) { EXPECT_EQ(percent_encode_path("a b//c+"), "a%20b//c%2B"); }

TEST(Percent, DecodesEveryByte) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(percent_decode(percent_encode(all)).value(), all);
  EXPECT_EQ(percent_decode(percent_encode_path(all)).value(), all);
  EXPECT_EQ(percent_decode("a+b%2f%2F").value(), "a+b//");
}

TEST(Percent, RefusesAPercentSignWithoutTwoDigits) {
  for (const char* text : {"%", "%4", "a%", "%4g", "%g4", "%%41", "% 1"}) {
    EXPECT_FALSE(percent_decode(text).has_value()) << text;
  }
}

TEST(Percent, FormsHavePlusesForBlanks) {
  EXPECT_EQ(form_decode("a+b%20c%2Bd%2f+").value(), "a b c+d/ ");
  EXPECT_EQ(form_decode("").value(), "");
  for (const char* text : {"%", "a%2", "%g0", "a+%"}) {
    EXPECT_EQ(form_decode(text).error().code(), Code::kInvalidArgument) << text;
  }
  std::string out = "kept";
  EXPECT_FALSE(form_decode_to(out, "a+b%"));
  EXPECT_EQ(out, "kept");
  EXPECT_TRUE(form_decode_to(out, "+a"));
  EXPECT_EQ(out, "kept a");
}

}  // namespace
}  // namespace headrace
