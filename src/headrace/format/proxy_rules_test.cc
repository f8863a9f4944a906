#include "headrace/format/proxy_rules.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(ProxyRules, AnEmptyListBypassesNothing) {
  EXPECT_FALSE(bypasses_proxy("", "h", 80));
  EXPECT_FALSE(bypasses_proxy(" , ,", "h", 80));
}

TEST(ProxyRules, AStarBypassesEverything) {
  EXPECT_TRUE(bypasses_proxy("a,*", "h", 80));
  EXPECT_TRUE(bypasses_proxy("*", "::1", 80));
  EXPECT_TRUE(bypasses_proxy("*:80", "h", 80));
  EXPECT_FALSE(bypasses_proxy("*:81", "h", 80));
}

TEST(ProxyRules, ANameCoversItselfAndAllBelow) {
  for (const char* rule :
       {"example.com", ".example.com", "*.example.com", "EXAMPLE.com", "example.com."}) {
    EXPECT_TRUE(bypasses_proxy(rule, "example.com", 80)) << rule;
    EXPECT_TRUE(bypasses_proxy(rule, "a.b.Example.com", 80)) << rule;
    EXPECT_TRUE(bypasses_proxy(rule, "a.example.com.", 80)) << rule;
    EXPECT_FALSE(bypasses_proxy(rule, "badexample.com", 80)) << rule;
    EXPECT_FALSE(bypasses_proxy(rule, "example.com.evil", 80)) << rule;
    EXPECT_FALSE(bypasses_proxy(rule, "com", 80)) << rule;
  }
}

TEST(ProxyRules, APortMustMatch) {
  EXPECT_TRUE(bypasses_proxy("h:443", "h", 443));
  EXPECT_FALSE(bypasses_proxy("h:443", "h", 80));
  EXPECT_TRUE(bypasses_proxy("10.0.0.1:80,h:x", "10.0.0.1", 80));
  EXPECT_TRUE(bypasses_proxy("[::1]:80", "::1", 80));
  EXPECT_FALSE(bypasses_proxy("[::1]:80", "::1", 81));
  EXPECT_FALSE(bypasses_proxy("h:x", "h", 80));
}

TEST(ProxyRules, AddressesAreComparedAsNumbers) {
  EXPECT_TRUE(bypasses_proxy("127.0.0.1", "127.0.0.1", 80));
  EXPECT_TRUE(bypasses_proxy("0:0:0:0:0:0:0:1", "::1", 80));
  EXPECT_TRUE(bypasses_proxy("[::1]", "::1", 80));
  EXPECT_FALSE(bypasses_proxy("0.0.1", "127.0.0.1", 80));  // no suffix of an address
  EXPECT_FALSE(bypasses_proxy("::1", "127.0.0.1", 80));
}

TEST(ProxyRules, ANetworkCoversItsAddresses) {
  EXPECT_TRUE(bypasses_proxy("10.0.0.0/8, 192.168.0.0/16", "192.168.3.4", 80));
  EXPECT_TRUE(bypasses_proxy("10.0.0.0/9", "10.127.0.1", 80));
  EXPECT_FALSE(bypasses_proxy("10.0.0.0/9", "10.128.0.1", 80));
  EXPECT_TRUE(bypasses_proxy("0.0.0.0/0", "1.2.3.4", 80));
  EXPECT_TRUE(bypasses_proxy("1.2.3.4/32", "1.2.3.4", 80));
  EXPECT_TRUE(bypasses_proxy("fd00::/8", "fd12::1", 80));
  EXPECT_FALSE(bypasses_proxy("0.0.0.0/0", "::1", 80));
  for (const char* rule :
       {"10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "/8", "10.0.0.0/8x", "10.0.0.0/-1"}) {
    EXPECT_FALSE(bypasses_proxy(rule, "10.0.0.1", 80)) << rule;
  }
  EXPECT_FALSE(bypasses_proxy("10.0.0.0/8", "h", 80));
}

}  // namespace
}  // namespace headrace
