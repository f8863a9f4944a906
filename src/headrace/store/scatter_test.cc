#include "headrace/store/scatter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "headrace/format/crc32c.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// An object, and memory for some of its bytes.
struct Layout {
  std::string object;
  std::vector<std::string> memory;
  std::vector<Place> places;

  Layout(uint64_t seed, size_t place_count, size_t largest_bytes) {
    std::mt19937_64 random(seed);
    std::vector<uint64_t> begins;
    uint64_t position = random() % 100;
    for (size_t i = 0; i < place_count; ++i) {
      begins.push_back(position);
      memory.emplace_back(1 + random() % largest_bytes, '?');
      position += memory.back().size() + (random() % 2) * (random() % 5000);
    }
    for (size_t i = 0; i < place_count; ++i) {
      places.push_back({begins[i], std::as_writable_bytes(std::span(memory[i]))});
    }
    object.resize(position + 100);
    for (char& each : object) each = static_cast<char>(random());
  }

  // With places that begin before others end, some inside others.
  static Layout overlapping(uint64_t seed, size_t place_count, size_t largest_bytes) {
    Layout layout(seed, place_count, largest_bytes);
    std::mt19937_64 random(seed);
    for (Place& place : layout.places) place.begin = random() % (2 * largest_bytes);
    std::ranges::sort(layout.places, {}, &Place::begin);
    layout.object.resize(3 * largest_bytes + 100);
    for (char& each : layout.object) each = static_cast<char>(random());
    return layout;
  }

  std::string_view filled(size_t i) const {
    return {reinterpret_cast<const char*>(places[i].into.data()), places[i].into.size()};
  }
  std::string_view wanted(size_t i) const {
    return std::string_view(object).substr(places[i].begin, places[i].into.size());
  }
};

// As a server would send `range`: in portions of at most `most_bytes`.
void feed(PlaceFiller& filler, const Layout& layout, ByteRange range, size_t most_bytes,
          std::mt19937_64& random) {
  uint64_t position = range.begin;
  while (position < range.end) {
    const std::span<std::byte> space = filler.space(range.end - position);
    EXPECT_FALSE(space.empty());
    EXPECT_LE(space.size(), range.end - position);
    const size_t count = 1 + random() % std::min(space.size(), most_bytes);
    std::ranges::copy(bytes_of(layout.object).subspan(position, count), space.begin());
    filler.took(count);
    position += count;
  }
}

TEST(Scatter, EveryPlaceGetsItsBytesAndTheirSumHoweverTheRangeIsCutAndSent) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const size_t place_count = 1 + random() % 40, largest_bytes = seed % 3 == 0 ? 150'000 : 3000;
    Layout layout = seed % 2 == 0 ? Layout(seed, place_count, largest_bytes)
                                  : Layout::overlapping(seed, place_count, largest_bytes);
    const Result<ByteRange> range = range_of(layout.places);
    ASSERT_TRUE(range.has_value()) << range.error().to_string();
    EXPECT_EQ(range->begin, layout.places.front().begin);
    EXPECT_EQ(range->end, std::ranges::max(layout.places, {}, &Place::end).end());
    Scatter scatter{layout.places};
    const uint64_t piece_bytes = 1 + random() % (range->size_bytes() * 2);
    for (uint64_t begin = range->begin; begin < range->end; begin += piece_bytes) {
      PlaceFiller filler(scatter.places, begin, ChecksumKind::kCrc32c);
      feed(filler, layout, {begin, std::min(range->end, begin + piece_bytes)}, 40'000, random);
      scatter.join(filler);
    }
    ASSERT_EQ(scatter.sums.size(), layout.places.size()) << seed;
    for (size_t i = 0; i < layout.places.size(); ++i) {
      ASSERT_TRUE(layout.filled(i) == layout.wanted(i)) << "seed " << seed << ", place " << i;
      EXPECT_EQ(scatter.sums[i], Checksum(Crc32c().extended(bytes_of(layout.wanted(i)))));
    }
  }
}

