#include "headrace/store/join_ranges.h"

#include <algorithm>
#include <deque>
#include <random>
#include <thread>

#include "headrace/format/running_sum.h"
#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ReadTarget part_of(std::string_view name, uint64_t begin, uint64_t end) {
  ReadTarget target = named(name);
  target.range = ByteRange{begin, end};
  return target;
}

// ── The plan ─────────────────────────────────────────────────────────────────────────────────

// The slots of each request.
std::vector<std::vector<uint32_t>> requests_of(const std::vector<ReadTarget>& targets,
                                               std::optional<uint64_t> max_gap_bytes,
                                               uint64_t max_joined_bytes = 1000) {
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  const JoinPlan plan =
      plan_joins(*batch, {.max_gap_bytes = max_gap_bytes, .max_joined_bytes = max_joined_bytes});
  std::vector<std::vector<uint32_t>> requests;
  for (const JoinPlan::Run& run : plan.runs) {
    const auto first = plan.slots.begin() + static_cast<ptrdiff_t>(run.first);
    requests.emplace_back(first, first + static_cast<ptrdiff_t>(run.count));
  }
  return requests;
}

using Requests = std::vector<std::vector<uint32_t>>;

TEST(PlanJoins, JoinsAcrossGapsUpToTheLimitWhateverTheOrderOfTheBatch) {
  const std::vector<ReadTarget> targets = {part_of("a", 50, 60), part_of("a", 0, 10),
                                           part_of("a", 23, 30), part_of("a", 12, 20)};
  EXPECT_EQ(requests_of(targets, 3), (Requests{{0}, {1, 3, 2}}));
  EXPECT_EQ(requests_of(targets, 2), (Requests{{0}, {1, 3}, {2}}));
  EXPECT_EQ(requests_of(targets, 20), (Requests{{1, 3, 2, 0}}));
  EXPECT_THAT(requests_of(targets, 1), IsEmpty());
  EXPECT_THAT(requests_of(targets, std::nullopt), IsEmpty());
}

TEST(PlanJoins, OverlapsAndRangesInsideOthersNeedNoGap) {
  EXPECT_EQ(requests_of({part_of("a", 0, 100), part_of("a", 20, 30), part_of("a", 90, 110),
                         part_of("a", 110, 120), part_of("a", 0, 100), part_of("a", 121, 122)},
                        0),
            (Requests{{0, 4, 1, 2, 3}, {5}}));
}

TEST(PlanJoins, NeverReadsMoreThanTheLimitForSeveral) {
  const std::vector<ReadTarget> targets = {part_of("a", 0, 50), part_of("a", 50, 100),
                                           part_of("a", 100, 101), part_of("a", 101, 500)};
  EXPECT_EQ(requests_of(targets, 0, 100), (Requests{{0, 1}, {2}, {3}}));
  EXPECT_EQ(requests_of(targets, 0, 500), (Requests{{0, 1, 2, 3}}));
  EXPECT_EQ(requests_of(targets, UINT64_MAX, UINT64_MAX), (Requests{{0, 1, 2, 3}}));
}

TEST(PlanJoins, OnlyRangesOfOneVersionOfOneObjectAreNeighbours) {
  ReadTarget other_version = part_of("a", 10, 20);
  other_version.generation = "7";
  ReadTarget other_size = part_of("a", 10, 20);
  other_size.size_bytes = 100;
  EXPECT_THAT(
      requests_of({part_of("a", 0, 10), part_of("b", 10, 20), other_version, other_size}, 100),
      IsEmpty());
}

TEST(PlanJoins, WhatIsNoPlainRangeIsARequestOfItsOwn) {
  std::string memory(10, '?');
  const std::vector<Place> places = {{20, std::as_writable_bytes(std::span(memory))}};
  ReadTarget scattered = part_of("a", 20, 30);
  scattered.places = places;
  ReadTarget beyond = part_of("a", 20, 31);
  beyond.size_bytes = 30;
  ReadTarget fits_not = part_of("a", 20, 31);
  fits_not.into = std::as_writable_bytes(std::span(memory));
  fits_not.has_into = true;
  ReadTarget digest = part_of("a", 20, 30);
  digest.range_checksum = sum_of(ChecksumKind::kMd5, bytes_of("x"));
  digest.wanted_sum = ChecksumKind::kCrc32c;
  ReadTarget two_sums = part_of("a", 20, 30);
  two_sums.range_checksum = sum_of(ChecksumKind::kCrc32, bytes_of("x"));
  two_sums.wanted_sum = ChecksumKind::kCrc32c;
  ReadTarget member = part_of("a", 20, 30);
  member.member = "m";
  for (const ReadTarget& each :
       {named("a"), scattered, beyond, fits_not, two_sums, member, part_of("a", 20, 20),
        part_of("a", 30, 20), part_of("a", 20, kUnknownSize)}) {
    EXPECT_THAT(requests_of({part_of("a", 0, 10), each}, 100), IsEmpty());
    EXPECT_EQ(requests_of({part_of("a", 0, 10), each, part_of("a", 10, 12)}, 100),
              (Requests{{0, 2}, {1}}));
  }
}

