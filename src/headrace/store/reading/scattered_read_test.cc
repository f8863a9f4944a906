// Reading one range into several places.
#include <algorithm>
#include <deque>

#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class ScatteredReadTest : public StoreTest {
 protected:
  ScatteredReadTest() {
    add_place(10, 100'000);
    add_place(100'010, 490);
    add_place(101'000, 1);
    add_place(102'000, 48'000);
    add_place(190'000, 110'000);
  }
  void add_place(uint64_t begin, size_t size_bytes) {
    std::string& memory = memory_.emplace_back(size_bytes, '?');
    places_.push_back({begin, std::as_writable_bytes(std::span(memory))});
  }

  std::shared_ptr<ReadBatch> read_into_places(ReadTarget target) {
    target.range = range_of(places_).value();
    target.places = places_;
    target.wanted_sum = ChecksumKind::kCrc32c;
    const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
    open()->read(batch);
    headrace::wait_for(*batch);
    return batch;
  }
  void expect_filled(ReadBatch& batch) {
    ReadSlot& slot = batch.slot(0);
    ASSERT_FALSE(slot.error) << slot.error->to_string();
    ASSERT_THAT(slot.into.scatter()->sums, SizeIs(places_.size()));
    for (size_t i = 0; i < places_.size(); ++i) {
      const std::string_view wanted =
          std::string_view(bytes_).substr(places_[i].begin, memory_[i].size());
      EXPECT_TRUE(memory_[i] == wanted) << "place " << i;
      EXPECT_EQ(slot.into.scatter()->sums[i], Checksum(Crc32c().extended(bytes_of(wanted))));
    }
  }
  std::vector<ReadTarget> all_ways() {
    ReadTarget without_generation = listed(object_);
    without_generation.generation = "";
    return {listed(object_), without_generation, named("train/a")};
  }

  const std::string bytes_ = some_bytes(310'000);
  const ObjectInfo object_ = server_.put("train/a", bytes_);
  std::deque<std::string> memory_;  // which stays where it is
  std::vector<Place> places_;
};

TEST_F(ScatteredReadTest, FillsAllPlacesByOneRequestAndSumsEach) {
  for (const ReadTarget& target : all_ways()) {
    const uint64_t before = server_.stat("/by_kind/media");
    expect_filled(*read_into_places(target));
    EXPECT_EQ(server_.stat("/by_kind/media"), before + 1);
    EXPECT_EQ(server_.log("media").back().headers.at("range"), "bytes=10-299999");
  }
  EXPECT_EQ(engine_.pool().use().peak_live_bytes, 0u) << "nothing is held in between";
}

TEST_F(ScatteredReadTest, ALargeRangeComesInParallelPiecesThatMayCutPlaces) {
  options_.range_threshold_bytes = 64 * kKiB;
  for (const uint64_t range_bytes : {uint64_t{99'991}, uint64_t{70'000}, kMinRangeBytes}) {
    options_.range_bytes = range_bytes;
    for (const ReadTarget& target : all_ways()) expect_filled(*read_into_places(target));
  }
}

TEST_F(ScatteredReadTest, GoesOnWhereABodyBrokeOff) {
  for (const uint64_t after : {1u, 50'000u, 100'100u, 100'990u, 150'000u, 200'000u, 289'989u}) {
    server_.faults(
        cat(R"([{"match":{"kind":"media"},"count":1,"action":{"cut_after_bytes":)", after, "}}]"));
    const uint64_t before = server_.stat("/by_kind/media");
    expect_filled(*read_into_places(listed(object_)));
    EXPECT_EQ(server_.stat("/by_kind/media"), before + 2);
    EXPECT_EQ(server_.log("media").back().headers.at("range"),
              cat("bytes=", 10 + after, "-299999"));
  }
}

TEST_F(ScatteredReadTest, BeginsAgainWhereNothingPinsTheVersion) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,
                      "action":{"cut_after_bytes":150000,"headers":{"x-goog-generation":""}}}])");
  expect_filled(*read_into_places(named("train/a")));
}

TEST_F(ScatteredReadTest, TakesItsRangeFromAServerThatIgnoresRanges) {
  server_.faults(R"([{"match":{"kind":"media"},"action":"ignore_range"}])");
  for (const ReadTarget& target : all_ways()) expect_filled(*read_into_places(target));
}

TEST_F(ScatteredReadTest, ComesChunkedAndInDrops) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"chunked":true}},
                     {"match":{"kind":"media"},"action":{"drip":{"bytes":9000,"every_ms":1}}}])");
  for (int i = 0; i < 2; ++i) {
    for (std::string& each : memory_) std::ranges::fill(each, '?');
    expect_filled(*read_into_places(listed(object_)));
  }
}

TEST_F(ScatteredReadTest, AnObjectThatEndsTooEarlyIsAnError) {
  add_place(309'000, 2000);
  for (const ReadTarget& target : all_ways()) {
    const std::shared_ptr<ReadBatch> batch = read_into_places(target);
    ASSERT_TRUE(batch->slot(0).error);
    EXPECT_EQ(batch->slot(0).error->code(), Code::kInvalidArgument);
    EXPECT_THAT(batch->slot(0).error->to_string(),
                HasSubstr("the destination holds 310990 bytes, the read gives 309990"));
  }
}

TEST_F(ScatteredReadTest, AChangedObjectIsReadAnewIfThatWasAskedFor) {
  options_.on_change = OnChange::kReread;
  const std::string fresh = some_bytes(310'000, 7);
  server_.put("train/a", fresh);
  const std::shared_ptr<ReadBatch> batch = read_into_places(listed(object_));
  ASSERT_FALSE(batch->slot(0).error);
  for (size_t i = 0; i < places_.size(); ++i) {
    const std::string_view wanted =
        std::string_view(fresh).substr(places_[i].begin, memory_[i].size());
    EXPECT_TRUE(memory_[i] == wanted) << "place " << i;
    EXPECT_EQ(batch->slot(0).into.scatter()->sums[i],
              Checksum(Crc32c().extended(bytes_of(wanted))));
  }
}

}  // namespace
}  // namespace headrace
