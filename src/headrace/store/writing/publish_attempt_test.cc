// Writes and removals alone, one request after another: what is sent, and what becomes of it when
// answers are lost. The service is S3, whose removals do not tell whether there was an object, and
// of which some kinds have no conditional writes.
#include "headrace/store/writing/publish_attempt.h"

#include <gmock/gmock.h>

#include <array>
#include <string>

#include "headrace/store/s3/s3_protocol.h"
#include "headrace/store/writing/attempt_test_support.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOurs = "0cc175b9c0f1b6a831c399e269772661";
constexpr const char* kOther = "92eb5ffee6ae2fec3ad71c777531578f";

std::string object_with(const std::string& etag) {
  return "Content-Length: 1\r\nETag: \"" + etag + "\"\r\n";
}

class PublishAttemptTest : public AttemptTest {
 protected:
  explicit PublishAttemptTest(ConditionalWrites conditional_writes = ConditionalWrites::kService)
      : protocol_(protocol_of({.conditional_writes = conditional_writes})) {}

  static S3Protocol protocol_of(const S3Options& options) {
    const std::string endpoint;  // AWS's own, which keeps to conditions
    return S3Protocol("bucket", S3Home::create("bucket", endpoint, options).value(), options,
                      Root(""));
  }

  WriteAttempt write(const Precondition& precondition) {
    return WriteAttempt(protocol_, {.name = "n", .precondition = precondition}, bytes_,
                        {.conditions = conditions_,
                         .sums = std::make_shared<SumLadder>(UploadSums{.known = true})});
  }

  // The next request's method, and its condition if it has one.
  static std::string next(Attempt& attempt) {
    HttpRequest request;
    attempt.build(request);
    std::string said(request.method);
    for (const char* header : {"If-Match", "If-None-Match"}) {
      const size_t at = request.header_lines.find(std::string(header) + ": ");
      if (at == std::string::npos) continue;
      const size_t end = request.header_lines.find('\r', at);
      said += " " + request.header_lines.substr(at, end - at);
    }
    return said;
  }

  static void expect_done(const Result<Verdict>& verdict) { expect(Verdict::kDone, verdict); }
  static void expect_error(const Result<Verdict>& verdict, Code code,
                           const std::string& message = "") {
    ASSERT_FALSE(verdict.has_value());
    EXPECT_EQ(verdict.error().code(), code);
    EXPECT_THAT(verdict.error().message(), HasSubstr(message));
  }

  const S3Protocol protocol_;
  const std::array<std::byte, 1> bytes_ = {std::byte{'a'}};
  WriteConditions conditions_;
  Learned removals_;
};

class WhereTheServiceLooks : public PublishAttemptTest {
 protected:
  // What is to be removed is there, and the removal is sent.
  static void look_and_remove(RemoveAttempt& attempt) {
    EXPECT_EQ(next(attempt), "HEAD");
    expect_again(answer(attempt, "200 OK", object_with(kOurs)));
    EXPECT_THAT(next(attempt), HasSubstr("DELETE"));
  }
};

TEST_F(WhereTheServiceLooks, AWriteIsOneRequestWithItsCondition) {
  WriteAttempt attempt = write({.generation = ""});
  EXPECT_EQ(next(attempt), "PUT If-None-Match: *");
  expect_done(answer(attempt, "200 OK", object_with(kOurs)));
  EXPECT_EQ(attempt.result->generation, kOurs);
}

TEST_F(WhereTheServiceLooks, AWriteWhoseAnswerWasLostIsNotSentOverAnothersObject) {
  WriteAttempt attempt = write({});
  EXPECT_EQ(next(attempt), "PUT");
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "HEAD");
  expect_again(
      answer(attempt, "200 OK", "Content-Length: 2\r\nETag: \"" + std::string(kOther) + "\"\r\n"));
  EXPECT_EQ(next(attempt), "PUT If-Match: \"" + std::string(kOther) + "\"")
      << "what was seen may be replaced, and nothing that came since";
  expect_again(answer(attempt, "412 Precondition Failed"));
  EXPECT_EQ(next(attempt), "HEAD") << "the first one may have arrived after all";
}

TEST_F(WhereTheServiceLooks, AWriteWhoseAnswerWasLostCreatesOnlyWhatIsNotThere) {
  WriteAttempt attempt = write({});
  EXPECT_EQ(next(attempt), "PUT");
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "HEAD");
  expect_again(answer(attempt, "404 Not Found"));
  EXPECT_EQ(next(attempt), "PUT If-None-Match: *");
  expect_done(answer(attempt, "200 OK", object_with(kOurs)));
}

TEST_F(WhereTheServiceLooks, AWriteWhoseAnswerWasLostIsDoneIfItsBytesAreThere) {
  WriteAttempt attempt = write({.generation = ""});
  EXPECT_EQ(next(attempt), "PUT If-None-Match: *");
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "HEAD");
  const std::string sum = Crc32c().extended(bytes_).to_base64();
  expect_done(answer(attempt, "200 OK",
                     object_with(kOurs) + "x-amz-checksum-crc32c: " + sum +
                         "\r\nx-amz-checksum-type: FULL_OBJECT\r\n"));
  EXPECT_EQ(attempt.result->generation, kOurs);
}

TEST_F(WhereTheServiceLooks, WhatCannotBeComparedAfterALostAnswerIsSaidToBeUnknown) {
  WriteAttempt attempt = write({.generation = ""});
  EXPECT_EQ(next(attempt), "PUT If-None-Match: *");
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "HEAD");
  expect_done(answer(attempt, "200 OK", object_with(kOther)));
  ASSERT_FALSE(attempt.result.has_value());
  EXPECT_EQ(attempt.result.error().code(), Code::kUnavailable);
  EXPECT_THAT(attempt.result.error().message(), HasSubstr("is unknown"));
}

