#include "headrace/dataset/packed_sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string number(uint64_t value, size_t width) {
  std::string out;
  for (size_t i = 0; i < width; ++i) out += static_cast<char>(value >> 8 * i);
  return out;
}

// Of uint16 tokens, one sequence after the other.
std::string index_of(const std::vector<uint64_t>& lengths) {
  std::string out("MMIDIDX\0\0", 9);
  out += number(1, 8) + number(8, 1) + number(lengths.size(), 8) + number(1, 8);
  for (const uint64_t each : lengths) out += number(each, 4);
  uint64_t begin = 0;
  for (const uint64_t each : lengths) {
    out += number(begin, 8);
    begin += 2 * each;
  }
  return out + number(0, 8);
}

Result<PackedSequences> pack(const std::string& index, const std::vector<size_t>& order) {
  return PackedSequences::pack(MegatronIndex::parse(std::as_bytes(std::span(index))).value(),
                               order);
}

std::vector<ByteRange> ranges_of(const PackedSequences& packed, ByteRange window) {
  std::vector<ByteRange> out;
  packed.append_ranges(window, out);
  return out;
}

TEST(PackedSequences, RunAcrossBorders) {
  const std::string index = index_of({3, 4, 5});  // [0, 6), [6, 14), [14, 24)
  const PackedSequences packed = pack(index, {2, 0, 1}).value();
  EXPECT_EQ(packed.size_bytes(), 24u);
  EXPECT_EQ(packed.part_count(), 2u);  // the last two follow each other in the file
  EXPECT_THAT(ranges_of(packed, {0, 10}), ElementsAre(ByteRange{14, 24}));
  EXPECT_THAT(ranges_of(packed, {8, 12}), ElementsAre(ByteRange{22, 24}, ByteRange{0, 2}));
  EXPECT_THAT(ranges_of(packed, {12, 24}), ElementsAre(ByteRange{2, 14}));
  const PackedSequences backwards = pack(index, {2, 1, 0}).value();
  EXPECT_THAT(ranges_of(backwards, {8, 20}),
              ElementsAre(ByteRange{22, 24}, ByteRange{6, 14}, ByteRange{0, 2}));
}

TEST(PackedSequences, AreOneRangeInTheOrderOfTheFile) {
  const PackedSequences packed = pack(index_of({3, 0, 4, 5}), {0, 1, 2, 3}).value();
  EXPECT_EQ(packed.part_count(), 1u);
  EXPECT_THAT(ranges_of(packed, {2, 20}), ElementsAre(ByteRange{2, 20}));
}

TEST(PackedSequences, RefuseASequenceThatIsNotThere) {
  EXPECT_THAT(pack(index_of({3, 4}), {0, 2}).error().message(), HasSubstr("no sequence 2"));
  EXPECT_EQ(pack(index_of({3, 4}), {}).value().size_bytes(), 0u);
  EXPECT_EQ(pack(index_of({0}), {0, 0}).value().size_bytes(), 0u);
}

TEST(PackedSequences, GoToOtherProcesses) {
  const PackedSequences packed = pack(index_of({3, 4, 5}), {2, 0, 1}).value();
  const std::string parts = packed.parts();
  EXPECT_EQ(parts.size(), 16 * packed.part_count());
  const auto from = [](std::string_view bytes) {
    return PackedSequences::from_parts(std::as_bytes(std::span(bytes)));
  };
  EXPECT_EQ(from(parts)->parts(), parts);
  EXPECT_THAT(ranges_of(*from(parts), {8, 12}), ElementsAre(ByteRange{22, 24}, ByteRange{0, 2}));
  EXPECT_EQ(from("")->size_bytes(), 0u);
  for (const std::string& bad :
       {parts.substr(1), number(0, 8) + number(0, 8), number(0, 8) + number(UINT64_MAX, 8),
        number(UINT64_MAX, 8) + number(2, 8),
        number(0, 8) + number(0, 8) + number(7, 8) + number(7, 8)}) {
    EXPECT_THAT(from(bad).error().message(), HasSubstr("no parts of packed sequences"));
  }
}

TEST(PackedSequences, KnowWhereAByteLiesInTheFile) {
  const PackedSequences packed = pack(index_of({3, 4, 5}), {2, 0, 1}).value();
  EXPECT_EQ(packed.file_byte(0), 14u);
  EXPECT_EQ(packed.file_byte(9), 23u);
  EXPECT_EQ(packed.file_byte(10), 0u);
  EXPECT_EQ(packed.file_byte(23), 13u);
}

// Every window is the same bytes of the sequences written out one after another.
TEST(PackedSequences, AreTheSequencesOneAfterAnother) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<uint64_t> lengths(1 + random() % 12);
    for (uint64_t& each : lengths) each = random() % 6;
    std::vector<size_t> order(random() % 20);
    for (size_t& each : order) each = random() % lengths.size();
    std::vector<uint64_t> stream;  // the place in the file of each byte
    for (const size_t each : order) {
      const uint64_t begin =
          2 * std::accumulate(lengths.begin(), lengths.begin() + static_cast<ptrdiff_t>(each),
                              uint64_t{0});
      for (uint64_t i = 0; i < 2 * lengths[each]; ++i) stream.push_back(begin + i);
    }
    const PackedSequences packed = pack(index_of(lengths), order).value();
    ASSERT_EQ(packed.size_bytes(), stream.size());
    for (int i = 0; i < 20; ++i) {
      const uint64_t begin = random() % (stream.size() + 1);
      const uint64_t end = begin + random() % (stream.size() - begin + 1);
      std::vector<uint64_t> found;
      for (const ByteRange& range : ranges_of(packed, {begin, end})) {
        ASSERT_LT(range.begin, range.end);
        for (uint64_t at = range.begin; at < range.end; ++at) found.push_back(at);
      }
      ASSERT_EQ(found, std::vector<uint64_t>(stream.begin() + static_cast<ptrdiff_t>(begin),
                                             stream.begin() + static_cast<ptrdiff_t>(end)));
    }
  }
}

}  // namespace
}  // namespace headrace
