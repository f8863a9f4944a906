#include "headrace/format/ais_location.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

void expect_location(std::string_view value, const Endpoint& endpoint, std::string_view query) {
  const Result<AisLocation> location = parse_ais_location(value);
  ASSERT_TRUE(location.has_value()) << value << ": " << location.error().message();
  EXPECT_EQ(location->endpoint, endpoint) << value;
  EXPECT_EQ(location->query, query) << value;
}

TEST(AisLocation, IsTheTargetAndTheQuery) {
  expect_location("http://127.0.0.1:21081/v1/objects/b/o?provider=ais&pid=kWQp8080&utm=17637",
                  {.tls = false, .host = "127.0.0.1", .port = 21081},
                  "provider=ais&pid=kWQp8080&utm=17637");
  expect_location("https://[::1]:443/v1/objects/b/o?pid=p&utm=1",
                  {.tls = true, .host = "::1", .port = 443}, "pid=p&utm=1");
  expect_location("http://T1.example/v1/ml/moss/b?utm=k3zx&pid=p&sig=ab%2Fc&provider=ais",
                  {.tls = false, .host = "t1.example", .port = 80},
                  "utm=k3zx&pid=p&sig=ab%2Fc&provider=ais");
}

TEST(AisLocation, ThePathMayBeDecodedAndIsNotLookedAt) {
  const Endpoint target{.tls = false, .host = "h", .port = 1};
  for (const char* name : {"q?q", "h#h", "p%q", "a b", "?pid=x&utm=1", "é", "#?#", "a://b"}) {
    expect_location(cat("http://h:1/v1/objects/b/", name, "?provider=ais&pid=p&utm=2"), target,
                    "provider=ais&pid=p&utm=2");
  }
}

TEST(AisLocation, OfAnythingElseIsRefused) {
  for (const char* value :
       {"", "/v1/objects/b/o?pid=p&utm=1", "http://h", "http://h/v1/objects/b/o",
        "http://h?pid=p&utm=1", "http://h/login?next=%2F", "http://h/o?xpid=p",
        "http://h/o?pid=", "http://h/o?pid=p#utm=1", "http://h/o?pid=p\n&utm=1",
        "http://u@h/o?pid=p", "ftp://h/o?pid=p", "http://h:0x/o?pid=p", "http:///o?pid=p"}) {
    const Result<AisLocation> location = parse_ais_location(value);
    ASSERT_FALSE(location.has_value()) << value;
    EXPECT_EQ(location.error().code(), Code::kUnavailable) << value;
  }
}

}  // namespace
}  // namespace headrace