class WhereHeadraceLooks : public PublishAttemptTest {
 protected:
  WhereHeadraceLooks() : PublishAttemptTest(ConditionalWrites::kLook) {}

  // What is to be replaced is there, the write is sent, its answer is lost, and the next request
  // looks again.
  static void lose_answer(WriteAttempt& attempt) {
    EXPECT_EQ(next(attempt), "HEAD");
    expect_again(answer(attempt, "200 OK", object_with(kOther)));
    EXPECT_EQ(next(attempt), "PUT");
    attempt.will_retry();
    EXPECT_EQ(next(attempt), "HEAD");
  }
};

TEST_F(WhereHeadraceLooks, AWriteLooksFirstAndCarriesNoCondition) {
  WriteAttempt attempt = write({.generation = kOther});
  EXPECT_EQ(next(attempt), "HEAD");
  expect_again(answer(attempt, "200 OK", object_with(kOther)));
  EXPECT_EQ(next(attempt), "PUT");
  expect_done(answer(attempt, "200 OK", object_with(kOurs)));
}

TEST_F(WhereHeadraceLooks, AWriteOverWhatItMustNotReplaceIsNotSent) {
  WriteAttempt creates = write({.generation = ""});
  EXPECT_EQ(next(creates), "HEAD");
  expect_error(answer(creates, "200 OK", object_with(kOther)), Code::kPreconditionFailed,
               "exists already");

  WriteAttempt replaces = write({.generation = kOurs});
  EXPECT_EQ(next(replaces), "HEAD");
  expect_error(answer(replaces, "404 Not Found"), Code::kPreconditionFailed,
               "is not in generation");
}

TEST_F(WhereHeadraceLooks, AWriteWhoseAnswerWasLostIsNotRepeatedOverAnothersObject) {
  WriteAttempt attempt = write({.generation = kOther});
  lose_answer(attempt);
  expect_error(
      answer(attempt, "200 OK", "Content-Length: 2\r\nETag: \"" + std::string(kOurs) + "\"\r\n"),
      Code::kPreconditionFailed, "is not in generation");
}

TEST_F(WhereHeadraceLooks, AWriteWhoseAnswerWasLostDoesNotCreateWhatWasToBeReplaced) {
  WriteAttempt attempt = write({.generation = kOther});
  lose_answer(attempt);
  expect_error(answer(attempt, "404 Not Found"), Code::kPreconditionFailed, "is not in generation");
}

TEST_F(WhereHeadraceLooks, AWriteThatWasThrottledLooksAgain) {
  WriteAttempt attempt = write({.generation = ""});
  EXPECT_EQ(next(attempt), "HEAD");
  expect_again(answer(attempt, "404 Not Found"));
  EXPECT_EQ(next(attempt), "PUT");
  expect_error(answer(attempt, "429 Too Many Requests"), Code::kThrottled);
  EXPECT_EQ(next(attempt), "HEAD");
  expect_error(answer(attempt, "200 OK", object_with(kOther)), Code::kPreconditionFailed,
               "exists already");
}

TEST_F(WhereTheServiceLooks, ARemovalLooksWhetherThereIsAnything) {
  RemoveAttempt attempt(protocol_, "n", {}, removals_);
  EXPECT_EQ(next(attempt), "HEAD");
  expect_error(answer(attempt, "404 Not Found"), Code::kNotFound);
}

TEST_F(WhereTheServiceLooks, ARemovalWhoseLookWasThrottledLooksAgain) {
  for (const Precondition& precondition : {Precondition(), Precondition{.generation = kOurs}}) {
    RemoveAttempt attempt(protocol_, "n", precondition, removals_);
    EXPECT_EQ(next(attempt), "HEAD");
    expect_error(answer(attempt, "429 Too Many Requests"), Code::kThrottled);
    EXPECT_EQ(next(attempt), "HEAD");
  }
}

TEST_F(WhereTheServiceLooks, ARemovalOfAGenerationLooksAgainAfterALostAnswer) {
  RemoveAttempt attempt(protocol_, "n", {.generation = kOurs}, removals_);
  look_and_remove(attempt);
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "HEAD");
  expect_error(answer(attempt, "200 OK", object_with(kOther)), Code::kPreconditionFailed,
               "is not in generation");
}

TEST_F(WhereTheServiceLooks, ARemovalWhoseAnswerWasLostIsDoneIfNothingIsThere) {
  RemoveAttempt attempt(protocol_, "n", {.generation = kOurs}, removals_);
  look_and_remove(attempt);
  attempt.will_retry();
  EXPECT_EQ(next(attempt), "HEAD");
  expect_done(answer(attempt, "404 Not Found"));
  EXPECT_TRUE(attempt.result.value());
}

TEST_F(WhereTheServiceLooks, ARemovalOfAGenerationThatWasThrottledLooksAgain) {
  RemoveAttempt attempt(protocol_, "n", {.generation = kOurs}, removals_);
  look_and_remove(attempt);
  expect_error(answer(attempt, "503 Slow Down"), Code::kUnavailable);
  EXPECT_THAT(next(attempt), HasSubstr("DELETE")) << "sent again at once";
  expect_error(answer(attempt, "429 Too Many Requests"), Code::kThrottled);
  EXPECT_EQ(next(attempt), "HEAD");
  // No answer was lost: another one has removed it.
  expect_error(answer(attempt, "404 Not Found"), Code::kNotFound);
}

}  // namespace
}  // namespace headrace
