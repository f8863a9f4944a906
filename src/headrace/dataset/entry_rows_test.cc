#include "headrace/dataset/entry_rows.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace headrace {
namespace {

// Whatever a row consists of, as it was put in.
struct Given {
  EntryNumbers numbers;
  std::string name, generation;
  std::vector<std::byte> digest, range_digest;
};

constexpr std::array kOwnNumbers = {
    EntryNumber::kSizeBytes,   EntryNumber::kGeneration,      EntryNumber::kUpdated,
    EntryNumber::kRoot,        EntryNumber::kMetageneration,  EntryNumber::kComponentCount,
    EntryNumber::kContentType, EntryNumber::kContentEncoding, EntryNumber::kStorageClass,
    EntryNumber::kSum,         EntryNumber::kRangeBegin,      EntryNumber::kRangeLength,
    EntryNumber::kCount,       EntryNumber::kStride,          EntryNumber::kRangeSum};

// Texts of all sizes, none too, and numbers of all widths.
std::vector<Given> random_rows(size_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  constexpr std::array kKinds = {ChecksumKind::kNone, ChecksumKind::kCrc32c, ChecksumKind::kMd5,
                                 ChecksumKind::kSha256};
  const auto digest_of = [&random](ChecksumKind kind) {
    const size_t size = checksum_size(kind);
    std::vector<std::byte> out(size > sizeof(uint64_t) ? size : 0);
    for (std::byte& byte : out) byte = static_cast<std::byte>(random());
    return out;
  };
  std::vector<Given> rows(count);
  for (Given& row : rows) {
    for (const EntryNumber which : kOwnNumbers) row.numbers[which] = random() >> random() % 64;
    const ChecksumKind kind = kKinds[random() % kKinds.size()];
    const ChecksumKind range_kind = kKinds[random() % kKinds.size()];
    row.numbers[EntryNumber::kSumKind] = static_cast<uint64_t>(kind);
    row.numbers[EntryNumber::kRangeSumKind] = static_cast<uint64_t>(range_kind);
    row.name = cat("folder/", std::string(random() % 40, 'x'), random() % 100);
    if (random() % 3 == 0) row.generation = cat("\"", random() % 1000, "\"");
    row.digest = digest_of(kind);
    row.range_digest = digest_of(range_kind);
  }
  return rows;
}

void add(EntryRows& to, const Given& row) {
  to.add(row.numbers, {.name = row.name,
                       .generation = row.generation,
                       .digest = row.digest,
                       .range_digest = row.range_digest});
}

void expect_rows(const EntryRows& rows, const std::vector<Given>& given) {
  size_t i = 0;
  rows.each([&](const EntryRows::Entry& entry) {
    ASSERT_LT(i, given.size());
    const Given& row = given[i++];
    for (const EntryNumber which : kOwnNumbers) ASSERT_EQ(entry[which], row.numbers[which]) << i;
    ASSERT_EQ(entry.name(), row.name) << i;
    ASSERT_EQ(entry.generation(), row.generation) << i;
    ASSERT_TRUE(std::ranges::equal(entry.digest(), row.digest)) << i;
    ASSERT_TRUE(std::ranges::equal(entry.range_digest(), row.range_digest)) << i;
  });
  ASSERT_EQ(i, given.size());
  for (const EntryNumber which : kOwnNumbers) {
    size_t row = 0;
    rows.each(which, [&](uint64_t number) {
      ASSERT_LT(row, given.size());
      ASSERT_EQ(number, given[row++].numbers[which]);
    });
    ASSERT_EQ(row, given.size());
  }
}

TEST(EntryRows, GiveBackWhatWasAddedPackedOrNot) {
  for (const size_t count : {0u, 1u, 100u, 2047u, 2048u, 2049u, 10000u}) {
    const std::vector<Given> given = random_rows(count, 1);
    EntryRows rows;
    for (const Given& row : given) add(rows, row);
    expect_rows(rows, given);
  }
}

TEST(EntryRows, GiveANumberForEachEntryThatARowStandsFor) {
  std::vector<uint64_t> expected, found;
  EntryRows rows;
  for (Given& row : random_rows(5'000, 2)) {
    const uint64_t count = row.numbers[EntryNumber::kSum] % 4;
    row.numbers[EntryNumber::kCount] = count;
    add(rows, row);
    expected.insert(expected.end(), count, row.numbers[EntryNumber::kRangeSum]);
  }
  rows.each_entry(EntryNumber::kRangeSum, [&found](uint64_t number) { found.push_back(number); });
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace headrace
