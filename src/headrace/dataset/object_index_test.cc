#include "headrace/dataset/object_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const ObjectIndex> index_of(const std::vector<ObjectInfo>& objects) {
  ObjectIndexBuilder builder;
  for (const ObjectInfo& object : objects) builder.add(object);
  return std::move(builder).build().value();
}

std::vector<ObjectInfo> objects_of(const ObjectIndex& index) {
  std::vector<ObjectInfo> out;
  for (size_t i = 0; i < index.size(); ++i) out.push_back(index.info(i));
  return out;
}

ObjectInfo object(std::string name, uint64_t size_bytes = 1, std::string generation = "") {
  ObjectInfo out;
  out.name = std::move(name);
  out.size_bytes = size_bytes;
  out.generation = std::move(generation);
  return out;
}

std::vector<std::byte> copy(const ObjectIndex& index) {
  return {index.image().bytes().begin(), index.image().bytes().end()};
}

Result<std::shared_ptr<const ObjectIndex>> open(const std::vector<std::byte>& image) {
  return ObjectIndex::open(SharedBytes::copy_of(image).value());
}

TextValues texts_of(const std::vector<std::string>& texts, bool is_bytes = false) {
  TextValues out{.is_bytes = is_bytes};
  for (const std::string& text : texts) out.add(text);
  return out;
}

Checksum sum_of_kind(ChecksumKind kind, uint8_t seed) {
  std::array<std::byte, Checksum::kMostBytes> bytes{};
  bytes.fill(std::byte{seed});
  return {kind, std::span(bytes).first(checksum_size(kind))};
}

// Several roots, ranges by a rule and without one, whole objects between them, checksums of every
// kind, unknown sizes, columns of every type.
std::shared_ptr<const ObjectIndex> everything() {
  ObjectIndexBuilder builder;
  const uint32_t first = builder.add_root("gs://a/train"), second = builder.add_root("s3://b");
  std::vector<int64_t> integers;
  std::vector<double> floats;
  std::vector<std::string> texts;
  const auto add = [&](const ObjectInfo& info, const EntryDetails& details) {
    builder.add(info, details);
    integers.push_back(static_cast<int64_t>(integers.size()) * 1000 - 7);
    floats.push_back(static_cast<double>(floats.size()) / 4);
    texts.push_back(cat("class ", texts.size() % 3));
  };
  const ObjectInfo shard = object("shard", 1000, "1");
  for (uint64_t i = 0; i < 12; ++i) {
    add(shard, {.root = first,
                .range = ByteRange{i * 64, i * 64 + 64},
                .range_checksum = Checksum(Crc32c(static_cast<uint32_t>(i)))});
  }
  add(shard, {.root = first, .range = ByteRange{768, 1000}});
  add(shard, {.root = second, .range = ByteRange{1000, 1000}});
  for (uint8_t kind = 0; kind < kChecksumKindCount; ++kind) {
    ObjectInfo whole = object(cat("whole/", kind), kind == 3 ? kUnknownSize : kind, "etag");
    whole.checksum = sum_of_kind(ChecksumKind{kind}, kind);
    add(whole, {.root = kind % 2u});
  }
  const size_t count = texts.size();
  builder.set_column("integers", integers);
  builder.set_column("floats", floats);
  builder.set_column("classes", texts_of(texts));
  for (size_t i = 0; i < count; ++i) texts[i] = cat("text ", i);
  builder.set_column("texts", texts_of(texts, /*is_bytes=*/true));
  return std::move(builder).build().value();
}

// Fields of every kind, of every size, present and absent.
std::vector<ObjectInfo> assorted(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](uint64_t bound) { return random() % bound; };
  const std::array<std::string, 7> generations = {"",   "0",  "1717171717171717",    "007",
                                                  "-1", "ab", "18446744073709551615"};
  std::vector<ObjectInfo> out;
  for (size_t i = 0; i < count; ++i) {
    ObjectInfo each = object(cat("train/", std::string(below(40), 'x'), i), random() >> below(64));
    each.size_bytes >>= 16;
    each.generation = generations[below(generations.size())];
    if (below(2) == 0) each.checksum = Crc32c(static_cast<uint32_t>(random()));
    each.content_type = cat("type/", below(3));
    each.content_encoding = below(4) == 0 ? "gzip" : "";
    each.storage_class = below(2) == 0 ? "STANDARD" : "NEARLINE";
    each.updated = std::chrono::system_clock::time_point(
        std::chrono::system_clock::duration(static_cast<int64_t>(random()) >> below(64)));
    each.component_count = static_cast<uint32_t>(random() >> below(64));
    each.metageneration = random() >> below(64);
    out.push_back(std::move(each));
  }
  return out;
}

