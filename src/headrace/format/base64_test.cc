#include "headrace/format/base64.h"

#include <gtest/gtest.h>

#include "headrace/format/format_test_support.h"

namespace headrace {
namespace {

std::string encoded(std::string_view text) { return base64_encode(std::as_bytes(std::span(text))); }

std::string decoded(std::string_view text) {
  const std::vector<std::byte> bytes = base64_decode(text).value();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Base64, GivesThePublishedVectorsBothWays) {  // RFC 4648 section 10
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"},
                                                         {"\xFB\xFF", "+/8="}};
  for (const auto& [text, code] : vectors) {
    EXPECT_EQ(encoded(text), code);
    EXPECT_EQ(decoded(code), text);
  }
}

TEST(Base64, RefusesEverySecondSpelling) {
  for (const char* text : {"Zg", "Zg=", "Zh==", "Zm9=", "Zm8=Zm8=", "Z===", "====", "=AAA", "Zm 8",
                           "Zm9v\n", "Zm-_", "A=A="}) {
    EXPECT_FALSE(base64_decode(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace headrace
