#include "headrace/store/learned.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using Treatment = Learned::Treatment;

constexpr Learned::TimePoint kBegin{seconds(1000)};

TEST(Learned, NothingIsKnownBeforeItWasAsked) {
  EXPECT_EQ(Learned().at(kBegin), Treatment::kUnknown);
  EXPECT_EQ(Learned().at(Learned::TimePoint()), Treatment::kUnknown);
}

TEST(Learned, WhatIsTakenIsNotForgotten) {
  Learned learned;
  learned.note(Treatment::kTaken, kBegin);
  EXPECT_EQ(learned.at(kBegin), Treatment::kTaken);
  EXPECT_EQ(learned.at(kBegin + hours(24 * 365)), Treatment::kTaken);
}

TEST(Learned, WhatIsRefusedOrIgnoredIsTriedAgainAfterAWhile) {
  for (const Treatment answer : {Treatment::kRefused, Treatment::kIgnored}) {
    Learned learned;
    learned.note(answer, kBegin);
    EXPECT_EQ(learned.at(kBegin + minutes(10) - nanoseconds(1)), answer);
    EXPECT_EQ(learned.at(kBegin + minutes(10)), Treatment::kUnknown);
    learned.note(answer, kBegin + minutes(10));
    EXPECT_EQ(learned.at(kBegin + minutes(19)), answer);
  }
}

TEST(Learned, TheLastAnswerCounts) {
  Learned learned;
  learned.note(Treatment::kTaken, kBegin);
  learned.note(Treatment::kRefused, kBegin);
  EXPECT_EQ(learned.at(kBegin), Treatment::kRefused);
  learned.note(Treatment::kTaken, kBegin);
  EXPECT_EQ(learned.at(kBegin + minutes(10)), Treatment::kTaken);
}

TEST(Learned, AnswersLastAsLongOnAMachineThatHasRunForYears) {
  Learned learned;
  const Learned::TimePoint late = kBegin + hours(24 * 365 * 30);
  learned.note(Treatment::kRefused, late);
  EXPECT_EQ(learned.at(late + minutes(9)), Treatment::kRefused);
  EXPECT_EQ(learned.at(late + minutes(10)), Treatment::kUnknown);
}

}  // namespace
}  // namespace headrace
