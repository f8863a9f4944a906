#include "headrace/dataset/pack_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "headrace/dataset/shard_samples.h"
#include "headrace/dataset/tar_members.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Object {
  std::string name;
  uint64_t size_bytes = 100;
  std::string root = "gs://bucket";
};

std::shared_ptr<const ObjectIndex> index_of(const std::vector<Object>& objects) {
  ObjectIndexBuilder builder;
  for (const Object& object : objects) {
    const uint32_t root = builder.add_root(object.root);
    const ObjectInfo info{.name = object.name, .size_bytes = object.size_bytes};
    builder.add(info, {.root = root});
  }
  return std::move(builder).build().value();
}

std::shared_ptr<const ObjectIndex> numbered(size_t count, uint64_t size_bytes = 100) {
  std::vector<Object> objects;
  for (size_t i = 0; i < count; ++i) objects.push_back({cat(i, ".jpg"), size_bytes});
  return index_of(objects);
}

// The tar that a plan makes of all its samples, with the number of its entry in each byte of data.
std::string packed(const PackPlan& plan) {
  const PackPlan::Piece all = plan.piece({.end = plan.sample_count()}, UINT64_MAX);
  std::string out(all.size_bytes, '?');
  const PackPlan::Layout layout = plan.lay_out(all, std::as_writable_bytes(std::span(out))).value();
  for (size_t i = 0; i < layout.places.size(); ++i) {
    out.replace(layout.places[i], 100, 100, static_cast<char>('0' + layout.entries[i]));
  }
  return out + std::string(1024, '\0');
}

std::vector<std::string> contents(const std::string& tar) {
  std::vector<std::string> out;
  for (const TarMember& member : tar_members(std::as_bytes(std::span(tar))).value()) {
    out.push_back(cat(member.name, ":", tar.substr(member.data_offset, 1)));
  }
  return out;
}

std::vector<size_t> shard_sizes(const PackPlan& plan) {
  std::vector<size_t> out;
  for (size_t i = 0; i < plan.shard_count(); ++i) out.push_back(plan.shard(i).size());
  return out;
}

MATCHER_P2(RefusesAt, url, text, "") {
  if (arg) return false;
  *result_listener << arg.error().to_string();
  return arg.error().code() == Code::kInvalidArgument &&
         ::testing::ExplainMatchResult(::testing::AllOf(HasSubstr(url), HasSubstr(text)),
                                       arg.error().to_string(), result_listener);
}

TEST(PackPlan, EntriesOfOneKeyAreOneSampleWhereverTheyAre) {
  // "a.b/c.jpg" comes between the fields of "a" in a listing.
  const auto index = index_of({{"a.a"}, {"a.b/c.jpg"}, {"a.jpg"}, {"README"}, {".hidden"}});
  const PackPlan plan = PackPlan::make(index, {}).value();
  EXPECT_EQ(plan.sample_count(), 2);
  EXPECT_THAT(contents(packed(plan)), ElementsAre("a.a:0", "a.jpg:2", "a.b/c.jpg:1"));
  EXPECT_EQ(plan.left_out_count(), 2);
  EXPECT_EQ(plan.first_left_out(), "README");
}

TEST(PackPlan, ALabelIsAFieldBehindTheOthers) {
  const auto index =
      with_columns(*index_of({{"a.jpg"}, {"b.jpg"}}), {{"label", std::vector<int64_t>{7, 12}}}, {})
          .value();
  const PackPlan plan = PackPlan::make(index, {.label = "label"}).value();
  EXPECT_THAT(contents(packed(plan)), ElementsAre("a.jpg:0", "a.cls:7", "b.jpg:1", "b.cls:1"));
  EXPECT_THAT(plan.describe(plan.piece({.begin = 1, .end = 2}, 0))[0].label,
              ::testing::Optional(std::string("12")));
}

