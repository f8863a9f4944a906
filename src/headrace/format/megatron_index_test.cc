#include "headrace/format/megatron_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string number(uint64_t value, size_t width) {
  std::string out;
  for (size_t i = 0; i < width; ++i) out += static_cast<char>(value >> 8 * i);
  return out;
}

struct Parts {
  uint64_t version = 1;
  uint8_t code = 8;
  std::vector<uint64_t> lengths = {3, 0, 4}, begins = {0, 6, 6}, documents = {0, 1, 3};
  std::string rest = {};

  std::string file() const {
    std::string out("MMIDIDX\0\0", 9);
    out += number(version, 8) + number(code, 1) + number(lengths.size(), 8) +
           number(documents.size(), 8);
    for (const uint64_t each : lengths) out += number(each, 4);
    for (const uint64_t each : begins) out += number(each, 8);
    for (const uint64_t each : documents) out += number(each, 8);
    return out + rest;
  }
};

std::string refusal_of(const Parts& parts) {
  const std::string file = parts.file();
  const Result<MegatronIndex> parsed = MegatronIndex::parse(bytes_of(file));
  EXPECT_FALSE(parsed.has_value());
  if (parsed) return "";
  EXPECT_EQ(parsed.error().code(), Code::kCorrupt);
  return parsed.error().message();
}

TEST(MegatronIndex, TellsTypeSequencesAndDocuments) {
  const std::string file = Parts().file();
  const MegatronIndex index = MegatronIndex::parse(bytes_of(file)).value();
  EXPECT_EQ(index.item_type(), "uint16");
  EXPECT_EQ(index.item_bytes(), 2u);
  ASSERT_EQ(index.sequence_count(), 3u);
  ASSERT_EQ(index.document_count(), 2u);
  EXPECT_EQ(index.length(2), 4u);
  EXPECT_EQ(index.begin(2), 6u);
  EXPECT_EQ(index.first_sequence(1), 1u);
  EXPECT_EQ(index.first_sequence(2), 3u);
  EXPECT_EQ(index.end(), 14u);
  EXPECT_TRUE(index.is_contiguous());
}

TEST(MegatronIndex, KnowsAllTypes) {
  std::vector<std::string> names;
  for (uint8_t code = 1; code <= 8; ++code) {
    const std::string file = Parts{.code = code, .begins = {0, 24, 24}}.file();
    names.emplace_back(MegatronIndex::parse(bytes_of(file)).value().item_type());
  }
  EXPECT_THAT(names, ::testing::ElementsAre("uint8", "int8", "int16", "int32", "int64", "float64",
                                            "float32", "uint16"));
}

TEST(MegatronIndex, TellsGapsAndOverlaps) {
  for (const std::vector<uint64_t>& begins :
       {std::vector<uint64_t>{2, 8, 8}, {0, 6, 8}, {0, 6, 4}, {8, 14, 0}}) {
    const std::string file = Parts{.begins = begins}.file();
    EXPECT_FALSE(MegatronIndex::parse(bytes_of(file)).value().is_contiguous());
  }
  const std::string file = Parts{.begins = {8, 14, 0}}.file();
  EXPECT_EQ(MegatronIndex::parse(bytes_of(file)).value().end(), 14u);
}

TEST(MegatronIndex, MayHaveModes) {
  const std::string file = Parts{.rest = std::string(3, '\0')}.file();
  EXPECT_EQ(MegatronIndex::parse(bytes_of(file)).value().sequence_count(), 3u);
}

TEST(MegatronIndex, IsRefusedAtEveryPlaceWhereItIsCut) {
  const std::string file = Parts().file();
  for (size_t size = 0; size < file.size(); ++size) {
    const Result<MegatronIndex> parsed = MegatronIndex::parse(bytes_of(file).first(size));
    ASSERT_FALSE(parsed.has_value()) << size;
    EXPECT_THAT(parsed.error().message(), HasSubstr("is cut"));
  }
}

TEST(MegatronIndex, IsRefusedIfItContradictsItself) {
  EXPECT_THAT(MegatronIndex::parse(bytes_of("{}")).error().message(), HasSubstr("no index"));
  EXPECT_THAT(refusal_of({.version = 2}), HasSubstr("version 2"));
  EXPECT_THAT(refusal_of({.code = 0}), HasSubstr("type 0"));
  EXPECT_THAT(refusal_of({.code = 9}), HasSubstr("type 9"));
  EXPECT_THAT(refusal_of({.lengths = {3, 0, uint64_t{1} << 31}}), HasSubstr("sequence 2"));
  EXPECT_THAT(refusal_of({.begins = {0, 7, 6}}), HasSubstr("sequence 1"));
  EXPECT_THAT(refusal_of({.begins = {0, UINT64_MAX - 1, 6}}), HasSubstr("sequence 1"));
  EXPECT_THAT(refusal_of({.begins = {0, uint64_t{1} << 62, 6}}), HasSubstr("sequence 1"));
  EXPECT_THAT(refusal_of({.documents = {1, 3}}), HasSubstr("document 0"));
  EXPECT_THAT(refusal_of({.documents = {0, 2, 1}}), HasSubstr("document 2"));
  EXPECT_THAT(refusal_of({.documents = {0, 4}}), HasSubstr("document 1"));
  EXPECT_THAT(refusal_of({.documents = {}}), HasSubstr("no documents"));
  EXPECT_THAT(refusal_of({.rest = "xx"}), HasSubstr("2 bytes longer"));
  std::string file = Parts().file();
  file.replace(18, 8, number(UINT64_MAX / 4, 8));  // as many sequences
  EXPECT_THAT(MegatronIndex::parse(bytes_of(file)).error().message(), HasSubstr("is cut"));
}

}  // namespace
}  // namespace headrace
