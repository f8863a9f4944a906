#include "headrace/format/http_range.h"

#include <gtest/gtest.h>

#include "headrace/format/format_test_support.h"

namespace headrace {
namespace {

TEST(HttpRange, IsInclusiveInHttpOnly) {
  EXPECT_EQ(format_range({0, 10}), "bytes=0-9");
  EXPECT_EQ(format_range({5, 6}), "bytes=5-5");
  EXPECT_EQ(format_range({UINT64_MAX - 2, UINT64_MAX - 1}),
            "bytes=18446744073709551613-18446744073709551613");
}

TEST(HttpRange, IsOpenWithoutAnEnd) { EXPECT_EQ(format_range({10, UINT64_MAX}), "bytes=10-"); }

TEST(HttpRange, AppendsToWhatIsThere) {
  std::string out = "Range: ";
  append_range(out, {1, 3});
  EXPECT_EQ(out, "Range: bytes=1-2");
}

TEST(ContentRange, SaysWhatCameAndOfHowMuch) {
  const ContentRange range = parse_content_range("bytes 5-9/100").value();
  EXPECT_EQ(range.range, (ByteRange{5, 10}));
  EXPECT_EQ(range.total_bytes, 100u);
  EXPECT_FALSE(range.unsatisfied);
  EXPECT_EQ(parse_content_range("Bytes 0-99/100").value().range, (ByteRange{0, 100}));
}

TEST(ContentRange, MayNotKnowTheTotal) {
  const ContentRange range = parse_content_range("bytes 5-9/*").value();
  EXPECT_EQ(range.range, (ByteRange{5, 10}));
  EXPECT_EQ(range.total_bytes, std::nullopt);
}

TEST(ContentRange, SaysThatNothingWasInRange) {
  const ContentRange range = parse_content_range("bytes */100").value();
  EXPECT_TRUE(range.unsatisfied);
  EXPECT_EQ(range.total_bytes, 100u);
  EXPECT_EQ(range.range, ByteRange{});
}

TEST(ContentRange, OfAnObjectWithoutBytesIsEmpty) {
  for (const char* value : {"bytes 0--1/0", "bytes 0-0/0", "bytes 0-/0"}) {
    const Result<ContentRange> range = parse_content_range(value);
    ASSERT_TRUE(range.has_value()) << value;
    EXPECT_EQ(range->range, ByteRange{});
    EXPECT_EQ(range->total_bytes, 0u);
    EXPECT_FALSE(range->unsatisfied);
  }
  EXPECT_FALSE(parse_content_range("bytes 1-0/0").has_value());
}

TEST(ContentRange, RefusesEverythingElse) {
  for (const char* value :
       {"", "bytes", "bytes ", "bytes=0-9/10", "items 0-9/10", "bytes 0-9", "bytes 9-0/10",
        "bytes 5-4/10", "bytes 0-10/10", "bytes 0-/10", "bytes -9/10", "bytes */*", "bytes 0-9/",
        "bytes +0-9/10", "bytes 0 - 9/10", "bytes 0-9/10 ", "bytes 0-18446744073709551615/*",
        "bytes 0-99999999999999999999/*", "bytes 0-9/18446744073709551615"}) {
    const Result<ContentRange> range = parse_content_range(value);
    ASSERT_FALSE(range.has_value()) << value;
    EXPECT_EQ(range.error().code(), Code::kUnavailable) << value;
  }
}

}  // namespace
}  // namespace headrace
