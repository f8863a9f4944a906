// Large objects where a service takes few parts: their sizes, and how far they reach.
#include <string>
#include <vector>

#include "headrace/store/fault_server_test_support.h"
#include "headrace/store/object_writer.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const MayBlock kMayBlock = MayBlock::on_this_thread();

// Twenty parts, of which memory holds two of 2 MiB.
class LimitedPartsTest : public S3Test {
 protected:
  LimitedPartsTest() {
    options_.write_limits.max_multipart_parts = 20;
    options_.write_limits.min_multipart_part_bytes = 1;
    server_.post("uploads_config", R"({"min_part_bytes":1,"max_parts":20})");
  }
  Result<std::shared_ptr<ObjectWriter>> writer(WriterOptions options = {}) {
    options.object.name = "out/a";
    options.max_parts_in_flight = 2;
    return open(small_)->open_writer(std::move(options));
  }
  Result<ObjectInfo> write(std::string_view bytes, WriterOptions options = {},
                           const std::shared_ptr<const void>& lent = nullptr) {
    const Result<std::shared_ptr<ObjectWriter>> to = writer(std::move(options));
    if (!to) return std::unexpected(to.error());
    for (size_t begin = 0; begin < bytes.size(); begin += 700'000) {
      const std::string_view piece = bytes.substr(begin, 700'000);
      if (!(*to)->append(bytes_of(piece), lent, kMayBlock)) break;
    }
    return (*to)->close(kMayBlock);
  }
  // In MiB, by their numbers.
  std::vector<double> parts() {
    std::map<std::string, double> sizes;
    for (const FaultServer::Entry& entry : server_.log("multipart_part")) {
      const size_t at = entry.target.find("partNumber=") + 11;
      const std::string number = entry.target.substr(at, entry.target.find('&', at) - at);
      sizes[std::string(6 - number.size(), '0') + number] =
          std::stod(entry.headers.at("content-length")) / static_cast<double>(kMiB);
    }
    std::vector<double> in_order;
    for (const auto& [number, size] : sizes) in_order.push_back(size);
    return in_order;
  }
  size_t unfinished() { return take(open()->list_multipart("", "", ""))->uploads.size(); }

  Engine small_{{.io_threads = 2, .memory_budget_bytes = 4 * kMiB, .log_level = LogLevel::kDebug}};
};

TEST_F(LimitedPartsTest, OfAnObjectOfUnknownSizeGrowUntilAllAreUsed) {
  const std::string bytes = some_bytes(38 * kMiB);
  ASSERT_TRUE(write(bytes).has_value());
  EXPECT_TRUE(server_.object("out/a") == bytes);
  std::vector<double> expected(20, 2);
  expected[0] = expected[1] = 1;
  EXPECT_EQ(parts(), expected);
}

TEST_F(LimitedPartsTest, AByteBeyondThemIsRefusedByTheNameOfTheOption) {
  EXPECT_THAT(
      write(some_bytes(38 * kMiB + 1)),
      FailsWith(Code::kInvalidArgument,
                AllOf(HasSubstr("s3://bucket/out/a"), HasSubstr("at most 20 parts"),
                      HasSubstr("39845888 bytes together"), HasSubstr("expected_size_bytes"))));
  EXPECT_EQ(unfinished(), 0u);
}

TEST_F(LimitedPartsTest, OfAKnownSizeHoldItAndNoMoreAreInMemoryThanTheBudgetHolds) {
  const std::string bytes = some_bytes(60 * kMiB);
  ASSERT_TRUE(write(bytes, {.expected_size_bytes = bytes.size()}).has_value());
  EXPECT_TRUE(server_.object("out/a") == bytes);
  EXPECT_EQ(parts(), std::vector<double>(15, 4));
  EXPECT_LE(small_.metrics().memory.peak_live_bytes, 5 * kMiB);
}

TEST_F(LimitedPartsTest, OfLentMemoryTakeNone) {
  const auto bytes = std::make_shared<const std::string>(some_bytes(60 * kMiB));
  ASSERT_TRUE(write(*bytes, {.expected_size_bytes = bytes->size()}, bytes).has_value());
  EXPECT_TRUE(server_.object("out/a") == *bytes);
  // Only the last piece, which is small, is copied.
  EXPECT_LT(small_.metrics().memory.peak_live_bytes, ObjectWriter::kMinLentBytes * 4);
}

TEST_F(LimitedPartsTest, WhatCannotFitIsRefusedBeforeTheFirstByte) {
  EXPECT_THAT(writer({.part_bytes = kMiB, .expected_size_bytes = 20 * kMiB + 1}),
              FailsWith(Code::kInvalidArgument, AllOf(HasSubstr("s3://bucket/out/a"),
                                                      HasSubstr("with part_bytes 1048576"))));
  EXPECT_THAT(writer({.expected_size_bytes = 20 * 5 * kGiB + 1}),
              FailsWith(Code::kInvalidArgument, HasSubstr("at most 20 parts of 5368709120")));
  EXPECT_EQ(server_.stat("/requests"), 0u);
}

TEST_F(LimitedPartsTest, AreEqualFromTheStartWhereThatIsAskedFor) {
  options_.s3.equal_parts = true;
  server_.post("uploads_config", R"({"equal_parts":true})");
  const std::string bytes = some_bytes(5 * kMiB);
  ASSERT_TRUE(write(bytes).has_value());
  EXPECT_THAT(parts(), ElementsAre(2, 2, 1));
}

TEST_F(LimitedPartsTest, AreEqualOnceTheServiceHasRefusedOthers) {
  server_.post("uploads_config", R"({"equal_parts":true})");
  const std::string bytes = some_bytes(5 * kMiB);
  const std::shared_ptr<ObjectStore> store = open(small_);
  EXPECT_THAT(write(bytes),
              FailsWith(Code::kInvalidArgument, AllOf(HasSubstr("must have the same length"),
                                                      HasSubstr("the option equal_parts"))));
  EXPECT_EQ(unfinished(), 0u);
  ASSERT_TRUE(write(bytes).has_value());
  EXPECT_TRUE(server_.object("out/a") == bytes);
}

TEST_F(LimitedPartsTest, TellTheLogHowFarTheyReachBeforeAnythingIsSent) {
  const Result<std::shared_ptr<ObjectWriter>> to = writer();
  ASSERT_TRUE(to.has_value());
  const std::vector<LogRecord> records = small_.log()->take();
  ASSERT_THAT(records, SizeIs(1));
  EXPECT_EQ(records[0].text,
            "s3://bucket/out/a: parts of 1048576 bytes that grow to 2097152 bytes, for an object "
            "of at most 39845888 bytes");
}

}  // namespace
}  // namespace headrace