TEST(Scatter, WithoutAKindNothingIsSummed) {
  Layout layout(1, 5, 100);
  std::mt19937_64 random(1);
  PlaceFiller filler(layout.places, layout.places.front().begin, ChecksumKind::kNone);
  feed(filler, layout, range_of(layout.places).value(), 100, random);
  Scatter scatter{layout.places};
  scatter.join(filler);
  ASSERT_EQ(scatter.sums.size(), 5u);
  for (const Checksum& sum : scatter.sums) EXPECT_TRUE(sum.empty());
}

TEST(Scatter, OnlyGapsAndSmallPlacesAreCopied) {
  std::string large(400'000, '?'), small(1000, '?'), other(300'000, '?');
  const auto memory = [](std::string& text) { return std::as_writable_bytes(std::span(text)); };
  const std::vector<Place> places = {
      {10, memory(large)}, {400'100, memory(small)}, {402'000, memory(other)}};
  const ByteRange range = range_of(places).value();
  PlaceFiller filler(places, range.begin, ChecksumKind::kNone);
  const auto lies_in_a_place = [&](std::span<const std::byte> space) {
    return std::ranges::any_of(places, [&](const Place& place) {
      return space.data() >= place.into.data() &&
             space.data() < place.into.data() + place.into.size();
    });
  };
  // All at once: a place and what is between two large ones take one step each.
  const std::span<std::byte> first = filler.space(range.size_bytes());
  EXPECT_EQ(first.data(), places[0].into.data());
  EXPECT_EQ(first.size(), large.size());
  filler.took(first.size());
  const std::span<std::byte> second = filler.space(range.end - places[0].end());
  EXPECT_FALSE(lies_in_a_place(second));
  EXPECT_EQ(second.size(), places[2].begin - places[0].end());
  filler.took(second.size());
  const std::span<std::byte> third = filler.space(other.size());
  EXPECT_EQ(third.data(), places[2].into.data());
  EXPECT_EQ(third.size(), other.size());
}

TEST(Scatter, TheLastBytesOfALargePlaceAreCopiedWithWhatFollows) {
  std::string large(100'000, '?'), small(1000, '?');
  const std::vector<Place> places = {{0, std::as_writable_bytes(std::span(large))},
                                     {100'000, std::as_writable_bytes(std::span(small))}};
  PlaceFiller filler(places, 0, ChecksumKind::kNone);
  ASSERT_EQ(filler.space(101'000).size(), 100'000u);
  filler.took(100'000 - (PlaceFiller::kDirectBytes - 1));
  const std::span<std::byte> rest = filler.space(PlaceFiller::kDirectBytes - 1 + 1000);
  ASSERT_EQ(rest.size(), PlaceFiller::kDirectBytes - 1 + 1000);
  std::ranges::fill(rest, std::byte{'s'});
  filler.took(rest.size());
  EXPECT_EQ(large.back(), 's');
  EXPECT_EQ(small, std::string(1000, 's'));
}

TEST(Scatter, PlacesThatCannotBeFilledInOneGoAreRefused) {
  std::string text(10, '?');
  const auto memory = std::as_writable_bytes(std::span(text));
  const auto refused = [](const std::vector<Place>& places) {
    const Result<ByteRange> range = range_of(places);
    return range ? std::string() : range.error().message();
  };
  EXPECT_THAT(refused({}), HasSubstr("without a place"));
  EXPECT_THAT(refused({{5, memory.first(0)}}), HasSubstr("from 5 on is empty"));
  EXPECT_THAT(refused({{50, memory}, {5, memory}}), HasSubstr("from 5 on comes after"));
  for (const uint64_t begin : {UINT64_MAX - 10, UINT64_MAX - 3, UINT64_MAX}) {
    EXPECT_THAT(refused({{begin, memory}}), HasSubstr("beyond the end of any object"));
    EXPECT_THAT(refused({{0, memory}, {begin, memory}, {100, memory}}), HasSubstr("beyond"));
  }
  EXPECT_EQ(refused({{UINT64_MAX - 11, memory}}), "");
  EXPECT_EQ(refused({{5, memory}, {15, memory}}), "");
  EXPECT_EQ(refused({{5, memory}, {5, memory}, {14, memory}}), "");
}

}  // namespace
}  // namespace headrace
