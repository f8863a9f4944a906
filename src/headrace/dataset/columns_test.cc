#include "headrace/dataset/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> image_of(const std::vector<uint64_t>& values) {
  ImageWriter writer;
  writer.column(values);
  return std::move(writer).finish();
}

std::vector<std::byte> image_of(const std::vector<std::string>& texts) {
  ImageWriter writer;
  writer.text_column(texts.size(), [&texts](const ImageWriter::TextSink& put) {
    for (const std::string& text : texts) put(text);
  });
  return std::move(writer).finish();
}

TEST(PackedColumn, GivesBackEveryValue) {
  for (uint32_t bits = 0; bits <= 64; ++bits) {
    const uint64_t most = bits == 0 ? 0 : UINT64_MAX >> (64 - bits);
    for (const uint64_t least : {uint64_t{0}, most / 2, most}) {
      const std::vector<uint64_t> values = {least, most, least + (most - least) / 3, most, least};
      const std::vector<std::byte> image = image_of(values);
      ImageReader reader(image);
      const PackedColumn column = reader.column(values.size());
      ASSERT_TRUE(reader.finish().has_value());
      for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(column[i], values[i]) << bits;
    }
  }
}

TEST(PackedColumn, TakesAsManyBytesAsTheDifferencesNeed) {
  const uint64_t base = 1'763'000'000'000'000;
  const size_t equal_bytes = image_of(std::vector<uint64_t>(1000, base)).size();
  for (const auto& [difference, width] :
       std::vector<std::pair<uint64_t, size_t>>{{0, 0}, {1, 1}, {255, 1}, {256, 2}, {1 << 24, 4}}) {
    std::vector<uint64_t> values(1000, base);
    values.back() += difference;
    EXPECT_EQ(image_of(values).size(), equal_bytes + 1000 * width);
  }
}

TEST(TextColumn, GivesBackEveryText) {
  const std::vector<std::vector<std::string>> lists = {
      {},
      {""},
      {"", "", "a"},
      {"same", "same", "same"},
      {"a", "ab", "abc", "", "abcd"},
      std::vector<std::string>(100, std::string(1000, 'x')),
  };
  for (std::vector<std::string> texts : lists) {
    for (int i = 0; i < 40; ++i) {
      const std::vector<std::byte> image = image_of(texts);
      ImageReader reader(image);
      const TextColumn column = reader.text_column(texts.size());
      ASSERT_TRUE(reader.finish().has_value());
      ASSERT_EQ(column.count(), texts.size());
      for (size_t at = 0; at < texts.size(); ++at) {
        ASSERT_EQ(column.at(at), texts[at]);
        ASSERT_EQ(column.size(at), texts[at].size());
      }
      texts.push_back(cat("folder/", i % 7, "/", i));
    }
  }
}

TEST(TextColumn, StoresOnceWhatAGroupBeginsWith) {
  const std::string folder(500, 'f');
  std::vector<std::string> texts;
  for (char c = 'a'; c <= 'p'; ++c) texts.push_back(folder + c);
  EXPECT_LT(image_of(texts).size(), 800u);
}

TEST(TextColumn, IsRefusedIfItsGroupsShareTheirBytes) {
  const std::string text(1000, 'x');
  const auto image_with = [&text](uint64_t second_group) {
    ImageWriter writer;
    writer.fixed_column(text.size(), [&text](const ImageWriter::BytesSink& put) {
      put(std::as_bytes(std::span(text)));
    });
    writer.number(0);
    writer.number(text.size());
    writer.column(std::vector<uint64_t>{0, second_group});
    writer.column(std::vector<uint64_t>{500, 500});
    writer.column(std::vector<uint64_t>(2 * TextColumn::kGroup, 0));
    return std::move(writer).finish();
  };
  for (const uint64_t second_group : {0u, 499u, 500u, 501u}) {
    const std::vector<std::byte> image = image_with(second_group);
    ImageReader reader(image);
    reader.fixed_column(1);
    reader.text_column(2 * TextColumn::kGroup);
    EXPECT_EQ(reader.finish().has_value(), second_group == 500) << second_group;
  }
}

TEST(ImageReader, RefusesToReadMoreOrLessThanWasWritten) {
  const std::vector<std::byte> image = image_of(std::vector<uint64_t>{1, 2, 3});
  ImageReader more(image);
  more.column(3);
  more.number();
  EXPECT_THAT(more.finish().error().message(), HasSubstr("lacks a column"));
  ImageReader less(image);
  less.number();
  EXPECT_THAT(less.finish().error().message(), HasSubstr("a column too many"));
}

TEST(ImageReader, RefusesColumnsLongerThanTheImage) {
  const std::vector<std::byte> image = image_of(std::vector<uint64_t>{1, 2, 300});
  for (const size_t count : {size_t{4}, size_t{1} << 40, std::numeric_limits<size_t>::max()}) {
    ImageReader reader(image);
    reader.column(count);
    EXPECT_THAT(reader.finish().error().message(), HasSubstr("lies outside it")) << count;
  }
}

TEST(ImageReader, KeepsTheFirstError) {
  const std::vector<std::byte> image = image_of(std::vector<uint64_t>{1});
  ImageReader reader(image);
  reader.require(true, "good");
  reader.require(false, "first");
  reader.require(false, "second");
  EXPECT_EQ(reader.number(), 0u);
  EXPECT_EQ(reader.text_column(3).count(), 0u);
  const Result<void> done = reader.finish();
  EXPECT_EQ(done.error().code(), Code::kCorrupt);
  EXPECT_EQ(done.error().message(), "first");
}

}  // namespace
}  // namespace headrace
