#include "headrace/checkpoint/zip_layout.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/base/units.h"
#include "headrace/checkpoint/zip_directory.h"
#include "headrace/checkpoint/zip_format.h"

namespace headrace {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string file_of(const std::vector<std::pair<std::string, std::string>>& records) {
  ZipLayout layout;
  std::string file;
  for (const auto& [name, content] : records) {
    file += layout.begin_record(name, content.size()).value();
    EXPECT_TRUE(layout.add(bytes_of(content)).has_value());
    file += content;
    file += layout.end_record().value();
  }
  file += layout.finish().value();
  EXPECT_EQ(layout.offset_bytes(), file.size());
  return file;
}

TEST(ZipLayout, AlignsEveryContentTo64Bytes) {
  ZipLayout layout;
  for (size_t i = 0; i < 200; ++i) {
    const std::string content(i * 7 % 130, 'x');
    ASSERT_TRUE(layout.begin_record(cat("archive/data/", i), content.size()).has_value());
    EXPECT_EQ(layout.offset_bytes() % 64, 0u);
    ASSERT_TRUE(layout.add(bytes_of(content)).has_value());
    ASSERT_TRUE(layout.end_record().has_value());
  }
}

TEST(ZipLayout, SumsTheContentAsItPassesBy) {
  const std::string content(300'000, 'a');
  ZipLayout layout;
  ASSERT_TRUE(layout.begin_record("archive/data/0", content.size()).has_value());
  for (size_t at = 0; at < content.size(); at += 1000) {
    ASSERT_TRUE(layout.add(bytes_of(content).subspan(at, 1000)).has_value());
  }
  ASSERT_TRUE(layout.end_record().has_value());
  EXPECT_EQ(layout.records()[0].crc32, Crc32().extended(bytes_of(content)));
  EXPECT_EQ(layout.records()[0].crc32c, Crc32c().extended(bytes_of(content)));
}

TEST(ZipLayout, EqualContentsMakeEqualFiles) {
  EXPECT_EQ(file_of({{"a/data.pkl", "x"}}), file_of({{"a/data.pkl", "x"}}));
}

TEST(ZipLayout, TakesNoMoreAndNoLessThanWasSaid) {
  ZipLayout layout;
  ASSERT_TRUE(layout.begin_record("a", 4).has_value());
  EXPECT_EQ(layout.add(bytes_of("12345")).error().code(), Code::kInvalidArgument);
  ASSERT_TRUE(layout.add(bytes_of("123")).has_value());
  EXPECT_EQ(layout.end_record().error().message(), "the record a lacks 1 of its 4 bytes");
  EXPECT_EQ(layout.finish().error().code(), Code::kInvalidArgument);
}

TEST(ZipLayout, RefusesANameTwice) {
  ZipLayout layout;
  ASSERT_TRUE(layout.begin_record("a", 0).has_value());
  ASSERT_TRUE(layout.end_record().has_value());
  EXPECT_EQ(layout.begin_record("a", 0).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(layout.begin_record("", 0).error().code(), Code::kInvalidArgument);
}

TEST(ZipLayout, RefusesWhatComesOutOfTurn) {
  ZipLayout layout;
  EXPECT_EQ(layout.add(bytes_of("x")).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(layout.end_record().error().code(), Code::kInvalidArgument);
  ASSERT_TRUE(layout.finish().has_value());
  EXPECT_EQ(layout.finish().error().code(), Code::kInvalidArgument);
  EXPECT_EQ(layout.begin_record("a", 0).error().code(), Code::kInvalidArgument);
}

TEST(ZipLayout, ARecordBeyond4GiBHas64BitNumbers) {
  const ZipRecord far = {.name = "archive/data/1",
                         .header_offset_bytes = 5 * kGiB,
                         .size_bytes = 6 * kGiB,
                         .crc32 = Crc32(1),
                         .crc32c = Crc32c(2)};
  const std::string header = local_header(far);
  EXPECT_EQ((far.header_offset_bytes + header.size()) % 64, 0u);
  const auto bytes = bytes_of(header);
  const size_t extra = zip::kLocalHeaderBytes + far.name.size();
  EXPECT_EQ(zip::number_at<uint16_t>(bytes, extra), zip::kExtra64);
  EXPECT_EQ(zip::number_at<uint64_t>(bytes, extra + 4), 6 * kGiB);
  EXPECT_EQ(zip::number_at<uint64_t>(bytes, extra + 20), 5 * kGiB);
  EXPECT_EQ(descriptor(far).size(), zip::kDescriptor64Bytes);
}

TEST(ZipLayout, AnEmptyRecordHasNoDescriptor) { EXPECT_EQ(descriptor({.name = "a"}), ""); }

}  // namespace
}  // namespace headrace