TEST(PlanJoins, SumsOfTwoKindsAreNotComputedOfOneRequest) {
  ReadTarget one = part_of("a", 0, 10), two = part_of("a", 10, 20);
  one.range_checksum = sum_of(ChecksumKind::kCrc32, bytes_of("x"));
  two.range_checksum = sum_of(ChecksumKind::kCrc32c, bytes_of("x"));
  EXPECT_EQ(requests_of({one, two, part_of("a", 20, 30)}, 0), (Requests{{0}, {1, 2}}));
}

TEST(PlanJoins, EachSlotIsInOneRequestAndNoneReadsMoreThanItMay) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<ReadTarget> targets;
    for (uint64_t i = 0; i < 1 + random() % 40; ++i) {
      const uint64_t begin = random() % 3000;
      targets.push_back(part_of(random() % 3 == 0 ? "b" : "a", begin, begin + random() % 300));
    }
    const uint64_t gap = random() % 100, most = 50 + random() % 600;
    const Requests requests = requests_of(targets, gap, most);
    if (requests.empty()) continue;
    std::vector<uint32_t> seen;
    for (const std::vector<uint32_t>& slots : requests) {
      seen.insert(seen.end(), slots.begin(), slots.end());
      uint64_t end = targets[slots[0]].range->end;
      for (const uint32_t each : slots) {
        const ByteRange range = *targets[each].range;
        if (slots.size() == 1) continue;
        ASSERT_EQ(targets[each].name, targets[slots[0]].name);
        ASSERT_LE(range.begin, end + gap);
        end = std::max(end, range.end);
      }
      if (slots.size() > 1) {
        ASSERT_LE(end - targets[slots[0]].range->begin, most);
      }
    }
    std::ranges::sort(seen);
    ASSERT_EQ(seen.size(), targets.size());
    for (uint32_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], i);
  }
}

// ── The reads ────────────────────────────────────────────────────────────────────────────────

class JoinRangesTest : public StoreTest {
 protected:
  ReadTarget part(uint64_t begin, uint64_t end) {
    ReadTarget target = listed(object_);
    target.range = ByteRange{begin, end};
    return target;
  }
  // One beside the other, overlapping, one twice, one far away, and the whole object.
  std::vector<ReadTarget> targets() {
    return {part(5000, 6000),       part(0, 1000),          part(999, 2000),
            part(150'000, 190'000), part(110'000, 150'500), part(150'000, 190'000),
            listed(object_),        part(250'000, 250'001)};
  }
  static constexpr uint64_t kRequests = 4;  // for these, with a gap of up to 4,000 bytes
  std::string_view wanted(const ReadTarget& target) const {
    if (!target.range) return bytes_;
    return std::string_view(bytes_).substr(target.range->begin, target.range->size_bytes());
  }
  std::shared_ptr<ReadBatch> start(const std::vector<ReadTarget>& targets) {
    const std::shared_ptr<ReadBatch> batch = batch_of(targets);
    open()->read(batch);
    return batch;
  }
  std::shared_ptr<ReadBatch> read_all(const std::vector<ReadTarget>& targets) {
    const std::shared_ptr<ReadBatch> batch = start(targets);
    headrace::wait_for(*batch);
    return batch;
  }
  uint64_t media() { return server_.stat("/by_kind/media"); }

  JoinRangesTest() { options_.max_gap_bytes = 4000; }

  const std::string bytes_ = some_bytes(310'000);
  const ObjectInfo object_ = server_.put("train/a", bytes_);
};

TEST_F(JoinRangesTest, NeighboursComeByOneRequestIntoMemoryOfTheirOwn) {
  const std::vector<ReadTarget> all = targets();
  const std::shared_ptr<ReadBatch> batch = read_all(all);
  EXPECT_EQ(media(), kRequests);
  uint64_t held_bytes = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_THAT(outcome(*batch, i), Gives(wanted(all[i]))) << i;
    const ReadSlot& slot = batch->slot(i);
    EXPECT_TRUE(!slot.into.is_callers() && !slot.into.scatter()) << "each has a block of its own";
    EXPECT_EQ(slot.found_generation.view(), object_.generation);
    held_bytes += BlockPool::charged_bytes(slot.into.size());
  }
  const MemoryUse use = engine_.pool().use();
  EXPECT_EQ(use.live_bytes, held_bytes);
  EXPECT_EQ(use.peak_live_bytes, held_bytes) << "nothing is held twice";
  EXPECT_EQ(use.in_flight_bytes, 0u);
  EXPECT_EQ(engine_.metrics().objects_read_total, all.size());
  for (size_t i = 0; i < all.size(); ++i) batch->slot(i).into.block().release();
  EXPECT_EQ(engine_.pool().live_bytes(), 0u);
}

