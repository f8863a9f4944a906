// Tests of an Attempt alone: each answer is told as text.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "headrace/store/transfer/attempt.h"

namespace headrace {

class AttemptTest : public ::testing::Test {
 protected:
  using Verdict = Attempt::Verdict;

  // Gives the answer to the latest request: its status line's end, and its header lines.
  static Result<Verdict> answer(Attempt& attempt, const std::string& status,
                                const std::string& headers = "") {
    ResponseHead head;
    const std::string text = "HTTP/1.1 " + status + "\r\n" + headers + "\r\n";
    EXPECT_TRUE(parse_response_head(text, head));
    EXPECT_TRUE(attempt.on_head(head).has_value());
    return attempt.end();
  }

  static void expect(Verdict expected, const Result<Verdict>& verdict) {
    ASSERT_TRUE(verdict.has_value()) << verdict.error().message();
    EXPECT_EQ(*verdict, expected);
  }
  static void expect_again(const Result<Verdict>& verdict) { expect(Verdict::kAgain, verdict); }
};

}  // namespace headrace
