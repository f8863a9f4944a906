#include "headrace/store/transfer/optional_headers.h"

#include <gtest/gtest.h>

#include <array>

namespace headrace {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::array kGroups = {
    OptionalHeaders{"x-sum-mode", "sums of reads"},
    OptionalHeaders{"x-sum-", "sums of writes"},
    OptionalHeaders{"x-size", "sizes"},
};
constexpr HeaderGroups kMode = 1, kSums = 2, kSize = 4;

TEST(OptionalHeaders, AreFoundByTheirNames) {
  EXPECT_EQ(groups_in("", kGroups), 0);
  EXPECT_EQ(groups_in("Range: bytes=0-9\r\nX-Other: x-sum-a\r\n", kGroups), 0);
  EXPECT_EQ(groups_in("A: b\r\nX-Sum-CRC: c\r\n", kGroups), kSums);
  EXPECT_EQ(groups_in("x-sum-mode: ON\r\nx-size: 1\r\n", kGroups), kMode | kSize);
}

TEST(OptionalHeaders, AreLeftOutAndTheOthersStay) {
  std::string lines = "A: b\r\nx-sum-crc: c\r\nx-sum-mode: ON\r\nX-Sum-Type: d\r\nx-size: 1\r\n";
  leave_out(lines, kGroups, kSums);
  EXPECT_EQ(lines, "A: b\r\nx-sum-mode: ON\r\nx-size: 1\r\n");
  leave_out(lines, kGroups, kMode | kSize);
  EXPECT_EQ(lines, "A: b\r\n");
}

TEST(OptionalHeaders, ARefusalMayNameOne) {
  EXPECT_EQ(named_group("Header 'X-Size' is not implemented", kGroups), kSize);
  EXPECT_EQ(named_group("x-sum-mode", kGroups), kMode);
  EXPECT_EQ(named_group("NotImplemented", kGroups), 0);
  EXPECT_EQ(named_group("", kGroups), 0);
}

TEST(LearnedHeaders, ARefusalIsForgottenAfterAWhile) {
  LearnedHeaders learned;
  const LearnedHeaders::TimePoint begin{seconds(1000)};
  EXPECT_EQ(learned.refused(begin), 0);
  learned.note_refused(kSums | kSize, begin);
  EXPECT_EQ(learned.refused(begin + minutes(9)), kSums | kSize);
  EXPECT_EQ(learned.refused(begin + minutes(10)), 0);
  learned.note_refused(kMode, begin + minutes(10));
  EXPECT_EQ(learned.refused(begin + minutes(10)), kMode);
}

TEST(LearnedHeaders, WhatWasTakenIsRemembered) {
  LearnedHeaders learned;
  learned.note_taken(kMode);
  learned.note_taken(kSize);
  EXPECT_EQ(learned.taken(), kMode | kSize);
}

}  // namespace
}  // namespace headrace
