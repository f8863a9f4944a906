#include "headrace/dataset/shard_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Member {
  std::string shard, name;
  ByteRange range;
};

std::shared_ptr<const ObjectIndex> members_of(const std::vector<Member>& members) {
  ObjectIndexBuilder builder;
  builder.add_root("gs://bucket");
  TextValues names;
  for (const Member& member : members) {
    const ObjectInfo shard{.name = member.shard, .size_bytes = 2 * kGiB, .generation = "7"};
    builder.add(shard, {.range = member.range});
    names.add(member.name);
  }
  builder.set_column(std::string(kMemberColumn), std::move(names));
  return std::move(builder).build().value();
}

// "key:field[begin,end)...": places are those in the shard.
std::vector<std::string> shown(const ObjectIndex& samples) {
  std::vector<std::string> out;
  for (size_t i = 0; i < samples.size(); ++i) {
    const SampleFields fields = sample_fields(samples, i).value();
    std::string text = cat(fields.key, ":", fields.names);
    for (const ByteRange& place : fields.places) {
      text +=
          cat(" ", samples.range(i)->begin + place.begin, "-", samples.range(i)->begin + place.end);
    }
    out.push_back(text);
  }
  return out;
}

MATCHER_P(Refuses, text, "") {
  if (arg) return false;
  *result_listener << arg.error().to_string();
  return arg.error().code() == Code::kInvalidArgument &&
         ::testing::ExplainMatchResult(HasSubstr(text), arg.error().to_string(), result_listener);
}

TEST(SampleIndex, JoinsNeighboursOfOneKey) {
  const auto members = members_of({{"1.tar", "a.jpg", {512, 1512}},
                                   {"1.tar", "a.cls", {2560, 2561}},
                                   {"1.tar", "b.JPG", {3584, 3584}},
                                   {"2.tar", "b.cls", {512, 520}},
                                   {"2.tar", "x/b.cls", {1536, 1540}}});
  const SampleIndex samples = sample_index(*members).value();
  EXPECT_THAT(shown(*samples.index), ElementsAre("a:jpg/cls 512-1512 2560-2561", "b:jpg 3584-3584",
                                                 "b:cls 512-520", "x/b:cls 1536-1540"));
  EXPECT_EQ(samples.index->range(0), (ByteRange{512, 2561}));
  EXPECT_EQ(samples.index->url(2), "gs://bucket/2.tar");
  EXPECT_EQ(samples.index->info(0).generation, "7");
  EXPECT_EQ(samples.left_out, 0u);
}

TEST(SampleIndex, TellsWhatItLeavesOut) {
  const auto members = members_of({{"1.tar", "readme", {512, 600}},
                                   {"1.tar", "a.jpg", {1536, 1540}},
                                   {"1.tar", "__meta__/x", {2560, 2561}},
                                   {"1.tar", "a.cls", {3584, 3585}}});
  const SampleIndex samples = sample_index(*members).value();
  EXPECT_THAT(shown(*samples.index), ElementsAre("a:jpg/cls 1536-1540 3584-3585"));
  EXPECT_EQ(samples.left_out, 2u);
  EXPECT_EQ(samples.first_left_out, "gs://bucket/1.tar: readme");
}

TEST(SampleIndex, RefusesAKeyInTwoPlaces) {
  const auto members = members_of({{"1.tar", "a.jpg", {512, 600}},
                                   {"1.tar", "b.jpg", {1536, 1540}},
                                   {"1.tar", "a.cls", {2560, 2561}}});
  EXPECT_THAT(sample_index(*members),
              Refuses("gs://bucket/1.tar: the sample 'a' is in two places"));
}

TEST(SampleIndex, RefusesAFieldTwice) {
  EXPECT_THAT(
      sample_index(*members_of({{"1.tar", "a.jpg", {512, 600}}, {"1.tar", "a.JPG", {1536, 1540}}})),
      Refuses("'a.JPG': its sample has a field 'jpg' already"));
  EXPECT_THAT(sample_index(*members_of({{"1.tar", "a.__key__", {512, 600}}})), Refuses("__key__"));
}

TEST(SampleIndex, RefusesScatteredFields) {
  EXPECT_THAT(sample_index(*members_of(
                  {{"1.tar", "a.jpg", {512, 600}}, {"1.tar", "a.cls", {50'000'000, 50'000'001}}})),
              Refuses("gs://bucket/1.tar: the fields of the sample 'a', which have 89 bytes"));
}

TEST(SampleIndex, LeavesOutShardsOfErrorsIfItMay) {
  const std::vector<std::vector<Member>> bad = {{{"x.tar", "b.jpg", {512, 600}},
                                                 {"x.tar", "a.jpg", {1536, 1540}},
                                                 {"x.tar", "b.cls", {2560, 2561}},
                                                 {"x.tar", "c.cls", {3584, 3585}}},
                                                {{"x.tar", "c.jpg", {512, 600}},
                                                 {"x.tar", "d.jpg", {1536, 1540}},
                                                 {"x.tar", "d.JPG", {2560, 2561}}},
                                                {{"x.tar", "c.jpg", {512, 600}},
                                                 {"x.tar", "d.jpg", {1536, 1540}},
                                                 {"x.tar", "d.cls", {50'000'000, 50'000'001}}}};
  for (const std::vector<Member>& shard : bad) {
    std::vector<Member> members = {{"1.tar", "a.jpg", {512, 600}},
                                   {"1.tar", "b.jpg", {1536, 1540}}};
    members.insert(members.end(), shard.begin(), shard.end());
    const SampleIndex last = sample_index(*members_of(members), true).value();
    EXPECT_THAT(shown(*last.index), ElementsAre("a:jpg 512-600", "b:jpg 1536-1540"));
    members.push_back({"2.tar", "a.jpg", {512, 514}});
    const SampleIndex samples = sample_index(*members_of(members), true).value();
    EXPECT_THAT(shown(*samples.index),
                ElementsAre("a:jpg 512-600", "b:jpg 1536-1540", "a:jpg 512-514"));
    EXPECT_EQ(samples.index->url(2), "gs://bucket/2.tar");
    ASSERT_EQ(samples.errors.size(), 1u);
    EXPECT_EQ(samples.errors[0].url(), "gs://bucket/x.tar");
    EXPECT_THAT(sample_index(*members_of(members)), Refuses("gs://bucket/x.tar"));
  }
}

