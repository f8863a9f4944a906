#include "headrace/format/json_quote.h"

#include <gtest/gtest.h>
#include <simdjson.h>

namespace headrace {
namespace {

using namespace std::string_view_literals;

TEST(JsonQuote, EscapesWhatJsonReserves) {
  EXPECT_EQ(json_quote("a/b\xC3\xA4"), "\"a/b\xC3\xA4\"");
  EXPECT_EQ(json_quote("\"\\\n\0\x7F"sv), R"("\"\\\u000a\u0000\u007f")");
}

TEST(JsonQuote, ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(json_quote("a\xFF"
                       "b\xC3"),
            "\"a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\"");
  EXPECT_EQ(json_quote("\xED\xA0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");  // a surrogate
}

TEST(JsonQuote, IsReadBackByAJsonParser) {
  std::string text;
  for (int i = 0; i < 128; ++i) text += static_cast<char>(i);
  text += "\xF0\x9F\x98\x80";
  simdjson::dom::parser parser;
  std::string_view read;
  ASSERT_EQ(parser.parse(json_quote(text)).get(read), simdjson::SUCCESS);
  EXPECT_EQ(read, text);
}

}  // namespace
}  // namespace headrace
