#include "headrace/base/result.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace {
namespace {

TEST(Error, NamesObjectStatusAttemptsAndRequest) {
  const Error error = Error(Code::kNotFound, "no such object").with_url("gs://b/o");
  EXPECT_EQ(error.to_string(), "gs://b/o: no such object");
  EXPECT_EQ(Error(error).with_http_status(404).with_attempts(1).to_string(),
            "gs://b/o: no such object (HTTP 404, 1 attempt)");
  EXPECT_EQ(Error(error).with_attempts(3).with_request_id("r7").to_string(),
            "gs://b/o: no such object (3 attempts, request r7)");
  EXPECT_EQ(Error(Code::kInternal, "x").to_string(), "x");
}

TEST(Error, CopiesAreIndependent) {
  Error first(Code::kThrottled, "slow down");
  Error second = first;
  second = std::move(second).with_http_status(503).with_retry_after(std::chrono::seconds(2));
  EXPECT_EQ(first.http_status(), 0);
  EXPECT_FALSE(first.retry_after().has_value());
  EXPECT_EQ(second.retry_after(), std::chrono::milliseconds(2000));
  first = second;
  EXPECT_EQ(first.http_status(), 503);
  const Error& same = first;
  first = same;
  EXPECT_EQ(first.message(), "slow down");
}

TEST(Error, EveryCodeHasATextOfItsOwn) {
  std::set<std::string_view> texts;
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code) {
    texts.insert(to_string(static_cast<Code>(code)));
  }
  EXPECT_EQ(texts.size(), static_cast<size_t>(Code::kInternal) + 1);
}

TEST(Result, CarriesAValueOrAnError) {
  const auto half = [](int number) -> Result<int> {
    if (number % 2 != 0) return invalid_argument(number, " is odd");
    return number / 2;
  };
  EXPECT_EQ(half(4).value(), 2);
  const Result<int> odd = half(3);
  ASSERT_FALSE(odd.has_value());
  EXPECT_EQ(odd.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(odd.error().message(), "3 is odd");
}

TEST(Result, OfNothingIsAYesOrAnError) {
  const auto check = [](bool good) -> Result<void> {
    if (!good) return corrupt("bad ", 1, ' ', std::string_view("byte"));
    return {};
  };
  EXPECT_TRUE(check(true).has_value());
  EXPECT_EQ(check(false).error().code(), Code::kCorrupt);
}

TEST(Cat, JoinsTextAndNumbers) {
  EXPECT_EQ(
      cat("a", std::string("b"), std::string_view("c"), 1, uint64_t{18446744073709551615u}, -5),
      "abc118446744073709551615-5");
  EXPECT_EQ(cat(), "");
}

}  // namespace
}  // namespace headrace
