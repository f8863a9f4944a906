#include "headrace/format/ais_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::string node(std::string_view id, std::string_view url, uint64_t flags = 0,
                 std::string_view more = "") {
  return cat("{\"public_net\":{\"node_ip_addr\":\"h\",\"daemon_port\":\"1\",\"direct_url\":\"", url,
             "\"},\"intra_data_net\":{\"direct_url\":\"http://127.0.0.2:1\"},\"daemon_type\":\"x\","
             "\"daemon_id\":\"",
             id, "\",\"flags\":", flags, more, "}");
}

std::string map_of(std::string_view proxies, std::string_view targets) {
  return cat("{\"ext\":null,\"pmap\":", proxies, ",\"proxy_si\":", node("p1", "http://h:1"),
             ",\"tmap\":", targets, ",\"uuid\":\"u1\",\"creation_time\":\"x\",\"version\":\"9\"}");
}

const std::string kProxies = cat("{\"p1\":", node("p1", "http://h:1", 2), "}");

TEST(AisMap, HasNodesInTheOrderOfTheirIds) {
  // `id_digest`, which newer servers add, is ignored.
  const std::string targets =
      cat("{\"t2\":", node("t2", "https://[::1]:8082", 4),
          ",\"t1\":", node("t1", "http://10.0.0.1:8081", 0, ",\"id_digest\":12345678901234567890"),
          "}");
  const Result<AisMap> map = parse_ais_map(map_of(kProxies, targets));
  ASSERT_TRUE(map.has_value()) << map.error().message();
  EXPECT_EQ(map->version, 9u);
  EXPECT_EQ(map->uuid, "u1");
  EXPECT_EQ(map->primary_id, "p1");
  ASSERT_EQ(map->proxies.size(), 1u);
  EXPECT_FALSE(map->proxies[0].is_leaving());
  ASSERT_EQ(map->targets.size(), 2u);
  EXPECT_EQ(map->targets[0],
            (AisNode{.id = "t1",
                     .endpoint = {.tls = false, .host = "10.0.0.1", .port = 8081},
                     .other_endpoints = {{.tls = false, .host = "127.0.0.2", .port = 1}}}));
  EXPECT_EQ(map->targets[1].endpoint, (Endpoint{.tls = true, .host = "::1", .port = 8082}));
  EXPECT_TRUE(map->targets[1].is_leaving());
}

TEST(AisMap, ANodeHasAddressesInOtherNetworks) {
  const std::string more =
      R"(,"intra_control_net":{"direct_url":"http://h:1"},"pub_extra":[7,{},{"direct_url":"x y"},)"
      R"({"direct_url":"http://10.0.0.2:1"},{"direct_url":"http://127.0.0.2:1"}])";
  const std::string targets = cat("{\"t1\":", node("t1", "http://h:1", 0, more), "}");
  const Result<AisMap> map = parse_ais_map(map_of(kProxies, targets));
  ASSERT_TRUE(map.has_value()) << map.error().message();
  EXPECT_THAT(map->targets[0].other_endpoints,
              ::testing::ElementsAre(Endpoint{.tls = false, .host = "127.0.0.2", .port = 1},
                                     Endpoint{.tls = false, .host = "10.0.0.2", .port = 1}));
}

TEST(AisMap, MaintenanceAndDecommissionAreLeaving) {
  for (const uint64_t flags : {0u, 1u, 2u, 3u, 16u})
    EXPECT_FALSE(AisNode{.flags = flags}.is_leaving());
  for (const uint64_t flags : {4u, 8u, 12u, 20u}) EXPECT_TRUE(AisNode{.flags = flags}.is_leaving());
}

TEST(AisMap, MayHaveNoTargets) {
  for (const char* targets : {"{}", "null"}) {
    const Result<AisMap> map = parse_ais_map(map_of(kProxies, targets));
    ASSERT_TRUE(map.has_value()) << map.error().message();
    EXPECT_TRUE(map->targets.empty());
  }
}

TEST(AisMap, WhatIsMissingOrMalformedIsNamed) {
  const std::string good = map_of(kProxies, "{}");
  for (const auto& [json, what] : {
           std::pair(good.substr(0, good.size() - 1), "malformed JSON"),
           std::pair(std::string("[]"), "not an object"),
           std::pair(std::string("{}"), "'proxy_si'"),
           std::pair(map_of("null", "{}"), "'pmap'"),
           std::pair(map_of("{}", "{}"), "without proxies"),
           std::pair(map_of(kProxies, "[]"), "'tmap'"),
           std::pair(map_of(kProxies, "{\"t1\":7}"), "not an object"),
           std::pair(map_of(kProxies, cat("{\"t2\":", node("t1", "http://h:1"), "}")), "two names"),
           std::pair(map_of(kProxies, cat("{\"t1\":", node("t1", "http://h:1"),
                                          ",\"t1\":", node("t1", "http://h:2"), "}")),
                     "listed twice"),
           std::pair(map_of(kProxies, cat("{\"\":", node("", "http://h:1"), "}")), "'daemon_id'"),
           std::pair(map_of(kProxies, cat("{\"t1\":", node("t1", ""), "}")), "a node at ''"),
           std::pair(map_of(kProxies, cat("{\"t1\":", node("t1", "http://h/base"), "}")),
                     "a node at 'http://h/base'"),
           std::pair(std::string(R"({"proxy_si":{},"pmap":{},"version":"1"})"), "primary proxy"),
           std::pair(std::string(R"({"proxy_si":{},"pmap":{},"version":"x"})"), "'version'"),
       }) {
    const Result<AisMap> map = parse_ais_map(json);
    ASSERT_FALSE(map.has_value()) << json;
    EXPECT_EQ(map.error().code(), Code::kCorrupt);
    EXPECT_THAT(map.error().message(), HasSubstr(what)) << json;
  }
}

}  // namespace
}  // namespace headrace
