// One request after another of a rename, and what becomes of it when answers are lost.
#include "headrace/store/writing/rename_attempt.h"

#include <gmock/gmock.h>

#include <string>

#include "headrace/format/ais_checksum.h"
#include "headrace/store/ais/ais_protocol.h"
#include "headrace/store/writing/attempt_test_support.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOurs = "0102030405060708";
constexpr const char* kOther = "1112131415161718";

std::string object_with(const std::string& sum, const std::string& size = "10") {
  return "Content-Length: " + size +
         "\r\nAis-Version: 1\r\nAis-Checksum-Type: xxhash\r\nAis-Checksum-Value: " + sum + "\r\n";
}

class RenameAttemptTest : public AttemptTest {
 protected:
  RenameAttempt rename(Precondition precondition = {}) const {
    ObjectInfo source;
    source.name = "old";
    source.size_bytes = 10;
    source.generation = std::string("1-") + kOurs;
    source.checksum = ais_checksum("xxhash", kOurs);
    return RenameAttempt(
        protocol_, {.source_name = "old", .name = "new", .precondition = std::move(precondition)},
        std::move(source));
  }
  // The next request's method, and the name of the object that it is about.
  static std::string next(Attempt& attempt) {
    HttpRequest request;
    attempt.build(request);
    const size_t begin = request.target.rfind('/', request.target.find('?')) + 1;
    return std::string(request.method) + " " +
           std::string(request.target.substr(begin, request.target.find('?') - begin));
  }
  static void expect_done(const RenameAttempt& attempt, const Result<Verdict>& verdict) {
    expect(Verdict::kDone, verdict);
    ASSERT_TRUE(attempt.result.has_value());
    EXPECT_EQ(attempt.result->name, "new");
    EXPECT_EQ(attempt.result->generation, std::string("1-") + kOurs);
  }
  static void expect_error(const Attempt& attempt, const Result<Verdict>& verdict, Code code,
                           const std::string& name) {
    ASSERT_FALSE(verdict.has_value());
    EXPECT_EQ(verdict.error().code(), code) << verdict.error().message();
    EXPECT_EQ(attempt.url(), "ais://bucket/" + name);
  }

  const AisProtocol protocol_{Url{.scheme = Scheme::kAis, .bucket = "bucket"}, /*tls=*/false,
                              AisOptions(), Root("")};
};

TEST_F(RenameAttemptTest, ItIsOneRequestAndALookAtBothNames) {
  RenameAttempt attempt = rename();
  EXPECT_EQ(next(attempt), "POST old");
  expect_again(answer(attempt, "200 OK"));
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "200 OK", object_with(kOurs)));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_done(attempt, answer(attempt, "404 Not Found"));
}

TEST_F(RenameAttemptTest, ASuccessThatLeavesTheSourceIsAnErrorWhateverIsAtTheTarget) {
  for (const std::string& there : {object_with(kOurs), std::string("Content-Length: 10\r\n"
                                                                   "Ais-Version: 1\r\n")}) {
    RenameAttempt attempt = rename();
    EXPECT_EQ(next(attempt), "POST old");
    expect_again(answer(attempt, "200 OK"));
    EXPECT_EQ(next(attempt), "HEAD new");
    expect_again(answer(attempt, "200 OK", there));
    EXPECT_EQ(next(attempt), "HEAD old");
    const Result<Verdict> verdict = answer(attempt, "200 OK", object_with(kOurs));
    ASSERT_TRUE(verdict.has_value()) << "not to be tried again";
    EXPECT_EQ(*verdict, Verdict::kDone);
    ASSERT_FALSE(attempt.result.has_value());
    EXPECT_EQ(attempt.result.error().code(), Code::kUnavailable);
    EXPECT_EQ(attempt.result.error().url(), "ais://bucket/old");
    EXPECT_THAT(attempt.result.error().message(), HasSubstr("it is still there"));
  }
}

TEST_F(RenameAttemptTest, SuccessesThatMoveNothingEnd) {
  RenameAttempt attempt = rename();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(next(attempt), "POST old");
    expect_again(answer(attempt, "200 OK"));
    EXPECT_EQ(next(attempt), "HEAD new");
    const Result<Verdict> verdict = answer(attempt, "404 Not Found");
    if (i == 2) {
      ASSERT_TRUE(verdict.has_value());
      EXPECT_EQ(*verdict, Verdict::kDone);
      break;
    }
    expect_again(verdict);
    EXPECT_EQ(next(attempt), "HEAD old");
    expect_again(answer(attempt, "200 OK", object_with(kOurs)));
  }
  ASSERT_FALSE(attempt.result.has_value());
  EXPECT_EQ(attempt.result.error().code(), Code::kUnavailable);
  EXPECT_THAT(attempt.result.error().message(), HasSubstr("said 3 times"));
}

TEST_F(RenameAttemptTest, ATargetThatKeepsWhatDescribedItIsDescribedLikeTheSource) {
  RenameAttempt attempt = rename();
  EXPECT_EQ(next(attempt), "POST old");
  expect_again(answer(attempt, "200 OK"));
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "200 OK",
                      object_with(kOurs) + "Ais-Custom-Md: headrace-content-encoding=gzip\r\n"));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_again(answer(attempt, "404 Not Found"));
  EXPECT_EQ(next(attempt), "PATCH new");
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "PATCH new");
  expect_done(attempt, answer(attempt, "200 OK"));
  EXPECT_EQ(attempt.result->content_encoding, "");
}

