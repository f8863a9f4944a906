#include "headrace/checkpoint/huge_pages.h"

#include <vector>

#include <gtest/gtest.h>

#include "headrace/base/units.h"

namespace headrace {
namespace {

TEST(HugePages, WhatIsInTheMemoryStays) {
  std::vector<std::byte> bytes(9 * kMiB, std::byte{7});
  for (const size_t skipped : {size_t{0}, size_t{1}, size_t{3 * kMiB}}) {
    prefer_huge_pages(std::span(bytes).subspan(skipped));
  }
  EXPECT_EQ(bytes, std::vector<std::byte>(9 * kMiB, std::byte{7}));
}

TEST(HugePages, TooLittleForOnePageIsLeftAlone) {
  std::vector<std::byte> bytes(100);
  prefer_huge_pages(bytes);
  prefer_huge_pages({});
  EXPECT_EQ(bytes, std::vector<std::byte>(100));
}

}  // namespace
}  // namespace headrace