TEST_F(JoinRangesTest, NeighboursComeIntoTheCallersMemory) {
  std::vector<ReadTarget> all = targets();
  std::deque<std::string> memory;
  for (ReadTarget& target : all) {
    std::string& into = memory.emplace_back(wanted(target).size(), '?');
    target.into = std::as_writable_bytes(std::span(into));
    target.has_into = true;
  }
  const std::shared_ptr<ReadBatch> batch = read_all(all);
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_FALSE(batch->slot(i).error) << batch->slot(i).error->to_string();
    EXPECT_TRUE(memory[i] == wanted(all[i])) << i;
  }
  EXPECT_EQ(media(), kRequests);
  EXPECT_EQ(engine_.pool().use().peak_live_bytes, 0u);
}

TEST_F(JoinRangesTest, ReadsOnlyTheGapsThatItMay) {
  read_all({part(0, 1000), part(1004, 2000), part(6001, 7000)});
  std::vector<std::string> asked;
  for (const FaultServer::Entry& each : server_.log("media")) {
    asked.push_back(each.headers.at("range"));
  }
  EXPECT_THAT(asked, ::testing::UnorderedElementsAre("bytes=0-1999", "bytes=6001-6999"));
}

TEST_F(JoinRangesTest, WithoutALimitEachRangeIsARequest) {
  options_.max_gap_bytes.reset();
  const std::vector<ReadTarget> all = targets();
  const std::shared_ptr<ReadBatch> batch = read_all(all);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_THAT(outcome(*batch, i), Gives(wanted(all[i])));
  EXPECT_EQ(media(), all.size());
}

