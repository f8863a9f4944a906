#include "headrace/store/reading/scan_tars.h"

#include "headrace/format/tar_test_support.h"
#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

using Answers = std::vector<Result<ScannedTar>>;

// Its files are named after it.
std::string tar_of(std::string_view name, size_t files, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < files; ++i) out += tar_file(cat(name, i), std::string(bytes, 'x'));
  return out + tar_end();
}

class ScanTarsTest : public StoreTest {
 protected:
  void put(const std::string& name, const std::string& bytes) {
    const ObjectInfo info = server_.put(name, bytes);
    tars_.push_back({.name = name, .generation = info.generation, .size_bytes = info.size_bytes});
  }
  std::shared_ptr<Pending<Answers>> start(bool skip_errors, size_t max_in_flight = 4) {
    return scan_tars({open()}, tars_, skip_errors, max_in_flight, done_);
  }
  Answers scan(bool skip_errors, size_t max_in_flight = 4) {
    return take(start(skip_errors, max_in_flight)).value();
  }

  std::vector<TarToScan> tars_;
  std::shared_ptr<std::atomic<size_t>> done_ = std::make_shared<std::atomic<size_t>>(0);
};

TEST_F(ScanTarsTest, FindsTheFilesOfAll) {
  for (size_t i = 0; i < 20; ++i) put(cat("t", i, "_"), tar_of(cat("t", i, "_"), i, 70'000));
  for (const size_t max_in_flight : {0u, 1u, 7u, 100u}) {
    done_->store(0);
    const Answers answers = scan(false, max_in_flight);
    ASSERT_EQ(answers.size(), 20u);
    for (size_t i = 0; i < answers.size(); ++i) {
      const ScannedTar& tar = answers[i].value();
      ASSERT_EQ(tar.files.size(), i);
      EXPECT_EQ(tar.generation, tars_[i].generation);
      if (i > 0) EXPECT_EQ(tar.files.name(i - 1), cat("t", i, "_", i - 1));
    }
    EXPECT_EQ(done_->load(), 20u);
  }
}

TEST_F(ScanTarsTest, HasNoMoreUnderWayThanItMay) {
  for (size_t i = 0; i < 10; ++i) put(cat("t", i), tar_of("a", 3, 70'000));
  server_.post("limit", R"({"in_flight": 3})");
  EXPECT_TRUE(scan(false, 3)[9].has_value());
  EXPECT_EQ(server_.stat("/by_status/429"), 0u);
}

TEST_F(ScanTarsTest, ReadsOfLargeFilesOneHundredth) {
  const std::string archive = tar_of("a", 60, 100 * 1024);
  for (size_t i = 0; i < 3; ++i) put(cat("t", i), archive);
  EXPECT_EQ(scan(false)[2].value().files.size(), 60u);
  uint64_t sent_bytes = 0;
  for (const FaultServer::Entry& each : server_.log("media")) sent_bytes += each.bytes_sent;
  EXPECT_LE(sent_bytes * 100, 3 * archive.size());
  EXPECT_LE(server_.stat("/by_kind/media"), 3u * 62);
}

TEST_F(ScanTarsTest, GivesTheErrorOfOneInItsPlace) {
  put("good", tar_of("a", 3, 10));
  put("text", std::string(3000, 'x'));
  put("empty", "");
  put("cut", tar_file("a", std::string(3000, 'x')).substr(0, 2000));
  tars_.push_back({.name = "none", .size_bytes = 5000});
  put("last", tar_of("b", 2, 10));
  const Answers answers = scan(true, 2);
  EXPECT_EQ(answers[0].value().files.size(), 3u);
  EXPECT_TRUE(answers[0].value().warnings.empty());
  EXPECT_THAT(answers[1], FailsWith(Code::kCorrupt, HasSubstr("/text")));
  EXPECT_THAT(answers[2], FailsWith(Code::kCorrupt, HasSubstr("/empty")));
  EXPECT_THAT(answers[3], FailsWith(Code::kCorrupt, HasSubstr("/cut")));
  EXPECT_THAT(answers[4], FailsWith(Code::kNotFound, HasSubstr("/none")));
  EXPECT_EQ(answers[5].value().files.size(), 2u);
}

TEST_F(ScanTarsTest, GivesWarningsInTheirPlace) {
  put("good", tar_of("a", 3, 10));
  put("stopped", tar_of("a", 3, 10).substr(0, 3 * 1024));
  const Answers answers = scan(false);
  EXPECT_THAT(answers[0].value().warnings, ::testing::IsEmpty());
  EXPECT_THAT(answers[1].value().warnings, ::testing::ElementsAre(HasSubstr("without the two")));
  EXPECT_EQ(answers[1].value().files.size(), 3u);
}

TEST_F(ScanTarsTest, EndsWithTheFirstError) {
  put("text", std::string(3000, 'x'));
  for (size_t i = 0; i < 5; ++i) put(cat("t", i), tar_of("a", 3, 10));
  const Answers answers = scan(false, 1);
  EXPECT_THAT(answers[0], FailsWith(Code::kCorrupt, HasSubstr("/text")));
  for (size_t i = 1; i < answers.size(); ++i) {
    EXPECT_THAT(answers[i], FailsWith(Code::kCancelled, HasSubstr("")));
  }
  EXPECT_EQ(server_.stat("/by_kind/media"), 1u);
}

TEST_F(ScanTarsTest, RefusesATarThatWasReplaced) {
  put("t", tar_of("a", 3, 10));
  const ObjectInfo second = server_.put("t", tar_of("b", 3, 10));
  EXPECT_THAT(scan(true)[0], FailsWith(Code::kPreconditionFailed, HasSubstr("/t")));
  // Where nobody has listed it, the first read tells the generation.
  tars_[0].generation = "";
  const Answers answers = scan(true);
  EXPECT_EQ(answers[0].value().files.name(0), "b0");
  EXPECT_EQ(answers[0].value().generation, second.generation);
}

TEST_F(ScanTarsTest, IsCancelled) {
  for (size_t i = 0; i < 10; ++i) put(cat("t", i), tar_of("a", 3, 10));
  server_.faults(R"([{"match": {"kind": "media"}, "action": {"stall_head": true}}])");
  const auto pending = start(true, 4);
  server_.wait_for("/by_kind/media", 4);
  pending->cancel();
  for (const Result<ScannedTar>& each : take(pending).value()) {
    EXPECT_EQ(each.error().code(), Code::kCancelled);
  }
  EXPECT_EQ(server_.stat("/by_kind/media"), 4u);
}

TEST_F(ScanTarsTest, OfNoneAreNone) { EXPECT_TRUE(scan(false).empty()); }

}  // namespace
}  // namespace headrace
