#include "headrace/checkpoint/huge_pages.h"

#include <vector>

#include <gtest/gtest.h>

#include "headrace/base/units.h"

namespace headrace {
namespace {

TEST(HugePages, WhatIsInTheMemoryStays) {
  std::vector<std::byte> bytes(9 * kMiB, std::byte{7});
  const std::span all(bytes);
  prefer_huge_pages({all, all.subspan(1), all.subspan(3 * kMiB, 10)});
  prefer_huge_pages({all.first(3 * kMiB), all.subspan(3 * kMiB + 100)});
  EXPECT_EQ(bytes, std::vector<std::byte>(9 * kMiB, std::byte{7}));
}

TEST(HugePages, TooLittleForOnePageIsLeftAlone) {
  std::vector<std::byte> bytes(100);
  prefer_huge_pages({std::span(bytes), {}});
  prefer_huge_pages({});
  EXPECT_EQ(bytes, std::vector<std::byte>(100));
}

TEST(HugePages, FreeOnesAreCountedFromTheSystemsText) {
  EXPECT_EQ(free_huge_page_bytes(
                "Node 0, zone      DMA      0      0      0      0      0      0      0      0  "
                "    1      1      3 \n"
                "Node 0, zone    DMA32   2077   1089    641    351    236    165    118     95  "
                "   76     54    644 \n"
                "Node 0, zone   Normal  59681  62600  73114  47214  17618   4508   1965    721  "
                "  189    221    129 \n"),
            (221 * 2 + 129 * 4) * kMiB);
  EXPECT_EQ(free_huge_page_bytes(""), 0u);
  EXPECT_EQ(free_huge_page_bytes("something else\n"), 0u);
}

}  // namespace
}  // namespace headrace