TEST_F(JoinRangesTest, ABodyThatBreaksOffContinuesWhereItDid) {
  const std::vector<ReadTarget> all = {part(0, 50'000), part(49'000, 60'000), part(63'000, 99'000)};
  for (const uint64_t after : {1u, 49'500u, 61'000u, 98'999u}) {
    const uint64_t before = media();
    server_.faults(
        cat(R"([{"match":{"kind":"media"},"count":1,"action":{"cut_after_bytes":)", after, "}}]"));
    const std::shared_ptr<ReadBatch> batch = read_all(all);
    for (size_t i = 0; i < all.size(); ++i) EXPECT_THAT(outcome(*batch, i), Gives(wanted(all[i])));
    EXPECT_EQ(media(), before + 2);
    EXPECT_EQ(server_.log("media").back().headers.at("range"), cat("bytes=", after, "-98999"));
  }
}

TEST_F(JoinRangesTest, AnErrorOfTheObjectIsThatOfEachRangeAndIsAskedForOnce) {
  server_.put("train/a", "another");
  const std::shared_ptr<ReadBatch> batch = read_all({part(0, 10), part(10, 20), part(20, 30)});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(outcome(*batch, i),
                FailsWith(Code::kPreconditionFailed, HasSubstr("gs://bucket/train/a")));
  }
  EXPECT_EQ(media(), 1u);
  EXPECT_EQ(engine_.pool().live_bytes(), 0u);
}

TEST_F(JoinRangesTest, OfAnObjectOfUnknownSizeOnlyTheRangeBehindItsEndFails) {
  const std::shared_ptr<ReadBatch> batch =
      read_all({part_of("train/a", 309'000, 309'500), part_of("train/a", 309'500, 311'000),
                part_of("train/a", 311'000, 312'000)});
  EXPECT_THAT(outcome(*batch, 0), Gives(bytes_.substr(309'000, 500)));
  EXPECT_THAT(outcome(*batch, 1), Gives(bytes_.substr(309'500)));
  EXPECT_THAT(outcome(*batch, 2), FailsWith(Code::kInvalidArgument, HasSubstr("beyond")));
}

TEST_F(JoinRangesTest, ARangeWithAnotherSumIsReadOnceMoreByItself) {
  std::vector<ReadTarget> all = {part(0, 1000), part(1000, 3000), part(2000, 4000)};
  for (ReadTarget& target : all) {
    target.range_checksum = sum_of(ChecksumKind::kCrc32c, bytes_of(wanted(target)));
  }
  for (const ReadTarget& target : {all[0], all[1]}) {
    server_.reset();
    ASSERT_EQ(server_.put("train/a", bytes_).size_bytes, bytes_.size());
    for (ReadTarget& each : all) each.generation = "";
    // A bit that flips on the way: at byte 500, which is the first range's alone, or at byte 1500.
    server_.faults(cat(R"([{"match":{"kind":"media"},"count":1,"action":{"flip_byte":)",
                       target.range->begin + 500, "}}]"));
    const uint64_t verified = engine_.metrics().checksums_verified_total;
    const std::shared_ptr<ReadBatch> batch = read_all(all);
    for (size_t i = 0; i < all.size(); ++i) EXPECT_THAT(outcome(*batch, i), Gives(wanted(all[i])));
    EXPECT_EQ(media(), 2u);
    EXPECT_EQ(engine_.metrics().checksums_verified_total, verified + all.size());
  }
  // And one that is stored otherwise than the index says.
  all[1].range_checksum = all[0].range_checksum;
  const std::shared_ptr<ReadBatch> batch = read_all(all);
  EXPECT_THAT(outcome(*batch, 0), Gives(wanted(all[0])));
  EXPECT_THAT(outcome(*batch, 1), FailsWith(Code::kCorrupt, HasSubstr("the index says")));
  EXPECT_THAT(outcome(*batch, 2), Gives(wanted(all[2])));
}

TEST_F(JoinRangesTest, AChangedObjectIsReadAnewIfThatWasAskedFor) {
  options_.on_change = OnChange::kReread;
  std::vector<ReadTarget> all = {part(0, 1000), part(1000, 3000)};
  for (ReadTarget& target : all) {
    target.range_checksum = sum_of(ChecksumKind::kCrc32c, bytes_of(wanted(target)));
  }
  const std::string fresh = some_bytes(310'000, 7);
  server_.put("train/a", fresh);
  const std::shared_ptr<ReadBatch> batch = read_all(all);
  EXPECT_THAT(outcome(*batch, 0), Gives(fresh.substr(0, 1000)));
  EXPECT_THAT(outcome(*batch, 1), Gives(fresh.substr(1000, 2000)));
}

TEST_F(JoinRangesTest, SumsThatAreWantedAreThoseOfEachRange) {
  std::vector<ReadTarget> all = {part(0, 1000), part(900, 3000)};
  for (ReadTarget& target : all) target.wanted_sum = ChecksumKind::kCrc32c;
  const std::shared_ptr<ReadBatch> batch = read_all(all);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(batch->slot(i).sum(), sum_of(ChecksumKind::kCrc32c, bytes_of(wanted(all[i]))));
  }
  EXPECT_EQ(media(), 1u);
}

TEST_F(JoinRangesTest, CancellingAtAnyMomentEndsAllAndGivesTheMemoryBack) {
  std::vector<ReadTarget> all = targets();
  for (ReadTarget& target : all) {  // some are read again, by themselves
    if (target.range) target.range_checksum = sum_of(ChecksumKind::kCrc32c, bytes_of("other"));
  }
  std::mt19937 random(3);
  int cancelled_count = 0;
  for (int round = 0; round < 200; ++round) {
    const std::shared_ptr<ReadBatch> batch = start(round % 2 == 0 ? all : targets());
    for (uint64_t turns = (1u << random() % 11) - 1; turns > 0 && !batch->done(); --turns) {
      std::this_thread::yield();
    }
    batch->cancel();
    headrace::wait_for(*batch);
    for (size_t i = 0; i < all.size(); ++i) {
      const ReadSlot& slot = batch->slot(i);
      if (slot.error && slot.error->code() == Code::kCancelled) ++cancelled_count;
      if (!slot.error) EXPECT_THAT(outcome(*batch, i), Gives(wanted(all[i])));
    }
  }
  EXPECT_GT(cancelled_count, 0);
  wait_until_all_is_given_back(engine_.pool());
  EXPECT_EQ(engine_.pool().in_flight_bytes(), 0u);
}

TEST_F(JoinRangesTest, SeveralThatExceedTheBudgetOnlyTogetherAreReadOneByOne) {
  Engine small({.io_threads = 1, .memory_budget_bytes = 100'000});
  const std::vector<ReadTarget> all = {part(0, 60'000), part(60'000, 120'000)};
  const std::shared_ptr<ReadBatch> batch = batch_of(all);
  open_in(small, options_)->read(batch);
  headrace::wait_for(*batch);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_THAT(outcome(*batch, i), Gives(wanted(all[i])));
}

}  // namespace
}  // namespace headrace