TEST_F(RenameAttemptTest, AfterALostAnswerATargetThatIsMissingForAMomentIsLookedAtAgain) {
  RenameAttempt attempt = rename();
  EXPECT_EQ(next(attempt), "POST old");
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "404 Not Found"));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_again(answer(attempt, "404 Not Found"));
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "200 OK", object_with(kOurs)));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_done(attempt, answer(attempt, "404 Not Found"));
}

TEST_F(RenameAttemptTest, TheTargetIsLookedAtBeforeIfThereIsACondition) {
  RenameAttempt attempt = rename({.generation = ""});
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_error(attempt, answer(attempt, "200 OK", object_with(kOther)), Code::kPreconditionFailed,
               "new");
}

TEST_F(RenameAttemptTest, AfterALostAnswerItIsDoneIfTheObjectIsThereAndTheSourceGone) {
  RenameAttempt attempt = rename();
  EXPECT_EQ(next(attempt), "POST old");
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "200 OK", object_with(kOurs)));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_done(attempt, answer(attempt, "404 Not Found"));
}

TEST_F(RenameAttemptTest, AfterALostAnswerTheGenerationThatWasReplacedMayBeThereAgain) {
  RenameAttempt attempt = rename({.generation = std::string("1-") + kOurs});
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "200 OK", object_with(kOurs)));
  EXPECT_EQ(next(attempt), "POST old");
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "200 OK", object_with(kOurs)));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_done(attempt, answer(attempt, "404 Not Found"));
}

TEST_F(RenameAttemptTest, AfterALostAnswerItIsDoneIfAnotherObjectHasComeToTheSource) {
  RenameAttempt attempt = rename();
  EXPECT_EQ(next(attempt), "POST old");
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "200 OK", object_with(kOurs)));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_done(attempt, answer(attempt, "200 OK", object_with(kOther)));
}

TEST_F(RenameAttemptTest, WhereEqualBytesWereBeforeALostRequestIsRepeated) {
  RenameAttempt attempt = rename();
  EXPECT_EQ(next(attempt), "POST old");
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "200 OK", object_with(kOurs)));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_again(answer(attempt, "200 OK", object_with(kOurs)));
  EXPECT_EQ(next(attempt), "POST old");
  expect_again(answer(attempt, "200 OK"));
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "200 OK", object_with(kOurs)));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_done(attempt, answer(attempt, "404 Not Found"));
}

TEST_F(RenameAttemptTest, ARepeatedRequestThatFindsNothingIsDoneIfTheFirstOneHasArrived) {
  RenameAttempt attempt = rename();
  EXPECT_EQ(next(attempt), "POST old");
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "404 Not Found"));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_again(answer(attempt, "200 OK", object_with(kOurs)));
  EXPECT_EQ(next(attempt), "POST old");
  expect_again(answer(attempt, "404 Not Found"));
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "200 OK", object_with(kOurs)));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_done(attempt, answer(attempt, "404 Not Found"));
}

TEST_F(RenameAttemptTest, ARepetitionKeepsToTheGenerationThatWasSeen) {
  RenameAttempt attempt = rename();
  EXPECT_EQ(next(attempt), "POST old");
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "404 Not Found"));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_again(answer(attempt, "200 OK", object_with(kOther)));
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "404 Not Found"));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_error(attempt, answer(attempt, "200 OK", object_with(kOther)), Code::kPreconditionFailed,
               "old");
}

TEST_F(RenameAttemptTest, ASuccessThatHasMovedNothingEndsWithTheSource) {
  RenameAttempt attempt = rename();
  EXPECT_EQ(next(attempt), "POST old");
  expect_again(answer(attempt, "200 OK"));
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "404 Not Found"));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_again(answer(attempt, "404 Not Found"));
  EXPECT_EQ(next(attempt), "HEAD new");
  expect_again(answer(attempt, "404 Not Found"));
  EXPECT_EQ(next(attempt), "HEAD old");
  expect_error(attempt, answer(attempt, "404 Not Found"), Code::kNotFound, "old");
}

TEST_F(RenameAttemptTest, OtherBytesAtTheTargetAreAnError) {
  RenameAttempt attempt = rename();
  EXPECT_EQ(next(attempt), "POST old");
  expect_again(answer(attempt, "200 OK"));
  EXPECT_EQ(next(attempt), "HEAD new");
  const Result<Verdict> verdict = answer(attempt, "200 OK", object_with(kOurs, "11"));
  expect_error(attempt, verdict, Code::kCorrupt, "new");
  EXPECT_THAT(verdict.error().message(), HasSubstr("11 bytes"));
}

TEST_F(RenameAttemptTest, ASourceThatVanishesBeforeTheRequestIsNotFound) {
  RenameAttempt attempt = rename();
  EXPECT_EQ(next(attempt), "POST old");
  expect_error(attempt, answer(attempt, "404 Not Found"), Code::kNotFound, "old");
}

}  // namespace
}  // namespace headrace
