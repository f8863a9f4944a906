#include "headrace/store/writing/condition_probe.h"
#include "headrace/store/condition_proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using Treatment = Learned::Treatment;
using std::chrono::steady_clock;

// Writes what is asked for where a test can read it: "PUT", with the condition as the only header,
// and "DELETE".
class SpokenProof final : public ConditionProof {
 public:
  void build_write(HttpRequest& request, std::string_view name, const Precondition& precondition,
                   bool with_sum) const override {
    had_sum = with_sum;
    request.method = "PUT";
    request.target = name;
    request.header_lines = !precondition.generation           ? ""
                           : precondition.generation->empty() ? "If-None-Match"
                                                              : "If-Match";
  }
  void build_remove(HttpRequest& request, std::string_view name) const override {
    request.method = "DELETE";
    request.target = name;
  }
  mutable bool had_sum = false;  // the last write
};

// What a service does with requests that carry one of the two conditions.
enum class Treats : uint8_t { kKeeps, kIgnores, kRefuses };

struct Service {
  Treats create = Treats::kKeeps, replace = Treats::kKeeps;
  bool is_there = false;

  Result<void> answer(const HttpRequest& request) {
    if (request.method == "DELETE") {
      is_there = false;
      return {};
    }
    const bool creates = request.header_lines == "If-None-Match";
    if (request.header_lines.empty()) {
      is_there = true;
      return {};
    }
    const Treats treats = creates ? create : replace;
    if (treats == Treats::kRefuses) return fail(Code::kInvalidArgument, "NotImplemented");
    if (treats == Treats::kKeeps && creates && is_there) return fail(Code::kPreconditionFailed);
    if (treats == Treats::kKeeps && !creates) {
      return fail(is_there ? Code::kPreconditionFailed : Code::kNotFound);
    }
    is_there = true;
    return {};
  }
};

class ConditionProbeTest : public ::testing::Test {
 protected:
  // Asks until there is nothing more to ask.
  void run(Service& service) {
    HttpRequest request;
    while (probe_.build(request)) {
      EXPECT_EQ(request.target, "headrace-uploads/7/conditions");
      methods_.emplace_back(request.method);
      if (Result<void> answer = service.answer(request); answer) {
        probe_.accepted();
      } else {
        EXPECT_TRUE(probe_.refused(answer.error()).has_value());
      }
      request.clear();
    }
  }
  Treatment create() const { return found_.create.at(steady_clock::now()); }
  Treatment replace() const { return found_.replace.at(steady_clock::now()); }

  const SpokenProof proof_;
  WriteConditions found_;
  ConditionProbe probe_{proof_, found_, "headrace-uploads/7/conditions"};
  std::vector<std::string> methods_;
};

TEST_F(ConditionProbeTest, AServiceThatKeepsThemIsAskedFourTimesAndNothingIsLeftThere) {
  Service service;
  run(service);
  EXPECT_EQ(create(), Treatment::kTaken);
  EXPECT_EQ(replace(), Treatment::kTaken);
  EXPECT_THAT(methods_, ElementsAre("PUT", "PUT", "PUT", "DELETE"));
  EXPECT_FALSE(service.is_there);
}

TEST_F(ConditionProbeTest, EachConditionIsFoundOutByItself) {
  const std::map<Treats, Treatment> meaning = {{Treats::kKeeps, Treatment::kTaken},
                                               {Treats::kIgnores, Treatment::kIgnored},
                                               {Treats::kRefuses, Treatment::kRefused}};
  for (const auto& [create, create_kept] : meaning) {
    for (const auto& [replace, replace_kept] : meaning) {
      WriteConditions found;
      ConditionProbe probe(proof_, found, "n");
      Service service{.create = create, .replace = replace};
      HttpRequest request;
      while (probe.build(request)) {
        if (Result<void> answer = service.answer(request); answer) {
          probe.accepted();
        } else {
          EXPECT_TRUE(probe.refused(answer.error()).has_value());
        }
        request.clear();
      }
      EXPECT_EQ(found.create.at(steady_clock::now()), create_kept);
      EXPECT_EQ(found.replace.at(steady_clock::now()), replace_kept);
      EXPECT_FALSE(service.is_there) << "it removes what it made";
    }
  }
}

TEST_F(ConditionProbeTest, ARequestWhoseAnswerWasLostIsSentAgain) {
  HttpRequest request;
  Service service;
  ASSERT_TRUE(probe_.build(request));
  ASSERT_TRUE(service.answer(request).has_value());
  EXPECT_FALSE(probe_.refused(Error(Code::kUnavailable, "reset")).has_value()) << "sent again";
  run(service);
  EXPECT_EQ(create(), Treatment::kTaken);
  EXPECT_EQ(replace(), Treatment::kTaken);
  EXPECT_FALSE(service.is_there);
}