TEST(SampleIndex, OfAShardTwiceHasItsSamplesTwice) {
  std::vector<Member> members = {{"1.tar", "a.jpg", {512, 600}},
                                 {"1.tar", "a.cls", {1536, 1540}},
                                 {"1.tar", "b.jpg", {2560, 2561}}};
  for (const size_t count : {3u, 1u}) {  // of members
    members.resize(count);
    std::vector<Member> twice = members;
    twice.insert(twice.end(), members.begin(), members.end());
    std::vector<std::string> wanted = shown(*sample_index(*members_of(members)).value().index);
    const std::vector<std::string> once = wanted;
    wanted.insert(wanted.end(), once.begin(), once.end());
    EXPECT_EQ(shown(*sample_index(*members_of(twice)).value().index), wanted);
  }
}

TEST(SampleIndex, IsMadeOfMembersAlone) {
  const auto index_with = [](std::optional<ColumnValues> members) {
    ObjectIndexBuilder builder;
    builder.add(ObjectInfo{.name = "a", .size_bytes = 1});
    if (members) builder.set_column(std::string(kMemberColumn), std::move(*members));
    return std::move(builder).build().value();
  };
  EXPECT_THAT(sample_index(*index_with({})), Refuses("no index of members"));
  EXPECT_THAT(sample_index(*index_with(std::vector<int64_t>{1})), Refuses("no index of members"));
  TextValues names;
  names.add("a.jpg");
  EXPECT_THAT(sample_index(*index_with(std::move(names))), Refuses("a whole object"));
}

TEST(SampleIndex, OfManySamplesKeepsFewBytesOfEach) {
  std::vector<Member> members;
  for (uint64_t i = 0; i < 10'000; ++i) {
    const uint64_t begin = i * 102'400;
    members.push_back(
        {"1.tar", cat(1'000'000 + i, ".jpg"), {begin + 512, begin + 90'000 + i % 999}});
    members.push_back({"1.tar", cat(1'000'000 + i, ".cls"), {begin + 101'888, begin + 101'889}});
  }
  const SampleIndex samples = sample_index(*members_of(members)).value();
  ASSERT_EQ(samples.index->size(), 10'000u);
  // Key, range, and the places of two fields.
  EXPECT_LE(samples.index->image().bytes().size(), 10'000u * 40);
}

TEST(WithFields, NarrowsTheRange) {
  const auto members = members_of({{"1.tar", "a.json", {512, 1000}},
                                   {"1.tar", "a.jpg", {1536, 2000}},
                                   {"1.tar", "a.cls", {2560, 2561}}});
  const auto samples = sample_index(*members).value().index;
  const std::vector<std::string> two = {"cls", "jpg"}, one = {"json"}, none = {"jpg", "png"};
  EXPECT_THAT(shown(*with_fields(*samples, two).value()),
              ElementsAre("a:cls/jpg 2560-2561 1536-2000"));
  EXPECT_EQ(with_fields(*samples, two).value()->range(0), (ByteRange{1536, 2561}));
  EXPECT_EQ(with_fields(*samples, one).value()->range(0), (ByteRange{512, 1000}));
  EXPECT_THAT(
      with_fields(*samples, none),
      Refuses("gs://bucket/1.tar: the sample 'a' has no field 'png'; it has 'json/jpg/cls'"));
}

TEST(WithFields, ReadsWhatIsBetweenThem) {
  const auto members = members_of({{"1.tar", "a.cls", {512, 513}},
                                   {"1.tar", "a.mp4", {1536, 1536 + 5 * kMiB}},
                                   {"1.tar", "a.txt", {2048 + 5 * kMiB, 2060 + 5 * kMiB}}});
  const std::vector<std::string> around = {"cls", "txt"};
  const auto samples = with_fields(*sample_index(*members).value().index, around).value();
  EXPECT_EQ(samples->range(0), (ByteRange{512, 2060 + 5 * kMiB}));
}

TEST(SampleFields, OfColumnsThatAreNoneAreAnError) {
  const auto samples = sample_index(*members_of({{"1.tar", "a.jpg", {512, 600}}})).value().index;
  const auto changed = [&](std::string_view column, std::string_view text, bool is_bytes) {
    TextValues values{.is_bytes = is_bytes};
    values.add(text);
    return with_columns(*samples, {{std::string(column), std::move(values)}}, {}).value();
  };
  EXPECT_EQ(sample_fields(*changed(kFieldsColumn, "jpg/cls", false), 0).error().code(),
            Code::kCorrupt);
  using namespace std::string_view_literals;
  for (const std::string_view places : {""sv, "\x00"sv, "\x00\x59"sv, "\x80"sv,
                                        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01"sv}) {
    EXPECT_EQ(sample_fields(*changed(kPlacesColumn, places, true), 0).error().code(),
              Code::kCorrupt);
  }
  EXPECT_THAT(sample_fields(*members_of({{"1.tar", "a.jpg", {512, 600}}}), 0), Refuses("'key'"));
}

}  // namespace
}  // namespace headrace
