#include "headrace/store/optional_headers.h"

#include <gtest/gtest.h>

#include <array>

namespace headrace {
namespace {

constexpr std::array kGroups = {
    OptionalHeaders{"x-mode", "sums of reads"},
    OptionalHeaders{"x-sum-", "sums of writes"},
    OptionalHeaders{"x-size", "sizes"},
    OptionalHeaders{"x-size", "the sizes of others"},
};
constexpr HeaderGroups kMode = 1, kSums = 2, kSize = 4, kOthersSize = 8;

TEST(OptionalHeaders, AreLeftOutAndTheOthersStay) {
  std::string lines = "A: b\r\nx-sum-crc: c\r\nx-mode: ON\r\nX-Sum-Type: d\r\nx-size: 1\r\n";
  leave_out(lines, kGroups, kSums);
  EXPECT_EQ(lines, "A: b\r\nx-mode: ON\r\nx-size: 1\r\n");
  leave_out(lines, kGroups, kMode | kSize);
  EXPECT_EQ(lines, "A: b\r\n");
}

TEST(OptionalHeaders, ARefusalMayNameSome) {
  EXPECT_EQ(named_groups("Header 'X-Size' is not implemented", kGroups), kSize | kOthersSize);
  EXPECT_EQ(named_groups("x-mode", kGroups), kMode);
  EXPECT_EQ(named_groups("x-size and x-sum-crc are not known", kGroups),
            kSize | kOthersSize | kSums);
  EXPECT_EQ(named_groups("NotImplemented", kGroups), 0);
  EXPECT_EQ(named_groups("", kGroups), 0);
}

}  // namespace
}  // namespace headrace