TEST(PackPlan, TheFilesThatItAddsAreThoseOfTheTar) {
  const auto index = index_of({{"a.jpg"}, {std::string(120, 'n') + ".jpg"}, {"ü.jpg"}});
  const PackPlan plan = PackPlan::make(index, {}).value();
  const std::string tar = packed(plan);
  TarFiles files;
  const PackPlan::Piece first = plan.piece({.end = 1}, 1);
  plan.add_files(first, 0, files);
  plan.add_files(plan.piece({.begin = 1, .end = 3}, UINT64_MAX), first.size_bytes, files);
  const std::vector<TarMember> members = tar_members(std::as_bytes(std::span(tar))).value();
  ASSERT_EQ(files.size(), members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    EXPECT_EQ(files.name(i), members[i].name);
    EXPECT_EQ(files.range(i).begin, members[i].data_offset);
    EXPECT_EQ(files.range(i).size_bytes(), 100);
  }
}

TEST(PackPlan, ShardsEndBeforeTheyAreTooLarge) {
  // A header, one block of data, and two blocks at the end.
  EXPECT_THAT(
      shard_sizes(PackPlan::make(numbered(7), {.max_shard_bytes = 3 * 1024 + 1024}).value()),
      ElementsAre(3, 3, 1));
  EXPECT_THAT(shard_sizes(PackPlan::make(numbered(7), {.max_shard_bytes = 4095}).value()),
              ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(shard_sizes(PackPlan::make(numbered(5), {.max_shard_samples = 2}).value()),
              ElementsAre(2, 2, 1));
}

TEST(PackPlan, ASampleThatIsTooLargeHasAShardOfItsOwn) {
  const auto index = index_of({{"a.x", 1}, {"b.x", 50'000}, {"c.x", 1}, {"d.x", 1}});
  EXPECT_THAT(shard_sizes(PackPlan::make(index, {.max_shard_bytes = 10'000}).value()),
              ElementsAre(1, 1, 2));
}

TEST(PackPlan, PiecesCoverAShardWithoutOverlap) {
  const PackPlan plan = PackPlan::make(numbered(100), {}).value();
  uint64_t size_bytes = 0;
  size_t pieces = 0;
  for (PackPlan::Samples left = plan.shard(0); left.size() > 0; ++pieces) {
    const PackPlan::Piece piece = plan.piece(left, 10'000);
    EXPECT_EQ(piece.samples.begin, left.begin);
    EXPECT_LE(piece.size_bytes, 10'000);
    size_bytes += piece.size_bytes;
    left.begin = piece.samples.end;
  }
  EXPECT_EQ(pieces, 12);  // of nine samples each
  EXPECT_EQ(size_bytes, 100 * 1024);
  EXPECT_EQ(plan.source_bytes(plan.shard(0)), 100 * 100);
}

TEST(PackPlan, APieceIsThePartOfAShardThatALargerOneHasThere) {
  // More samples than are gathered at a time, of one or two entries, with labels.
  std::vector<Object> objects;
  std::vector<int64_t> labels;
  for (size_t i = 0; i < 150; ++i) {
    objects.push_back({cat(i, ".a")});
    labels.push_back(static_cast<int64_t>(i));
    if (i % 3 != 0) continue;
    objects.push_back({cat(i, ".b")});
    labels.push_back(-1);
  }
  const auto index = with_columns(*index_of(objects), {{"label", labels}}, {}).value();
  const PackPlan plan =
      PackPlan::make(index, {.shuffle = true, .seed = 3, .label = "label"}).value();
  const auto tar_of = [&plan](const PackPlan::Piece& piece) {
    std::string out(piece.size_bytes, '?');
    EXPECT_TRUE(plan.lay_out(piece, std::as_writable_bytes(std::span(out))));
    return out;
  };
  const PackPlan::Piece all = plan.piece(plan.shard(0), UINT64_MAX);
  std::string joined;
  size_t described = 0;
  for (PackPlan::Samples left = plan.shard(0); left.size() > 0;) {
    const PackPlan::Piece piece = plan.piece(left, 200'000);
    joined += tar_of(piece);
    for (const PackPlan::Sample& each : plan.describe(piece)) {
      EXPECT_EQ(each.key, plan.describe(all)[described].key);
      EXPECT_EQ(each.label, each.key);
      ++described;
    }
    left.begin = piece.samples.end;
  }
  EXPECT_EQ(described, 150);
  EXPECT_EQ(joined, tar_of(all));
}

TEST(PackPlan, AShuffledPlanHasEachSampleOnceAndIsTheSameEachTime) {
  const auto order_of = [](uint64_t seed) {
    const PackPlan plan = PackPlan::make(numbered(5000), {.shuffle = true, .seed = seed}).value();
    std::vector<std::string> keys;
    for (const PackPlan::Sample& each : plan.describe(plan.piece({.end = 5000}, UINT64_MAX)))
      keys.push_back(each.key);
    return keys;
  };
  const std::vector<std::string> keys = order_of(1);
  EXPECT_THAT(std::set<std::string>(keys.begin(), keys.end()), SizeIs(5000));
  EXPECT_EQ(keys, order_of(1));
  EXPECT_NE(keys, order_of(2));
}

TEST(PackPlan, DocumentsHaveNoHeadersAndAnyName) {
  const auto index = index_of({{"README", 3}, {"a.txt", 0}, {"a.html", 5}});
  const PackPlan plan = PackPlan::make(index, {.documents = true}).value();
  EXPECT_EQ(plan.sample_count(), 3);
  const PackPlan::Piece piece = plan.piece({.end = 3}, UINT64_MAX);
  EXPECT_EQ(piece.size_bytes, 8);
  std::string bytes(8, '?');
  const PackPlan::Layout layout =
      plan.lay_out(piece, std::as_writable_bytes(std::span(bytes))).value();
  EXPECT_THAT(layout.places, ElementsAre(0, 3, 3));
  EXPECT_EQ(bytes, "????????");
}

TEST(PackPlan, MembersOfTwoShardsAreDifferentSamples) {
  ObjectIndexBuilder builder;
  builder.add_root("gs://bucket");
  TextValues names;
  for (const std::string shard : {"1.tar", "2.tar"}) {
    const ObjectInfo info{.name = shard, .size_bytes = 5000};
    builder.add(info, {.range = ByteRange{512, 612}});
    names.add("a.jpg");
    builder.add(info, {.range = ByteRange{1536, 1636}});
    names.add("a.cls");
  }
  builder.set_column(std::string(kMemberColumn), std::move(names));
  const auto index = std::move(builder).build().value();
  EXPECT_EQ(PackPlan::make(index, {.max_shard_samples = 1}).value().sample_count(), 2);
  EXPECT_THAT(PackPlan::make(index, {}), RefusesAt("gs://bucket/2.tar", "'a'"));
}

TEST(PackPlan, WhatNoReaderWouldTakeIsRefused) {
  EXPECT_THAT(PackPlan::make(index_of({{"a.JPG"}, {"a.jpg"}}), {}),
              RefusesAt("gs://bucket/a.jpg", "a field 'jpg' already"));
  EXPECT_THAT(PackPlan::make(index_of({{"a.x", 1, "gs://b"}, {"a.x", 1, "gs://c"}}), {}),
              RefusesAt("gs://c/a.x", "'a'"));
  EXPECT_THAT(PackPlan::make(index_of({{"a.x", kUnknownSize}}), {}),
              RefusesAt("gs://bucket/a.x", "size is not known"));
  EXPECT_THAT(PackPlan::make(index_of({{"a.x"}}), {.label = "kind"}), RefusesAt("", "'kind'"));
  const auto floats =
      with_columns(*index_of({{"a.x"}}), {{"label", std::vector<double>{0.5}}}, {}).value();
  EXPECT_THAT(PackPlan::make(floats, {.label = "label"}), RefusesAt("", "floating-point"));
}

TEST(PackPlan, AnEmptyIndexHasNoShards) {
  EXPECT_EQ(PackPlan::make(index_of({}), {}).value().shard_count(), 0);
}

}  // namespace
}  // namespace headrace