TEST_F(ConditionProbeTest, WhoMayNotWriteThereFindsNothingOut) {
  HttpRequest request;
  ASSERT_TRUE(probe_.build(request));
  EXPECT_EQ(request.header_lines, "");
  EXPECT_TRUE(probe_.refused(Error(Code::kPermissionDenied, "no")).has_value());
  EXPECT_FALSE(probe_.build(request));
  EXPECT_EQ(create(), Treatment::kUnknown);
  EXPECT_EQ(replace(), Treatment::kUnknown);
}

TEST_F(ConditionProbeTest, AWriteThatIsRefusedForAnotherReasonEndsTheWriteItWasFor) {
  for (const Code code : {Code::kNotFound, Code::kPreconditionFailed, Code::kInternal}) {
    ConditionProbe probe(proof_, found_, "n");
    HttpRequest request;
    ASSERT_TRUE(probe.build(request));
    EXPECT_EQ(probe.refused(Error(code, "no")).error().code(), code);
    EXPECT_EQ(create(), Treatment::kUnknown);
  }
}

TEST_F(ConditionProbeTest, AWriteThatIsRefusedWithASumIsTriedWithoutOnce) {
  HttpRequest request;
  ASSERT_TRUE(probe_.build(request));
  EXPECT_TRUE(proof_.had_sum);
  EXPECT_TRUE(probe_.refused(Error(Code::kInvalidArgument, "Content-MD5")).has_value());
  ASSERT_TRUE(probe_.build(request));
  EXPECT_FALSE(proof_.had_sum);
  EXPECT_EQ(probe_.refused(Error(Code::kInvalidArgument, "x")).error().code(),
            Code::kInvalidArgument);
  Service service;
  run(service);
  EXPECT_FALSE(proof_.had_sum);
  EXPECT_EQ(create(), Treatment::kTaken);
}

TEST_F(ConditionProbeTest, A400IsAskedTwiceAndA501IsSure) {
  for (const int status : {400, 501}) {
    WriteConditions found;
    ConditionProbe probe(proof_, found, "n");
    HttpRequest request;
    ASSERT_TRUE(probe.build(request));
    probe.accepted();
    const int times = status == 400 ? 2 : 1;
    for (int i = 0; i < times; ++i) {
      EXPECT_EQ(found.create.at(steady_clock::now()), Treatment::kUnknown);
      request.clear();
      ASSERT_TRUE(probe.build(request));
      EXPECT_EQ(request.header_lines, "If-None-Match");
      EXPECT_TRUE(probe.refused(Error(Code::kInvalidArgument, "?").with_http_status(status)));
    }
    EXPECT_EQ(found.create.at(steady_clock::now()), Treatment::kRefused);
  }
}

TEST_F(ConditionProbeTest, RightsThatOneConditionNeedsSayNothingAboutTheOther) {
  HttpRequest request;
  Service service;
  for (const bool may_be_sent : {true, true, false}) {
    request.clear();
    ASSERT_TRUE(probe_.build(request));
    const Result<void> answer =
        may_be_sent ? service.answer(request) : fail(Code::kPermissionDenied, "no s3:GetObject");
    if (answer) {
      probe_.accepted();
    } else {
      EXPECT_TRUE(probe_.refused(answer.error()).has_value());
    }
  }
  EXPECT_EQ(create(), Treatment::kTaken);
  EXPECT_EQ(replace(), Treatment::kUnknown);
  request.clear();
  ASSERT_TRUE(probe_.build(request));
  EXPECT_EQ(request.method, "DELETE");
}

TEST_F(ConditionProbeTest, AnAnswerThatIsAboutSomethingElseEndsTheWriteAndFindsNothingOut) {
  HttpRequest request;
  ASSERT_TRUE(probe_.build(request));
  probe_.accepted();
  request.clear();
  ASSERT_TRUE(probe_.build(request));
  EXPECT_EQ(request.header_lines, "If-None-Match");
  for (const Code code : {Code::kNotFound, Code::kThrottled, Code::kUnavailable, Code::kInternal}) {
    const Result<void> passed_on = probe_.refused(Error(code, "because"));
    ASSERT_FALSE(passed_on.has_value());
    EXPECT_EQ(passed_on.error().code(), code);
  }
  EXPECT_EQ(create(), Treatment::kUnknown);
  EXPECT_TRUE(probe_.build(request));
}

TEST_F(ConditionProbeTest, AnObjectThatCannotBeRemovedIsLeftToThoseWhoCleanUp) {
  HttpRequest request;
  Service service;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(probe_.build(request));
    if (Result<void> answer = service.answer(request); answer) {
      probe_.accepted();
    } else {
      ASSERT_TRUE(probe_.refused(answer.error()).has_value());
    }
    request.clear();
  }
  ASSERT_TRUE(probe_.build(request));
  EXPECT_EQ(request.method, "DELETE");
  EXPECT_TRUE(probe_.refused(Error(Code::kPermissionDenied, "no")).has_value());
  EXPECT_FALSE(probe_.build(request));
}

}  // namespace
}  // namespace headrace
