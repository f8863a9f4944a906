#include "headrace/dataset/object_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const ObjectIndex> index_of(const std::vector<ObjectInfo>& objects) {
  ObjectIndexBuilder builder;
  for (const ObjectInfo& object : objects) builder.add(object);
  return builder.build().value();
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
    if (below(2) == 0) each.crc32c = Crc32c(static_cast<uint32_t>(random()));
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
      ASSERT_EQ(index->crc32c(i), objects[i].crc32c);
    }
  }
}

TEST(ObjectIndex, KeepsExtremeValues) {
  ObjectInfo most = object(std::string(100'000, '\xff'), UINT64_MAX, "18446744073709551614");
  most.crc32c = Crc32c(UINT32_MAX);
  most.updated = std::chrono::system_clock::time_point::max();
  most.component_count = UINT32_MAX;
  most.metageneration = UINT64_MAX;
  ObjectInfo least = object("a", 0);
  least.crc32c = Crc32c(0);
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
  EXPECT_EQ(nameless.build().error().code(), Code::kInvalidArgument);
  ObjectIndexBuilder huge;
  huge.add(object("a", UINT64_MAX));
  huge.add(object("b", 1));
  EXPECT_EQ(huge.build().error().code(), Code::kInvalidArgument);
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

TEST(ObjectIndex, JoinsWhatSeveralBuildersCollected) {
  const std::vector<ObjectInfo> objects = assorted(30'000, 1);
  ObjectIndexBuilder joined;
  joined.set_source("gs://bucket", "train/");
  size_t next = 0;
  for (const size_t count : {0u, 10'000u, 1u, 0u, 9'999u, 10'000u}) {
    ObjectIndexBuilder part;
    for (size_t i = 0; i < count; ++i) part.add(objects[next++]);
    joined.append(std::move(part));
    EXPECT_EQ(joined.size(), next);
  }
  const std::shared_ptr<const ObjectIndex> index = joined.build().value();
  EXPECT_EQ(objects_of(*index), objects);
  EXPECT_EQ(index->store_url(), "gs://bucket");
  EXPECT_EQ(index->prefix(), "train/");
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
    each.crc32c = Crc32c(static_cast<uint32_t>(random()));
    builder.add(each);
  }
  return builder.build().value();
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

TEST(ObjectIndex, HasAFingerprintOfNamesSizesAndGenerations) {
  const std::vector<ObjectInfo> objects = {object("a", 1, "7"), object("b", 2, "8")};
  const std::string fingerprint = index_of(objects)->fingerprint();
  EXPECT_EQ(fingerprint, "fe4d0c406992df305ee54363007cadff");  // saved states hold it
  std::vector<ObjectInfo> other = objects;
  other[0].crc32c = Crc32c(5);
  other[1].content_type = "image/png";
  EXPECT_EQ(index_of(other)->fingerprint(), fingerprint);
  for (const std::vector<ObjectInfo>& changed :
       {std::vector{object("a", 1, "7")}, std::vector{object("a", 1, "7"), object("c", 2, "8")},
        std::vector{object("a", 1, "7"), object("b", 3, "8")},
        std::vector{object("a", 1, "7"), object("b", 2, "9")},
        std::vector{object("b", 2, "8"), object("a", 1, "7")}}) {
    EXPECT_NE(index_of(changed)->fingerprint(), fingerprint);
  }
}

TEST(ObjectIndex, IsOpenedFromItsImage) {
  const std::vector<ObjectInfo> objects = assorted(5000, 3);
  ObjectIndexBuilder builder;
  for (const ObjectInfo& each : objects) builder.add(each);
  builder.set_source("gs://b", "p/");
  const std::shared_ptr<const ObjectIndex> index = open(copy(*builder.build().value())).value();
  EXPECT_EQ(objects_of(*index), objects);
  EXPECT_EQ(index->store_url(), "gs://b");
  EXPECT_EQ(index->prefix(), "p/");
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

TEST(ObjectIndex, RefusesANewerVersion) {
  std::vector<std::byte> image = copy(*index_of(assorted(20, 6)));
  image[8] = std::byte{2};
  EXPECT_THAT(open(image).error().message(),
              HasSubstr("has version 2; this headrace reads version 1"));
}

// A sum protects against accidents, not against somebody who computes it anew.
TEST(ObjectIndex, NeverLeavesAnImageThatWasMadeToMislead) {
  const std::vector<std::byte> image = copy(*index_of(assorted(40, 8)));
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
      EXPECT_EQ(objects_of(**opened).size(), (*opened)->size());
      EXPECT_EQ((*opened)->fingerprint().size(), 32u);
    }
  }
  EXPECT_GT(opened_count, 0u);
}

}  // namespace
}  // namespace headrace
