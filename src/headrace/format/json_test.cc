#include "headrace/format/json.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

namespace dom = simdjson::dom;

dom::object object_of(std::string_view json) { return parse_json(json).value().get_object(); }

TEST(Json, TextThatIsCutOffIsMalformed) {
  EXPECT_TRUE(parse_json(R"({"a": [1, 2]})").has_value());
  const auto cut = parse_json(R"({"a": [1, 2]})"
                              "\b");
  EXPECT_EQ(cut.error().code(), Code::kCorrupt);
  EXPECT_FALSE(parse_json(R"({"a": [1, 2])").has_value());
  EXPECT_FALSE(parse_json("").has_value());
}

TEST(Json, NumbersMayBeTexts) {
  const dom::object object = object_of(
      R"({"n": 7, "t": "18446744073709551615", "over": "18446744073709551616", "minus": -1, "x": "1x"})");
  uint64_t value = 0;
  EXPECT_TRUE(to_number(dom::element(object["n"]), value) && value == 7);
  EXPECT_TRUE(to_number(dom::element(object["t"]), value) && value == UINT64_MAX);
  for (const char* name : {"over", "minus", "x"}) {
    EXPECT_FALSE(to_number(dom::element(object[name]), value)) << name;
  }
  uint16_t small = 0;
  EXPECT_FALSE(to_number(dom::element(object["t"]), small));
}

TEST(MemberReader, NamesTheFirstMemberOfTheWrongTypeAndLeavesTheMissingAlone) {
  const dom::object object = object_of(R"({"text": "t", "null": null, "number": "12", "flag": 1})");
  MemberReader reader(object);
  std::string text = "before", null = "before";
  uint32_t number = 0;
  reader.text("text", text);
  reader.text("null", null);
  reader.number("number", number);
  EXPECT_EQ(text, "t");
  EXPECT_EQ(null, "before");
  EXPECT_EQ(number, 12u);
  EXPECT_EQ(reader.wrong(), nullptr);
  bool flag = false;
  dom::array array;
  reader.boolean("flag", flag);
  EXPECT_TRUE(reader.array("text", array));
  EXPECT_FALSE(reader.array("none", array));
  EXPECT_STREQ(reader.wrong(), "flag");
}

}  // namespace
}  // namespace headrace
