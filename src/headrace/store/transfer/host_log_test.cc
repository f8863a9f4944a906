#include "headrace/store/transfer/host_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class HostLogTest : public ::testing::Test {
 protected:
  // The texts of this level that came since.
  std::vector<std::string> told(LogLevel level) {
    std::vector<std::string> texts;
    for (LogRecord& record : log_->take()) {
      if (record.level == level) texts.push_back(std::move(record.text));
    }
    return texts;
  }
  const std::shared_ptr<Log> log_ = std::make_shared<Log>(LogLevel::kDebug);
  HostLog host_{log_, "http://store:80"};
  const HostLog::TimePoint start_{seconds(1'000)};
  const Error refused_{Code::kUnavailable, "connection refused"};
};

TEST_F(HostLogTest, AHostThatOnlyFailsIsToldAfterASecondWithItsErrorAndByWhenItIsGivenUp) {
  host_.failed(refused_, start_);
  host_.tell_failing(start_ + seconds(60), start_ + milliseconds(950));
  EXPECT_THAT(told(LogLevel::kWarning), IsEmpty());
  host_.failed(refused_, start_ + milliseconds(960));
  host_.tell_failing(start_ + seconds(60), start_ + milliseconds(1'050));
  EXPECT_THAT(
      told(LogLevel::kWarning),
      ::testing::ElementsAre(AllOf(HasSubstr("http://store:80"), HasSubstr("2 failures"),
                                   HasSubstr("connection refused"), HasSubstr("1.0 s"),
                                   HasSubstr("gives up after another 58 s at the latest"))));
}

TEST_F(HostLogTest, ItIsToldOnceHoweverManyRequestsMeetIt) {
  host_.failed(refused_, start_);
  for (int i = 0; i < 1'000; ++i) {
    host_.tell_failing(start_ + seconds(300), start_ + seconds(2) + milliseconds(20 * i));
  }
  EXPECT_EQ(told(LogLevel::kWarning).size(), 1u);
  host_.tell_failing(start_ + seconds(300), start_ + seconds(40));
  EXPECT_EQ(told(LogLevel::kWarning).size(), 1u) << "again after half a minute";
}

TEST_F(HostLogTest, FailuresAmongSuccessesAreNoReasonToWarn) {
  for (int i = 0; i < 50; ++i) {
    const HostLog::TimePoint now = start_ + milliseconds(100 * i);
    host_.failed(refused_, now);
    host_.answered(now + milliseconds(50));
    host_.tell_failing(start_ + seconds(300), now + milliseconds(99));
  }
  EXPECT_THAT(told(LogLevel::kWarning), IsEmpty());
}

TEST_F(HostLogTest, ThatItAnswersAgainIsToldWhereItsSilenceWas) {
  host_.failed(refused_, start_);
  host_.tell_failing(start_ + seconds(300), start_ + seconds(3));
  host_.answered(start_ + seconds(12));
  host_.answered(start_ + seconds(13));
  EXPECT_THAT(told(LogLevel::kInfo),
              ::testing::ElementsAre(AllOf(HasSubstr("answers again"), HasSubstr("after 12 s"))));
}

TEST_F(HostLogTest, RetriesAreToldSinglyToWhoDebugsAndInSumToOthers) {
  for (int i = 0; i < 30; ++i) {
    host_.retrying("gs://b/a", 1, refused_, milliseconds(7), start_ + milliseconds(i));
  }
  host_.retrying("gs://b/a", 2, refused_, milliseconds(7), start_ + seconds(11));
  std::vector<LogRecord> records = log_->take();
  EXPECT_EQ(std::ranges::count(records, LogLevel::kDebug, &LogRecord::level), 31);
  std::erase_if(records, [](const LogRecord& each) { return each.level != LogLevel::kInfo; });
  ASSERT_EQ(records.size(), 2u);
  EXPECT_THAT(records[0].text, HasSubstr("1 attempt is repeated"));
  EXPECT_THAT(records[1].text, HasSubstr("30 attempts were repeated"));
}

TEST_F(HostLogTest, ThrottlingAndSlownessAreToldEveryHalfMinuteAtMost) {
  for (int i = 0; i < 100; ++i) {
    host_.throttled("gs://b/run/", 120.5, start_ + milliseconds(10 * i));
    host_.slow("gs://b/a", 2, seconds(15), start_ + milliseconds(10 * i));
  }
  EXPECT_THAT(told(LogLevel::kWarning),
              ::testing::ElementsAre(
                  AllOf(HasSubstr("throttles requests (HTTP 429 or 503); headrace slows down "
                                  "those to gs://b/run/, to 120 requests per second")),
                  AllOf(HasSubstr("gs://b/a has taken 15 s"), HasSubstr("attempt 2"))));
}

TEST_F(HostLogTest, WhyBytesWereNotComparedDependsOnTheChecksum) {
  const auto url = [] { return std::string("ais://b/a"); };
  for (const auto& [kind, why] :
       {std::pair(ChecksumKind::kNone, "tells no checksum"),
        std::pair(ChecksumKind::kXxh64, "read in parts, whose XXH64 cannot be joined"),
        std::pair(ChecksumKind::kSha256,
                  "verify=\"all\" compares where an object is read as a "
                  "whole, and not in parts")}) {
    HostLog host(log_, "http://store:80");
    host.unverified(url, kind);
    host.unverified(url, kind);
    EXPECT_THAT(told(LogLevel::kWarning),
                ::testing::ElementsAre(AllOf(HasSubstr("ais://b/a"), HasSubstr(why))));
  }
}

TEST_F(HostLogTest, ThatRedirectsAndTheMapDifferIsToldOnceWithBothAndWhatToLookAt) {
  for (const char* redirect : {"localhost:81", "localhost:82"}) {
    host_.contradicted([&] { return std::string(redirect); }, [] { return "127.0.0.1:81"; });
  }
  EXPECT_THAT(told(LogLevel::kWarning),
              ::testing::ElementsAre(
                  AllOf(HasSubstr("http://store:80 redirects a request to localhost:81"),
                        HasSubstr("names 127.0.0.1:81"), HasSubstr("host_net.hostname"))));
}

TEST_F(HostLogTest, ThatRequestsGoByAnotherHostIsToldRarelyAndThatTheyNoLongerNeedToAlways) {
  for (int i = 0; i < 100; ++i) {
    host_.failed(refused_, start_ + milliseconds(i));
    host_.bypassed(refused_, "http://other:80", start_ + milliseconds(i));
  }
  EXPECT_THAT(told(LogLevel::kWarning),
              ::testing::ElementsAre(
                  AllOf(HasSubstr("http://store:80 cannot be reached (connection refused)"),
                        HasSubstr("http://other:80"))));
  host_.answered(start_ + seconds(3));
  EXPECT_THAT(told(LogLevel::kInfo),
              ::testing::ElementsAre(HasSubstr("answers again, after 3.0 s")));
}

TEST(Log, KeepsTheLatestOfWhatNobodyTakes) {
  Log log(LogLevel::kInfo);
  log.add(LogLevel::kDebug, "not wanted");
  EXPECT_FALSE(log.any());
  for (size_t i = 0; i < 2 * Log::kKept; ++i) log.add(LogLevel::kInfo, std::to_string(i));
  const std::vector<LogRecord> records = log.take();
  ASSERT_EQ(records.size(), Log::kKept);
  EXPECT_EQ(records.back().text, std::to_string(2 * Log::kKept - 1));
  EXPECT_FALSE(log.any());
}

TEST(Log, GoesToTheSinkWhereThereIsOne) {
  std::vector<std::string> texts;
  Log log(LogLevel::kWarning, [&](const LogRecord& record) { texts.push_back(record.text); });
  log.add(LogLevel::kInfo, "a");
  log.add(LogLevel::kWarning, "b");
  EXPECT_THAT(texts, ::testing::ElementsAre("b"));
  EXPECT_THAT(log.take(), IsEmpty());
}

}  // namespace
}  // namespace headrace