TEST(ObjectIndex, GivesBackWhatWasPutIn) {
  for (const size_t count : {0u, 1u, 2u, 15u, 16u, 17u, 1000u, 20'000u}) {
    const std::vector<ObjectInfo> objects = assorted(count, count);
    const std::shared_ptr<const ObjectIndex> index = index_of(objects);
    EXPECT_EQ(objects_of(*index), objects);
    for (size_t i = 0; i < count; ++i) {
      std::string name, generation;
      index->append_name(i, name);
      index->append_generation(i, generation);
      ASSERT_EQ(name, objects[i].name);
      ASSERT_EQ(generation, objects[i].generation);
      ASSERT_EQ(index->size_bytes(i), objects[i].size_bytes);
      ASSERT_EQ(index->object_checksum(i), objects[i].checksum);
    }
  }
}

TEST(ObjectIndex, KeepsExtremeValues) {
  ObjectInfo most = object(std::string(100'000, '\xff'), UINT64_MAX - 1, "18446744073709551614");
  most.checksum = Crc32c(UINT32_MAX);
  most.updated = std::chrono::system_clock::time_point::max();
  most.component_count = UINT32_MAX;
  most.metageneration = UINT64_MAX;
  ObjectInfo least = object("a", 0);
  least.checksum = Crc32c(0);
  least.updated = std::chrono::system_clock::time_point::min();
  for (const std::vector<ObjectInfo>& objects :
       {std::vector{most}, std::vector{least}, std::vector{least, most},
        std::vector{most, least}}) {
    EXPECT_EQ(objects_of(*index_of(objects)), objects);
  }
}

TEST(ObjectIndex, AddsUpSizes) {
  EXPECT_EQ(index_of({})->total_size_bytes(), 0u);
  EXPECT_EQ(index_of({})->common_size_bytes(), std::nullopt);
  const auto equal = index_of({object("a", 5), object("b", 5)});
  EXPECT_EQ(equal->total_size_bytes(), 10u);
  EXPECT_EQ(equal->common_size_bytes(), 5u);
  const auto unequal = index_of({object("a", 5), object("b", 6)});
  EXPECT_EQ(unequal->total_size_bytes(), 11u);
  EXPECT_EQ(unequal->common_size_bytes(), std::nullopt);
}

TEST(ObjectIndex, RefusesObjectsThatCannotBe) {
  ObjectIndexBuilder nameless;
  nameless.add(object(""));
  EXPECT_EQ(std::move(nameless).build().error().code(), Code::kInvalidArgument);
  ObjectIndexBuilder huge;
  huge.add(object("a", UINT64_MAX - 1));
  huge.add(object("b", 1));
  EXPECT_EQ(std::move(huge).build().error().code(), Code::kInvalidArgument);
}

TEST(ObjectIndex, IsFilteredByEverythingThatIsAsked) {
  const auto index = index_of({object("a.jpg", 5), object("b.png", 6), object("c/a.jpg", 7),
                               object("d.txt", 8), object("e.jpg", 9)});
  EXPECT_THAT(filter(*index, {}), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(filter(*index, {.suffixes = {".jpg"}}), ElementsAre(0, 2, 4));
  EXPECT_THAT(filter(*index, {.suffixes = {".png", ".txt"}}), ElementsAre(1, 3));
  EXPECT_THAT(filter(*index, {.glob = Glob::parse("*.jpg").value()}), ElementsAre(0, 4));
  EXPECT_THAT(filter(*index, {.min_size_bytes = 6, .max_size_bytes = 8}), ElementsAre(1, 2, 3));
  EXPECT_THAT(
      filter(*index,
             {.suffixes = {".jpg"}, .glob = Glob::parse("**a*").value(), .min_size_bytes = 6}),
      ElementsAre(2));
}

TEST(ObjectIndex, LeavesOutMarkersOfFoldersAndHiddenNames) {
  const auto index =
      index_of({object(".git/a", 5), object("__MACOSX/a", 5), object("_tmp/a", 5), object("a", 0),
                object("b/", 0), object("b/.c/d", 5), object("b/c.d_e", 5), object("b/_day=1/c", 5),
                object("c/", 5), object("d_$folder$", 0), object("e//f", 5)});
  EXPECT_THAT(filter(*index, {.leave_out = ""}), ElementsAre(0, 1, 2, 3, 5, 6, 7, 8, 10));
  EXPECT_THAT(filter(*index, {.leave_out = "."}), ElementsAre(2, 3, 6, 7, 8, 10));
  EXPECT_THAT(filter(*index, {.leave_out = "._"}), ElementsAre(3, 6, 7, 8, 10));
  // What is above the names was asked for.
  EXPECT_THAT(filter(*index, {.prefix = ".git/", .leave_out = "."}), ElementsAre(0));
  EXPECT_THAT(filter(*index, {.prefix = "b/.c/d", .leave_out = "."}), ElementsAre(5));
  EXPECT_THAT(filter(*index, {.prefix = "b/", .leave_out = "."}), ElementsAre(6, 7));
}

TEST(ObjectIndex, FilteredStillComputesWhatFollowsARule) {
  constexpr uint64_t kWindows = 100'000;
  const auto objects =
      index_of({object("a.bin", 10 * kWindows), object("b.txt", 20), object("c.bin", 50)});
  const auto index = windows(*objects, 10, 10).value();
  const std::vector<size_t> positions = filter(*index, {.suffixes = {".bin"}});
  ASSERT_EQ(positions.size(), kWindows + 5);
  EXPECT_EQ(positions[kWindows - 1], kWindows - 1);
  EXPECT_EQ(positions[kWindows], kWindows + 2);
  const auto filtered = select(*index, positions).value();
  EXPECT_EQ(filtered->spacing(0).count, kWindows);
  EXPECT_LE(filtered->image().bytes().size(), index->image().bytes().size());
  EXPECT_EQ(filtered->range(kWindows + 1), (ByteRange{10, 20}));
  // In any order, and more than once.
  const std::vector<size_t> mixed = {7, 8, 8, 9, 3};
  const auto some = select(*index, mixed).value();
  ASSERT_EQ(some->size(), mixed.size());
  for (size_t i = 0; i < mixed.size(); ++i) EXPECT_EQ(some->range(i), index->range(mixed[i]));
}

// A change of either is a new version of the image: saved indexes must be read by what comes later.
TEST(ObjectIndex, HasTheImageThatItsVersionHasAlwaysHad) {
  const auto sum_of = [](const ObjectIndex& index) {
    const std::span<const std::byte> image = index.image().bytes();
    return std::pair(image.size(), Crc32c().extended(image).value());
  };
  EXPECT_EQ(sum_of(*everything()), std::pair(size_t{2'578}, 2'974'097'074u));
  EXPECT_EQ(sum_of(*index_of(assorted(5'000, 1))), std::pair(size_t{350'568}, 305'983'603u));
}

TEST(ObjectIndex, KeepsEverythingThatAnEntryCanBe) {
  for (const auto& index : {everything(), open(copy(*everything())).value()}) {
    ASSERT_EQ(index->size(), 22u);
    EXPECT_THAT(index->roots(), ElementsAre("gs://a/train", "s3://b"));
    EXPECT_EQ(index->range(5), (ByteRange{320, 384}));
    EXPECT_EQ(index->checksum(5), Checksum(Crc32c(5)));
    EXPECT_EQ(index->range(12), (ByteRange{768, 1000}));
    EXPECT_EQ(index->size_bytes(12), 232u);
    EXPECT_EQ(index->object_bytes(12), 1000u);
    EXPECT_EQ(index->checksum(12), Checksum());
    EXPECT_EQ(index->url(13), "s3://b/shard");
    EXPECT_EQ(index->size_bytes(13), 0u);
    for (uint8_t kind = 0; kind < kChecksumKindCount; ++kind) {
      const size_t i = 14u + kind;
      EXPECT_EQ(index->range(i), std::nullopt);
      EXPECT_EQ(index->size_bytes(i), kind == 3 ? kUnknownSize : kind);
      EXPECT_EQ(index->checksum(i), sum_of_kind(ChecksumKind{kind}, kind));
      EXPECT_EQ(index->root(i), kind % 2u);
      EXPECT_EQ(index->info(i).generation, "etag");
    }
    EXPECT_EQ(index->total_size_bytes(), std::nullopt);
    EXPECT_EQ(index->common_size_bytes(), std::nullopt);
    const size_t some[] = {21, 0};
    EXPECT_THAT(std::get<std::vector<int64_t>>(index->values(0, some)), ElementsAre(20993, -7));
    EXPECT_THAT(std::get<std::vector<double>>(index->values(1, some)), ElementsAre(5.25, 0));
    EXPECT_EQ(std::get<TextValues>(index->values(2, some))[0], "class 0");
    EXPECT_EQ(std::get<TextValues>(index->values(3))[21], "text 21");
    EXPECT_TRUE(std::get<TextValues>(index->values(3)).is_bytes);
    EXPECT_EQ(index->column("texts"), 3u);
    EXPECT_EQ(index->column("text"), std::nullopt);
  }
}

TEST(ObjectIndex, GivesTheSameEntriesInEveryOrder) {
  const auto index = everything();
  std::vector<size_t> positions(index->size());
  std::iota(positions.begin(), positions.end(), 0);
  std::mt19937_64 random(3);
  for (int round = 0; round < 20; ++round) {
    std::ranges::shuffle(positions, random);
    const auto shuffled = select(*index, positions).value();
    for (size_t i = 0; i < positions.size(); ++i) {
      const size_t from = positions[i];
      ASSERT_EQ(shuffled->url(i), index->url(from));
      ASSERT_EQ(shuffled->info(i), index->info(from));
      ASSERT_EQ(shuffled->range(i), index->range(from));
      ASSERT_EQ(shuffled->size_bytes(i), index->size_bytes(from));
      ASSERT_EQ(shuffled->checksum(i), index->checksum(from));
      const size_t here[] = {i}, there[] = {from};
      for (size_t column = 0; column < 2; ++column) {
        ASSERT_EQ(shuffled->values(column, here), index->values(column, there));
      }
    }
    const std::shared_ptr<const ObjectIndex> halves[] = {
        select(*shuffled, std::vector<size_t>(positions.begin(), positions.begin() + 9)).value(),
        select(*shuffled, std::vector<size_t>(positions.begin() + 9, positions.end())).value()};
    EXPECT_EQ(concat(halves).value()->fingerprint(),
              select(*shuffled, positions).value()->fingerprint());
  }
}

TEST(ObjectIndex, RefusesEntriesThatCannotBe) {
  const auto refused = [](const ObjectInfo& info, const EntryDetails& details) {
    ObjectIndexBuilder builder;
    builder.add(object("good"));
    builder.add(info, details);
    const auto built = std::move(builder).build();
    return built ? Code::kInternal : built.error().code();
  };
  for (const ByteRange range : {ByteRange{5, 11}, ByteRange{6, 5}, ByteRange{11, 11},
                                ByteRange{UINT64_MAX, 0}, ByteRange{1, UINT64_MAX}}) {
    EXPECT_EQ(refused(object("a", 10), {.range = range}), Code::kInvalidArgument) << range.begin;
  }
  EXPECT_EQ(refused(object("a", kUnknownSize), {.range = ByteRange{0, uint64_t{1} << 63}}),
            Code::kInvalidArgument);
  EXPECT_EQ(refused(object("a"), {.root = 1}), Code::kInvalidArgument);
  ObjectIndexBuilder builder;
  builder.add(object("a"));
  builder.set_column("label", std::vector<int64_t>{1, 2});
  EXPECT_THAT(std::move(builder).build().error().message(),
              HasSubstr("'label' has 2 values for 1 entries"));
}

TEST(ObjectIndex, FindsEveryName) {
  for (const size_t count : {1u, 2u, 1000u, 30'000u}) {
    const std::vector<ObjectInfo> objects = assorted(count, count);
    const auto index = index_of(objects);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(index->find(objects[i].name)->entry, i);
    EXPECT_FALSE(index->find("train/").has_value());
    EXPECT_FALSE(index->find("").has_value());
  }
  EXPECT_FALSE(index_of({})->find("a").has_value());
}

TEST(ObjectIndex, FindsNamesBelowTheirRoots) {
  ObjectIndexBuilder builder;
  const uint32_t a = builder.add_root("gs://a"), b = builder.add_root("gs://b");
  builder.add(object("one"), {.root = b});
  builder.add(object("both"), {.root = b});
  builder.add(object("both"), {.root = a});
  builder.add(object("both"), {.root = a});
  const auto index = std::move(builder).build().value();
  EXPECT_EQ(index->find("one")->entry, 0u);
  EXPECT_EQ(index->find("one")->other_roots, 0u);
  EXPECT_FALSE(index->find("one", a).has_value());
  EXPECT_EQ(index->find("both")->entry, 1u);
  EXPECT_EQ(index->find("both")->other_roots, 1u);
  EXPECT_EQ(index->find("both", a)->entry, 2u);  // the first of two
  EXPECT_THAT(index->find_all("both"), ElementsAre(1, 2));
}

TEST(ObjectIndex, FindsTheFirstOfManyRangesOfAnObject) {
  ObjectIndexBuilder builder;
  for (uint64_t i = 0; i < 100'000; ++i) {
    builder.add(object(i < 50'000 ? "a" : "b", 1 << 20), {.range = ByteRange{i, i + i % 7}});
  }
  const auto index = std::move(builder).build().value();
  EXPECT_EQ(index->find("a")->entry, 0u);
  EXPECT_EQ(index->find("b")->entry, 50'000u);
}

TEST(ObjectIndex, SaysTheSameToManyThreadsThatAskFirst) {
  const std::vector<ObjectInfo> objects = assorted(20'000, 9);
  const auto index = index_of(objects);
  std::vector<std::jthread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t i = thread; i < objects.size(); i += 97) {
        ASSERT_EQ(index->find(objects[i].name)->entry, i);
      }
    });
  }
}

// Runs of tokens: nothing is stored for each.
TEST(ObjectIndex, ComputesRangesThatFollowARule) {
  constexpr uint64_t kShards = 50, kEach = 20'000, kBytes = 4096, kTail = 1000;
  ObjectIndexBuilder builder;
  for (uint64_t shard = 0; shard < kShards; ++shard) {
    const ObjectInfo info = object(cat("tokens-", shard), kEach * kBytes + kTail, "7");
    for (uint64_t i = 0; i < kEach; ++i) {
      builder.add(info, {.range = ByteRange{i * kBytes, (i + 1) * kBytes}});
    }
    builder.add(info, {.range = ByteRange{kEach * kBytes, kEach * kBytes + kTail}});
  }
  const auto index = std::move(builder).build().value();
  ASSERT_EQ(index->size(), kShards * (kEach + 1));
  EXPECT_LT(index->image().bytes().size(), 4000u);
  for (uint64_t shard = 0; shard < kShards; ++shard) {
    for (const uint64_t i : {uint64_t{0}, uint64_t{1}, kEach / 2, kEach - 1}) {
      const size_t entry = shard * (kEach + 1) + i;
      ASSERT_EQ(index->range(entry), (ByteRange{i * kBytes, (i + 1) * kBytes}));
      ASSERT_EQ(index->info(entry).name, cat("tokens-", shard));
    }
    const size_t last = shard * (kEach + 1) + kEach;
    ASSERT_EQ(index->range(last), (ByteRange{kEach * kBytes, kEach * kBytes + kTail}));
  }
  EXPECT_EQ(index->total_size_bytes(), kShards * (kEach * kBytes + kTail));
}

// Entries one by one, and the same entries by their rule.
TEST(ObjectIndex, IsTheSameWhetherEntriesComeOneByOneOrByTheirRule) {
  std::mt19937_64 random(23);
  for (int round = 0; round < 300; ++round) {
    ObjectIndexBuilder singly, by_rule;
    size_t count = 0;
    for (size_t row = 0; row < 1 + random() % 6; ++row) {
      const ObjectInfo info = object(cat("o", random() % 2), 10'000);
      EntryDetails details{.count = 1 + random() % 5, .stride_bytes = random() % 4};
      // Also whole objects, ranges that continue those before, and equal ones.
      const uint64_t begin = random() % 3 * 4;
      if (random() % 4 != 0) details.range = ByteRange{begin, begin + random() % 2};
      if (!details.range) details.stride_bytes = 0;
      by_rule.add(info, details);
      count += details.count;
      for (uint64_t i = 0; i < details.count; ++i) {
        EntryDetails one;
        const uint64_t way = i * details.stride_bytes;
        if (details.range) one.range = ByteRange{begin + way, details.range->end + way};
        singly.add(info, one);
      }
    }
    const auto expected = std::move(singly).build().value(),
               index = std::move(by_rule).build().value();
    ASSERT_EQ(index->size(), count);
    if (expected->has_ranges() == index->has_ranges()) ASSERT_EQ(copy(*index), copy(*expected));
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(index->range(i), expected->range(i));
      ASSERT_EQ(index->info(i).name, expected->info(i).name);
    }
    ASSERT_EQ(index->total_size_bytes(), expected->total_size_bytes());
    ASSERT_EQ(open(copy(*index)).value()->size(), count);
    // What is made of it entry by entry, by rules, or of two parts is the same.
    const size_t middle = random() % (count + 1);
    const std::array parts = {slice(*index, 0, middle).value(),
                              slice(*index, middle, count).value()};
    for (const auto& made : {concat(parts).value(), rebased(index, "").value(),
                             at_roots(*index, std::array{std::string()}, true).value()}) {
      ASSERT_EQ(made->size(), count);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(made->range(i), index->range(i));
    }
  }
}

// 10^9 samples of tokens, in memory and time of their files.
TEST(ObjectIndex, HasWindowsThatTakeNoMemory) {
  constexpr uint64_t kFiles = 20, kWindows = 50'000'000, kStride = 4096, kWindow = 4098;
  ObjectIndexBuilder builder;
  for (uint64_t i = 0; i < kFiles; ++i) {
    const uint64_t size = (kWindows - 1) * kStride + kWindow + 7;
    builder.add(object(cat("tokens-", i), size + 80, "7"), {.range = ByteRange{80, 80 + size}});
  }
  builder.add(object("short", kWindow - 1), {});
  builder.add_root("gs://b/tokens");
  const auto files = std::move(builder).build().value();
  const auto index = windows(*files, kWindow, kStride).value();
  ASSERT_EQ(index->size(), kFiles * kWindows);
  EXPECT_LT(index->image().bytes().size(), 2000u);
  EXPECT_EQ(index->common_size_bytes(), kWindow);
  EXPECT_EQ(index->range(0), (ByteRange{80, 80 + kWindow}));
  const size_t last = kFiles * kWindows - 1;
  EXPECT_EQ(index->range(last),
            (ByteRange{80 + (kWindows - 1) * kStride, 80 + (kWindows - 1) * kStride + kWindow}));
  EXPECT_EQ(index->info(last).name, "tokens-19");
  EXPECT_EQ(index->info(kWindows).generation, "7");

  const std::string fingerprint = index->fingerprint();
  EXPECT_EQ(fingerprint, index->fingerprint());
  const auto moved = at_roots(*index, std::array{std::string("gs://c")}, false).value();
  EXPECT_EQ(moved->fingerprint(), fingerprint);
  EXPECT_EQ(rebased(index, "gs://b").value()->url(last), "gs://b/tokens/tokens-19");
  EXPECT_EQ(open(copy(*index)).value()->fingerprint(), fingerprint);
  const std::array both = {slice(*index, 0, kWindows + 5).value(),
                           slice(*index, kWindows + 5, index->size()).value()};
  EXPECT_EQ(both[0]->size(), kWindows + 5);
  EXPECT_EQ(concat(both).value()->fingerprint(), fingerprint);
  EXPECT_NE(windows(*files, kWindow, kStride + 1).value()->fingerprint(), fingerprint);
}

TEST(ObjectIndex, HasWindowsInPartsOfItsEntries) {
  ObjectIndexBuilder builder;
  builder.add(object("a", 100), {});
  builder.add(object("a", 100), {.range = ByteRange{40, 60}});
  builder.add(object("b", 100), {});
  const std::vector<ByteRange> parts = {{10, 30}, {5, 20}, {95, 100}};
  const auto index = windows(*std::move(builder).build().value(), 10, 5, parts).value();
  std::vector<ByteRange> found;
  for (size_t i = 0; i < index->size(); ++i) found.push_back(*index->range(i));
  EXPECT_THAT(found, ElementsAre(ByteRange{10, 20}, ByteRange{15, 25}, ByteRange{20, 30},
                                 ByteRange{45, 55}, ByteRange{50, 60}));
}

TEST(ObjectIndex, HasWindowsOfKnownSizesAlone) {
  const auto refusal = [](const ObjectInfo& info, uint64_t window, uint64_t stride) {
    return windows(*index_of({info}), window, stride).error().message();
  };
  EXPECT_THAT(refusal(object("a", kUnknownSize), 1, 1), HasSubstr("its size is not known"));
  EXPECT_THAT(refusal(object("a", 5), 0, 1), HasSubstr("at least 1"));
  EXPECT_THAT(refusal(object("a", 5), 1, 0), HasSubstr("at least 1"));
  const auto refusal_of_parts = [](const std::vector<ByteRange>& parts) {
    return windows(*index_of({object("a", 5)}), 1, 1, parts).error().message();
  };
  EXPECT_THAT(refusal_of_parts({{0, 6}}), HasSubstr("[0, 6) lies outside of entry 0"));
  EXPECT_THAT(refusal_of_parts({{3, 2}}), HasSubstr("[3, 2) lies outside of entry 0"));
  EXPECT_THAT(refusal_of_parts({{0, 1}, {0, 1}}), HasSubstr("2 parts of 1 entries"));
  EXPECT_EQ(windows(*index_of({object("a", 5)}), 6, 1).value()->size(), 0u);
  EXPECT_EQ(windows(*index_of({object("a", 5)}), 5, 1).value()->size(), 1u);
  EXPECT_EQ(windows(*index_of({object("a", 5)}), 2, 2).value()->size(), 2u);
}

// Members of tars: their offsets and sizes follow no rule.
TEST(ObjectIndex, TakesAtMostSixteenBytesForARange) {
  std::mt19937_64 random(11);
  ObjectIndexBuilder builder;
  size_t count = 0;
  for (uint64_t shard = 0; shard < 1000; ++shard) {
    const ObjectInfo info = object(cat("train/shard-", shard, ".tar"), 1'000'000'000, "7");
    for (uint64_t at = 512; count < (shard + 1) * 500; ++count) {
      const uint64_t size = 1000 + random() % 900'000;
      builder.add(info, {.range = ByteRange{at, at + size},
                         .range_checksum = Checksum(Crc32c(static_cast<uint32_t>(random())))});
      at += (size + 1023) / 512 * 512;
    }
  }
  const double per_entry =
      static_cast<double>(std::move(builder).build().value()->image().bytes().size()) /
      static_cast<double>(count);
  std::printf("%.1f bytes a range with its CRC32C\n", per_entry);
  EXPECT_LE(per_entry, 16);
}

TEST(ObjectIndex, PassesOverTheBytesOfAnImageThatIsKnown) {
  std::vector<std::byte> image = copy(*index_of(assorted(20'000, 12)));
  image[image.size() / 2] ^= std::byte{1};
  EXPECT_FALSE(open(image).has_value());
  const auto known =
      ObjectIndex::open(SharedBytes::copy_of(image).value(), ImageReader::Known::kGood);
  ASSERT_TRUE(known.has_value());
  EXPECT_EQ((*known)->size(), 20'000u);
}

TEST(ObjectIndex, IsTheSameAtAnotherRoot) {
  const auto index = everything();
  const std::string copies[] = {"gs://copy/train", "file:///data"};
  const auto moved = at_roots(*index, copies, /*keep_generations=*/false).value();
  EXPECT_EQ(moved->url(0), "gs://copy/train/shard");
  EXPECT_EQ(moved->url(13), "file:///data/shard");
  EXPECT_EQ(moved->info(0).generation, "");
  EXPECT_EQ(moved->fingerprint(), index->fingerprint());
  EXPECT_EQ(moved->values(0), index->values(0));
  EXPECT_EQ(at_roots(*index, copies, true).value()->info(20).generation, "etag");
}

TEST(ObjectIndex, IsRebasedWithinItsBucketOnly) {
  const auto at = [](const std::string& root, const std::vector<ObjectInfo>& objects) {
    ObjectIndexBuilder builder;
    builder.add_root(root);
    for (const ObjectInfo& each : objects) builder.add(each);
    return std::move(builder).build().value();
  };
  const auto index = at("gs://a/b", {object("c/1"), object("c/2"), object("d"), object("c/")});
  EXPECT_EQ(rebased(index, "gs://a/b").value(), index);
  const auto wider = rebased(index, "gs://a").value();
  EXPECT_EQ(wider->info(0).name, "b/c/1");
  EXPECT_EQ(wider->url(0), index->url(0));
  const auto narrower = rebased(at("gs://a/b", {object("c/1")}), "gs://a/b/c").value();
  EXPECT_EQ(narrower->info(0).name, "1");
  EXPECT_THAT(rebased(index, "gs://a/b/c").error().message(),
              HasSubstr("2 of the 4 entries of the index lie outside of gs://a/b/c, such as "
                        "gs://a/b/d"));
  EXPECT_THAT(rebased(index, "gs://a/bc").error().message(), HasSubstr("4 of the 4 entries"));
  EXPECT_THAT(rebased(index, "gs://ab").error().message(), HasSubstr("index.at('gs://ab')"));
  EXPECT_EQ(rebased(index_of({object("x")}), "gs://any").value()->url(0), "gs://any/x");
}

TEST(ObjectIndex, KeepsBooleansInAByteEachAndEqualOnesInNone) {
  const auto plain = everything();
  std::vector<bool> mixed(plain->size(), true);
  mixed[3] = false;
  const std::vector<bool> equal(plain->size(), true);
  const auto with = with_columns(*plain, {{"mixed", mixed}, {"equal", equal}}, {}).value();
  const auto reopened = open(copy(*with)).value();
  const size_t mixed_at = *reopened->column("mixed"), equal_at = *reopened->column("equal");
  EXPECT_EQ(reopened->values(mixed_at), ColumnValues(mixed));
  EXPECT_EQ(reopened->values(equal_at), ColumnValues(equal));
  const size_t some[] = {3, 2};
  EXPECT_EQ(reopened->values(mixed_at, some), ColumnValues(std::vector<bool>{false, true}));
  EXPECT_EQ(select(*reopened, some).value()->values(mixed_at),
            ColumnValues(std::vector<bool>{false, true}));
  const auto more = with_columns(*plain, {{"mixed", equal}, {"equal", equal}}, {}).value();
  EXPECT_EQ(with->image().bytes().size() - more->image().bytes().size(), plain->size());
}

TEST(ObjectIndex, JoinsOnlyIndexesOfTheSameColumns) {
  const auto plain = index_of({object("a")});
  const auto with = with_columns(*plain, {{"label", std::vector<int64_t>{1}}}, {}).value();
  const auto other = with_columns(*plain, {{"label", std::vector<double>{1}}}, {}).value();
  using Indexes = std::vector<std::shared_ptr<const ObjectIndex>>;
  EXPECT_THAT(concat(Indexes{plain, with}).error().message(), HasSubstr("has a column 'label'"));
  EXPECT_THAT(concat(Indexes{with, plain}).error().message(), HasSubstr("has no column 'label'"));
  EXPECT_THAT(concat(Indexes{with, other}).error().message(),
              HasSubstr("index 1 holds float, of those before it int"));
  const auto truths = with_columns(*plain, {{"label", std::vector<bool>{true}}}, {}).value();
  EXPECT_THAT(concat(Indexes{with, truths}).error().message(),
              HasSubstr("index 1 holds bool, of those before it int"));
  EXPECT_EQ(concat(Indexes{with, with}).value()->size(), 2u);
  EXPECT_EQ(concat(Indexes{}).value()->size(), 0u);
  const std::string dropped[] = {"label"};
  EXPECT_EQ(with_columns(*with, {}, dropped).value()->column_count(), 0u);
}

std::shared_ptr<const ObjectIndex> million(bool numbers) {
  std::mt19937_64 random(7);
  ObjectIndexBuilder builder;
  for (size_t i = 0; i < 1'000'000; ++i) {
    std::array<char, 64> name{};
    std::snprintf(name.data(), name.size(), "train/shard-%06zu/sample-%07zu.jpg", i / 1000, i);
    ObjectInfo each = object(name.data(), 50'000 + random() % 200'000);
    each.generation = numbers
                          ? std::to_string(1'763'000'000'000'000 + random() % 86'400'000'000'000)
                          : cat(2049, "-", 10'000'000 + i, "-", each.size_bytes, "-",
                                1'763'000'000'000'000'000 + random() % 86'400'000'000'000'000);
    each.checksum = Crc32c(static_cast<uint32_t>(random()));
    builder.add(each);
  }
  return std::move(builder).build().value();
}

TEST(ObjectIndex, TakesFewBytesForAMillionNames) {
  const std::shared_ptr<const ObjectIndex> gcs = million(true);
  std::string name;
  gcs->append_name(123'456, name);
  ASSERT_EQ(name, "train/shard-000123/sample-0123456.jpg");
  const double per_name = static_cast<double>(gcs->image().bytes().size()) / 1e6;
  std::printf("%.1f bytes a name with numbers as generations\n", per_name);
  EXPECT_LE(per_name, 32);
  const double per_file = static_cast<double>(million(false)->image().bytes().size()) / 1e6;
  std::printf("%.1f bytes a name with files' generations\n", per_file);
  EXPECT_LE(per_file, 64);
}

TEST(ObjectIndex, HasAFingerprintOfNamesRangesSizesAndChecksums) {
  std::vector<ObjectInfo> objects = {object("a", 1, "7"), object("b", 2, "8")};
  objects[0].checksum = Crc32c(5);
  const std::string fingerprint = index_of(objects)->fingerprint();
  EXPECT_EQ(fingerprint, "9b06b8a0281ad88319f3519ed2d22b9c");  // saved states hold it
  // Copied to another bucket, an object is of another generation, and the data are the same.
  std::vector<ObjectInfo> other = objects;
  other[0].generation = "9";
  other[1].content_type = "image/png";
  EXPECT_EQ(index_of(other)->fingerprint(), fingerprint);
  ObjectIndexBuilder elsewhere;
  elsewhere.add_root("gs://elsewhere");
  for (const ObjectInfo& each : objects) elsewhere.add(each);
  EXPECT_EQ(std::move(elsewhere).build().value()->fingerprint(), fingerprint);
  for (const std::vector<ObjectInfo>& changed :
       {std::vector{objects[0]}, std::vector{objects[0], object("c", 2)},
        std::vector{objects[0], object("b", 3)}, std::vector{object("a", 1), objects[1]},
        std::vector{objects[1], objects[0]}}) {
    EXPECT_NE(index_of(changed)->fingerprint(), fingerprint);
  }
  std::vector<std::string> of_ranges;
  for (const std::optional<ByteRange>& range :
       {std::optional<ByteRange>(), std::optional(ByteRange{0, 1}), std::optional(ByteRange{0, 0}),
        std::optional(ByteRange{1, 1})}) {
    ObjectIndexBuilder builder;
    builder.add(objects[0], {.range = range});
    of_ranges.push_back(std::move(builder).build().value()->fingerprint());
  }
  std::ranges::sort(of_ranges);
  EXPECT_EQ(std::ranges::unique(of_ranges).size(), 0u);
}

TEST(ObjectIndex, IsOpenedFromItsImage) {
  const std::vector<ObjectInfo> objects = assorted(5000, 3);
  ObjectIndexBuilder builder;
  for (const ObjectInfo& each : objects) builder.add(each);
  builder.add_root("gs://b/p");
  const std::shared_ptr<const ObjectIndex> index =
      open(copy(*std::move(builder).build().value())).value();
  EXPECT_EQ(objects_of(*index), objects);
  EXPECT_THAT(index->roots(), ElementsAre("gs://b/p"));
}

TEST(ObjectIndex, RefusesACutImage) {
  const std::vector<std::byte> image = copy(*index_of(assorted(20, 4)));
  for (size_t size = 0; size < image.size(); ++size) {
    const auto cut = open({image.begin(), image.begin() + static_cast<ptrdiff_t>(size)});
    ASSERT_FALSE(cut.has_value()) << size;
    EXPECT_EQ(cut.error().code(), Code::kCorrupt);
  }
  std::vector<std::byte> longer = image;
  longer.push_back(std::byte{0});
  EXPECT_THAT(open(longer).error().message(), HasSubstr("and says that it has"));
}

TEST(ObjectIndex, RefusesAFlippedBit) {
  const std::vector<std::byte> image = copy(*index_of(assorted(20, 5)));
  for (size_t bit = 0; bit < image.size() * 8; ++bit) {
    std::vector<std::byte> flipped = image;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const auto opened = open(flipped);
    ASSERT_FALSE(opened.has_value()) << bit;
    EXPECT_EQ(opened.error().code(), Code::kCorrupt);
  }
}

TEST(ObjectIndex, RefusesOtherVersions) {
  for (const int version : {0, 1, 3, 255}) {
    std::vector<std::byte> image = copy(*index_of(assorted(20, 6)));
    image[8] = static_cast<std::byte>(version);
    const auto opened = open(image);
    ASSERT_FALSE(opened.has_value());
    EXPECT_THAT(opened.error().message(),
                HasSubstr(cat("has version ", version, "; this headrace reads version 2: ",
                              version < 2 ? "an older one" : "a newer one", " wrote it")));
  }
}

// One object "n" of 100 bytes in the first of these roots, which are all "", and this many entries
// that are all of it: by hand, since a builder takes neither.
std::vector<std::byte> few_bytes(uint64_t root_count, uint64_t entry_count,
                                 ChecksumKind kind = ChecksumKind::kNone) {
  ImageWriter writer;
  const auto equal = [&writer](uint64_t value) { writer.column(std::array{value}); };
  const auto empty_texts = [&] {
    writer.number(0);
    writer.number(0);
    for (int i = 0; i < 3; ++i) equal(0);
  };
  const auto sums = [&](ChecksumKind of_all) {
    equal(static_cast<uint64_t>(of_all));
    equal(0);
    writer.number(0);
    writer.fixed_column(0, {});
  };
  writer.number(entry_count);
  writer.number(root_count);
  writer.number(1);
  empty_texts();
  equal(0);
  writer.text_column(1, [](const ImageWriter::TextSink& put) { put("n"); });
  equal(101);
  equal(0);
  writer.number(0);
  empty_texts();
  sums(ChecksumKind::kNone);
  for (int i = 0; i < 3; ++i) equal(0);
  for (int i = 0; i < 3; ++i) {
    writer.number(1);
    empty_texts();
    equal(0);
  }
  writer.number(1);
  writer.number(1);
  for (int i = 0; i < 5; ++i) equal(0);
  sums(kind);
  writer.number(0);
  empty_texts();
  const bool adds_up = entry_count < UINT64_MAX / 100;
  writer.number(adds_up ? entry_count * 100 + 1 : 1);
  return std::move(writer).finish();
}

TEST(ObjectIndex, RefusesMoreRootsThanItsImageHasBytes) {
  const auto opened = open(few_bytes(10'000, 1));
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().message(),
            "the object index says that it has more roots than it can have");
}

TEST(ObjectIndex, HasAFingerprintThatCanBeGivenUp) {
  // What follows a rule is taken in at once. Entries with checksums follow none.
  const auto by_rule = open(few_bytes(1, uint64_t{1} << 56)).value();
  EXPECT_TRUE(Fingerprint(*by_rule).take(1));
  const auto endless = open(few_bytes(1, uint64_t{1} << 56, ChecksumKind::kCrc32c)).value();
  Fingerprint part(*endless);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(part.take(1000));
  const std::shared_ptr<const ObjectIndex> index = index_of(assorted(5000, 9));
  Fingerprint steps(*index);
  int count = 1;
  while (!steps.take(999)) ++count;
  EXPECT_EQ(count, 6);
  EXPECT_EQ(std::move(steps).finish(), index->fingerprint());
}

// A sum protects against accidents, not against somebody who computes it anew.
TEST(ObjectIndex, NeverLeavesAnImageThatWasMadeToMislead) {
  for (const bool with_everything : {false, true}) {
    const std::vector<std::byte> image =
        copy(with_everything ? *everything() : *index_of(assorted(40, 8)));
    constexpr std::array<uint8_t, 4> kValues = {0, 1, 0x7F, 0xFF};
    size_t opened_count = 0;
    for (size_t at = 16; at < image.size(); ++at) {
      for (const uint8_t value : kValues) {
        std::vector<std::byte> changed = image;
        changed[at] = static_cast<std::byte>(value);
        const uint32_t sum = Crc32c().extended(std::span(changed).subspan(16)).value();
        std::memcpy(changed.data() + 12, &sum, sizeof(sum));
        const auto opened = open(changed);
        if (!opened) {
          EXPECT_EQ(opened.error().code(), Code::kCorrupt);
          continue;
        }
        ++opened_count;
        // A few bytes can stand for many entries that are all alike.
        if ((*opened)->size() > 1000) continue;
        const std::vector<ObjectInfo> objects = objects_of(**opened);
        EXPECT_EQ((*opened)->fingerprint().size(), 32u);
        for (size_t i = 0; i < (*opened)->size(); ++i) {
          EXPECT_LE((*opened)->range(i).value_or(ByteRange{}).end, (*opened)->object_bytes(i));
          EXPECT_LT((*opened)->root(i), (*opened)->roots().size());
          EXPECT_TRUE((*opened)->find(objects[i].name).has_value());
        }
        for (size_t i = 0; i < (*opened)->column_count(); ++i) (*opened)->values(i);
      }
    }
    EXPECT_GT(opened_count, 0u);
  }
}

}  // namespace
}  // namespace headrace
