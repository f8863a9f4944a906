#include "headrace/format/http_date.h"

#include <gtest/gtest.h>

#include "headrace/format/format_test_support.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using std::chrono::system_clock;

// Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110.
constexpr system_clock::time_point kThen{784'111'777s};

TEST(RetryAfter, TakesSeconds) {
  EXPECT_EQ(parse_retry_after("0", kThen), 0ms);
  EXPECT_EQ(parse_retry_after(" 120 ", kThen), 120s);
}

TEST(RetryAfter, TakesAllThreeFormsOfADate) {
  const system_clock::time_point now = kThen - 90s;
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now), 90s);
  EXPECT_EQ(parse_retry_after("Sunday, 06-Nov-94 08:49:37 GMT", now), 90s);
  EXPECT_EQ(parse_retry_after("Sun Nov  6 08:49:37 1994", now), 90s);
  EXPECT_EQ(parse_retry_after("Sun Nov 06 08:49:37 1994", now), 90s);
}

TEST(RetryAfter, ReadsTwoDigitsAsTheNearestCentury) {
  // 2026: "94" is 1994 (a past date), "27" is next year.
  const system_clock::time_point now{1'795'238'400s};
  EXPECT_EQ(parse_retry_after("Sunday, 06-Nov-94 08:49:37 GMT", now), 0ms);
  EXPECT_EQ(parse_retry_after("Friday, 01-Jan-27 00:00:00 GMT", now), 1h);
}

TEST(RetryAfter, IsNeitherNegativeNorLongerThanAnHour) {
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", kThen + 1s), 0ms);
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 9999 08:49:37 GMT", kThen), 1h);
  EXPECT_EQ(parse_retry_after("Thu, 01 Jan 0001 00:00:00 GMT", kThen), 0ms);
  EXPECT_EQ(parse_retry_after("3601", kThen), 1h);
  EXPECT_EQ(parse_retry_after("99999999999999999999999", kThen), 1h);
}

TEST(RetryAfter, CountsFractionsOfTheClock) {
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", kThen - 1500ms), 1500ms);
}

TEST(RetryAfter, IsNothingIfItCannotBeRead) {
  for (const char* value :
       {"", " ", "-1", "1.5", "soon", "Sun, 06 Nov 1994 08:49:37", "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT", "1 2"}) {
    EXPECT_EQ(parse_retry_after(value, kThen), std::nullopt) << value;
  }
}

TEST(Rfc3339, ReadsWhatTheServiceWrites) {
  EXPECT_EQ(parse_rfc3339("1994-11-06T08:49:37Z").value(), kThen);
  EXPECT_EQ(parse_rfc3339("1994-11-06T08:49:37.123Z").value(), kThen + 123ms);
  EXPECT_EQ(parse_rfc3339("1994-11-06t08:49:37.123456789123z").value(), kThen + 123'456'789ns);
  EXPECT_EQ(parse_rfc3339("1994-11-06T10:19:37+01:30").value(), kThen);
  EXPECT_EQ(parse_rfc3339("1994-11-05T23:49:37-09:00").value(), kThen);
  EXPECT_EQ(parse_rfc3339("1994-11-06T08:48:60Z").value(), kThen - 37s);
  EXPECT_EQ(parse_rfc3339("1969-12-31T23:59:59.5Z").value(), system_clock::time_point(-500ms));
}

TEST(Rfc3339, RefusesWhatIsNoTime) {
  for (const char* text :
       {"", "1994", "1994-11-06", "1994-11-06T08:49:37", "1994-11-06 08:49:37Z",
        "1994-13-06T08:49:37Z", "1994-02-29T08:49:37Z", "1994-11-06T08:49:61Z",
        "1994-11-06T08:60:37Z", "1994-11-06T24:00:00Z", "1994-11-06T08:49:37.Z",
        "1994-11-06T08:49:37Zx", "1994-11-06T08:49:37+24:00", "1994-11-06T08:49:37+0100",
        "0001-01-01T00:00:00Z", "9999-01-01T00:00:00Z"}) {
    const auto time = parse_rfc3339(text);
    ASSERT_FALSE(time.has_value()) << text;
    EXPECT_EQ(time.error().code(), Code::kInvalidArgument);
  }
}

TEST(Rfc3339, WritesWhatItReads) {
  for (const char* text : {"1994-11-06T08:49:37Z", "2026-11-21T00:00:00.120Z",
                           "1969-12-31T23:59:59.500Z", "2026-02-28T23:59:59.000001Z",
                           "1678-01-01T00:00:00.000000001Z", "2261-12-31T23:59:59.999999999Z"}) {
    EXPECT_EQ(format_rfc3339(parse_rfc3339(text).value()), text);
  }
}

}  // namespace
}  // namespace headrace
