#include "headrace/format/gunzip.h"
#include "headrace/format/gzip_test_support.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace {
namespace {

Result<std::vector<std::byte>> unzipped(std::string_view bytes, uint64_t max_bytes = 1 << 24) {
  const std::span<const std::byte> in = std::as_bytes(std::span(bytes));
  const Result<uint64_t> size_bytes = gunzipped_bytes(in, max_bytes);
  if (!size_bytes) return std::unexpected(size_bytes.error());
  std::vector<std::byte> out(*size_bytes);
  const Result<uint64_t> written = gunzip(in, out);
  if (!written) return std::unexpected(written.error());
  EXPECT_EQ(*written, *size_bytes);
  if (!out.empty()) {
    EXPECT_EQ(gunzip(in, std::span(out).first(out.size() - 1)).error().code(), Code::kExhausted);
  }
  return out;
}

std::string text_of(const Result<std::vector<std::byte>>& bytes) {
  return {reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size()};
}

TEST(Gunzip, GivesBackWhatWentIn) {
  for (const size_t size : {0u, 1u, 1'000u, 16'384u, 1'000'000u}) {
    std::string text;
    for (size_t i = 0; text.size() < size; ++i) text += std::to_string(i * i);
    text.resize(size);
    EXPECT_EQ(text_of(unzipped(gzipped(text))), text);
  }
}

TEST(Gunzip, TellsTheSizeOfOneMemberBeforehand) {
  const std::string bytes = gzipped(std::string(70'000, 'x'));
  EXPECT_EQ(gunzipped_bytes_hint(std::as_bytes(std::span(bytes))), 70'000u);
  EXPECT_EQ(gunzipped_bytes_hint({}), 0u);
}

TEST(Gunzip, TakesSeveralMembers) {
  EXPECT_EQ(text_of(unzipped(gzipped("one ") + gzipped("") + gzipped("two"))), "one two");
}

TEST(Gunzip, RefusesEveryCut) {
  const std::string bytes = gzipped("some text, some more text, and some more");
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto out = unzipped(bytes.substr(0, size));
    ASSERT_FALSE(out.has_value()) << size;
    EXPECT_EQ(out.error().code(), Code::kCorrupt);
  }
}

TEST(Gunzip, RefusesBytesBehindTheEnd) {
  for (const char* tail : {"x", "garbage that is long enough for a header", "\x1f\x8b"}) {
    const auto out = unzipped(gzipped("text") + tail);
    ASSERT_FALSE(out.has_value());
    EXPECT_EQ(out.error().code(), Code::kCorrupt);
  }
}

TEST(Gunzip, PassesOverZerosBehindAMember) {
  const std::string zeros(1'000, '\0');
  EXPECT_EQ(text_of(unzipped(gzipped("text") + zeros)), "text");
  EXPECT_EQ(text_of(unzipped(gzipped("one ") + zeros + gzipped("two") + zeros)), "one two");
  EXPECT_EQ(unzipped(zeros).error().code(), Code::kCorrupt);
  EXPECT_EQ(unzipped(zeros + gzipped("text")).error().code(), Code::kCorrupt);
  EXPECT_EQ(unzipped(gzipped("text") + zeros + "x").error().code(), Code::kCorrupt);
}

TEST(Gunzip, RefusesAWrongSum) {
  std::string bytes = gzipped("text");
  bytes[bytes.size() - 8] = static_cast<char>(bytes[bytes.size() - 8] ^ 1);
  EXPECT_EQ(unzipped(bytes).error().code(), Code::kCorrupt);
}

TEST(Gunzip, IsNotForOtherFormats) {
  EXPECT_EQ(unzipped("plain text").error().code(), Code::kCorrupt);
  EXPECT_EQ(unzipped("\x78\x9c\x03\x00").error().code(), Code::kCorrupt);  // zlib's own
}

TEST(Gunzip, StopsABomb) {
  const std::string bytes = gzipped(std::string(1'000'000, '\0'));
  EXPECT_LT(bytes.size(), 2'000u);
  EXPECT_EQ(unzipped(bytes, 999'999).error().code(), Code::kExhausted);
  EXPECT_EQ(unzipped(bytes, 0).error().code(), Code::kExhausted);
  EXPECT_EQ(unzipped(bytes, 1'000'000).value().size(), 1'000'000u);
  EXPECT_EQ(unzipped(gzipped(""), 0).value().size(), 0u);
}

}  // namespace
}  // namespace headrace
