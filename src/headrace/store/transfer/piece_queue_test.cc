// Which piece begins, when memory is scarce; without threads and without a server.
#include "headrace/store/transfer/piece_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <span>
#include <vector>

#include "headrace/base/units.h"
#include "headrace/store/slot_memory.h"
#include "headrace/store/transfer/host.h"

namespace headrace {
namespace {

constexpr uint64_t kBudgetBytes = 1 * kMiB;

class PieceQueueTest : public ::testing::Test {
 protected:
  // A batch that is about to be queued; its place is behind those made before.
  std::shared_ptr<ReadBatch> batch_of(size_t count, uint64_t size_bytes, bool has_into = false) {
    const ReadTarget target = {.name = "a", .size_bytes = size_bytes, .has_into = has_into};
    return batch_of(std::vector<ReadTarget>(count, target));
  }
  std::shared_ptr<ReadBatch> batch_of(std::span<const ReadTarget> targets) {
    std::shared_ptr<ReadBatch> batch = ReadBatch::create(targets.size());
    for (const ReadTarget& target : targets) batch->add(target);
    batch->order = next_order_++;
    batch->make_shares(1);
    batch->deal([](size_t) { return 0u; });
    order_.queued_changed(*batch);
    return batch;
  }
  void push(ReadBatch& batch) {
    PieceList pieces;
    for (size_t i = 0; i < batch.size(); ++i) pieces.append(batch.slot(i).first_piece);
    queue_.push(pieces);
  }
  // Takes a piece and makes its memory, as a reader does.
  ReadPiece* begin() {
    ReadPiece* piece = queue_.take();
    if (piece == nullptr) return nullptr;
    ReadSlot& slot = piece->batch->slot(piece->slot_index);
    const bool wanted = piece->batch->waited_for();
    EXPECT_TRUE(make_room(*pool_, slot, slot.range.size_bytes(), wanted).has_value());
    end_flight(*pool_, slot);
    return piece;
  }
  void free(ReadPiece* piece) { give_memory_back(*pool_, piece->batch->slot(piece->slot_index)); }

  const std::shared_ptr<BlockPool> pool_ = BlockPool::create(kBudgetBytes);
  Metrics metrics_;
  uint64_t next_order_ = 0;
  ReadOrder order_;
  PieceQueue queue_{order_, *pool_, metrics_};
};

TEST_F(PieceQueueTest, AFreedBlockCostsALookAtAFewPiecesHoweverLongTheQueueIs) {
  constexpr size_t kPieces = 10'000;
  const std::shared_ptr<ReadBatch> batch = batch_of(kPieces, 64 * kKiB);
  push(*batch);
  std::deque<ReadPiece*> held;
  size_t begun = 0;
  while (begun < kPieces) {
    if (ReadPiece* piece = begin()) {
      held.push_back(piece);
      EXPECT_EQ(piece->slot_index, begun++);
    } else {
      EXPECT_EQ(held.size(), kBudgetBytes / (64 * kKiB));
      free(held.front());
      held.pop_front();
    }
  }
  // Once when it is set aside, once or twice when it begins, and as often when nothing may.
  EXPECT_LE(metrics_.pieces_considered_total, 8 * kPieces);
}

TEST_F(PieceQueueTest, ManyBatchesThatWaitForMemoryCostNoMoreThanOne) {
  constexpr size_t kBatches = 2'000;
  std::vector<std::shared_ptr<ReadBatch>> batches;
  for (size_t i = 0; i < kBatches; ++i) {
    batches.push_back(batch_of(1, 256 * kKiB));
    push(*batches.back());
  }
  std::deque<ReadPiece*> held;
  for (size_t begun = 0; begun < kBatches;) {
    if (ReadPiece* piece = begin()) {
      EXPECT_EQ(piece->batch, batches[begun++].get()) << "in their order";
      held.push_back(piece);
    } else {
      free(held.front());
      held.pop_front();
    }
  }
  EXPECT_LE(metrics_.pieces_considered_total, 20 * kBatches);
}

TEST_F(PieceQueueTest, WhereRoomIsScarceTheOldestBatchGetsItWhateverTheQueuesOrder) {
  const std::shared_ptr<ReadBatch> older = batch_of(4, 256 * kKiB);
  const std::shared_ptr<ReadBatch> later = batch_of(4, 256 * kKiB);
  push(*later);
  push(*older);
  ReadPiece* first = begin();
  ReadPiece* second = begin();
  EXPECT_EQ(first->batch, later.get()) << "there is plenty";
  EXPECT_EQ(second->batch, later.get());
  EXPECT_EQ(begin()->batch, older.get());
  EXPECT_EQ(begin()->batch, older.get());
  EXPECT_EQ(begin(), nullptr) << "the budget is used up";
  free(first);
  EXPECT_EQ(begin()->batch, older.get());
  EXPECT_EQ(begin(), nullptr);
  free(second);
  EXPECT_EQ(begin()->batch, older.get());
}

TEST_F(PieceQueueTest, ABatchThatIsWaitedForBeginsThoughTheBudgetIsUsedUp) {
  const std::shared_ptr<ReadBatch> held = batch_of(1, kBudgetBytes);
  push(*held);
  ASSERT_NE(begin(), nullptr);
  const std::shared_ptr<ReadBatch> ahead = batch_of(2, 64 * kKiB);
  const std::shared_ptr<ReadBatch> wanted = batch_of(2, 64 * kKiB);
  push(*ahead);
  push(*wanted);
  EXPECT_EQ(begin(), nullptr);
  EXPECT_TRUE(order_.short_of_memory()) << "so whoever waits says so";
  wanted->want();
  queue_.waited_for(*wanted);
  EXPECT_EQ(begin()->batch, wanted.get());
  EXPECT_EQ(begin()->batch, wanted.get());
  EXPECT_EQ(begin(), nullptr);
  ahead->want();
  queue_.waited_for(*ahead);
  EXPECT_EQ(begin()->slot_index, 0u);
  EXPECT_EQ(begin()->slot_index, 1u);
  EXPECT_FALSE(order_.short_of_memory());
  EXPECT_TRUE(queue_.empty());
}

TEST_F(PieceQueueTest, ABatchThatWasWaitedForBeforeItsPiecesCameNeedsNoAnnouncement) {
  const std::shared_ptr<ReadBatch> held = batch_of(1, kBudgetBytes);
  push(*held);
  ASSERT_NE(begin(), nullptr);
  const std::shared_ptr<ReadBatch> wanted = batch_of(1, 64 * kKiB);
  wanted->want();
  push(*wanted);
  EXPECT_NE(begin(), nullptr);
}

TEST_F(PieceQueueTest, WhatNeedsNoMemoryPassesWhatWaitsForIt) {
  const std::shared_ptr<ReadBatch> held = batch_of(1, kBudgetBytes);
  push(*held);
  ASSERT_NE(begin(), nullptr);
  const std::shared_ptr<ReadBatch> ahead = batch_of(3, 64 * kKiB);
  const std::shared_ptr<ReadBatch> own_memory = batch_of(1, 64 * kKiB, /*has_into=*/true);
  push(*ahead);
  push(*own_memory);
  EXPECT_EQ(queue_.take()->batch, own_memory.get());
  EXPECT_EQ(queue_.take(), nullptr);
}

TEST_F(PieceQueueTest, NothingOfUnknownSizeIsReadAheadUntilOneSizeIsKnown) {
  const std::shared_ptr<ReadBatch> unknown = batch_of(2, kUnknownSize);
  const std::shared_ptr<ReadBatch> known = batch_of(1, 64 * kKiB);
  push(*unknown);
  push(*known);
  EXPECT_EQ(queue_.take()->batch, known.get());
  EXPECT_EQ(queue_.take(), nullptr);
  order_.learn_size(64 * kKiB);
  EXPECT_EQ(queue_.take()->batch, unknown.get());
}

TEST_F(PieceQueueTest, WhatCanOnlyFailBeginsAtOnceThoughAllMemoryIsInFlight) {
  ASSERT_TRUE(pool_->try_begin_flight(kBudgetBytes));
  const auto push_one = [&](const ReadTarget& target) {
    std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
    push(*batch);
    return batch;
  };
  const auto beyond = push_one({.name = "a", .size_bytes = 10, .range = ByteRange{20, 30}});
  const auto backwards = push_one({.name = "a", .range = ByteRange{30, 20}});
  const auto too_large = push_one({.name = "a", .size_bytes = 2 * kBudgetBytes});
  const auto good = push_one({.name = "a", .size_bytes = 10});
  for (const auto& batch : {beyond, backwards, too_large}) {
    const ReadPiece* piece = queue_.take();
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(piece->batch, batch.get());
    EXPECT_EQ(batch->slot(0).reserved_bytes, 0u);
  }
  EXPECT_EQ(queue_.take(), nullptr);
}

TEST_F(PieceQueueTest, ARangeThatMayEndBeyondItsObjectNeedsNoMoreThanAnObject) {
  const ReadTarget target = {.name = "a", .range = ByteRange{0, uint64_t{1} << 40}};
  const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
  push(*batch);
  EXPECT_EQ(queue_.take(), nullptr) << "no size is known";
  order_.learn_size(64 * kKiB);
  ASSERT_TRUE(pool_->try_begin_flight(kBudgetBytes / 2));
  ASSERT_NE(queue_.take(), nullptr);
  EXPECT_EQ(batch->slot(0).reserved_bytes, 64 * kKiB);
}

TEST_F(PieceQueueTest, ALargeReadThatIsWaitedForGetsItsTurnBeforeLaterSmallOnes) {
  ASSERT_TRUE(pool_->try_begin_flight(512 * kKiB));
  const std::shared_ptr<ReadBatch> older = batch_of(1, 64 * kKiB);
  const std::shared_ptr<ReadBatch> large = batch_of(1, 768 * kKiB);
  const std::shared_ptr<ReadBatch> later = batch_of(1, 64 * kKiB);
  const std::shared_ptr<ReadBatch> ahead = batch_of(1, 64 * kKiB);
  // As of another host: it has a queue of its own, and the same memory.
  ReadOrder other_order;
  PieceQueue other(other_order, *pool_, metrics_);
  for (const auto& batch : {older, large, later}) batch->want();
  push(*large);
  EXPECT_EQ(queue_.take(), nullptr);
  push(*ahead);
  EXPECT_EQ(queue_.take(), nullptr);
  ReadPiece& first = later->slot(0).first_piece;
  other.push({.first = &first, .last = &first});
  EXPECT_EQ(other.take(), nullptr) << "there is room, but the large one is first";
  push(*older);
  EXPECT_EQ(begin()->batch, older.get());
  EXPECT_EQ(queue_.take(), nullptr);

  int calls = 0;
  pool_->set_on_room([&] { ++calls; });
  pool_->end_flight(512 * kKiB);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(other.take(), nullptr) << "it is not its turn";
  EXPECT_EQ(queue_.take()->batch, large.get());
  EXPECT_EQ(calls, 2) << "the others may begin";
  EXPECT_EQ(other.take()->batch, later.get());
  pool_->set_on_room(nullptr);
}

TEST_F(PieceQueueTest, ADroppedBatchLeavesTheLine) {
  ASSERT_TRUE(pool_->try_begin_flight(512 * kKiB));
  const std::shared_ptr<ReadBatch> large = batch_of(1, 768 * kKiB);
  const std::shared_ptr<ReadBatch> later = batch_of(1, 64 * kKiB);
  large->want();
  push(*large);
  push(*later);
  EXPECT_EQ(queue_.take(), nullptr);
  EXPECT_FALSE(queue_.drop(*large).empty());
  EXPECT_EQ(queue_.take()->batch, later.get());
}

TEST_F(PieceQueueTest, ADroppedBatchLeavesNothingBehind) {
  const std::shared_ptr<ReadBatch> held = batch_of(1, kBudgetBytes);
  push(*held);
  ASSERT_NE(begin(), nullptr);
  const std::shared_ptr<ReadBatch> ahead = batch_of(3, 64 * kKiB);
  push(*ahead);
  EXPECT_EQ(queue_.take(), nullptr);
  ReadPiece again;
  again.batch = ahead.get();
  again.slot_index = 2;
  queue_.push_front({.first = &again, .last = &again});  // one in the queue, the others set aside
  size_t dropped = 0;
  for (const ReadPiece* piece = queue_.drop(*ahead).first; piece != nullptr; piece = piece->next) {
    ++dropped;
  }
  EXPECT_EQ(dropped, 4u);
  EXPECT_TRUE(queue_.empty());
  EXPECT_FALSE(ahead->queued());
  EXPECT_FALSE(order_.short_of_memory());
  EXPECT_EQ(order_.oldest_queued(), UINT64_MAX);
}

// Reads nothing; readers are only told apart.
class NoReader final : public PieceReader {
 public:
  awaitable<void> read_piece(Permit&, ReadPiece&, HttpRequest&) override { co_return; }
  void piece_failed(HostLane&, ReadPiece&, Error) override {}
  const std::shared_ptr<Pace>& pace() const override { return pace_; }

 private:
  std::shared_ptr<Pace> pace_;
};

class MovingPieces : public PieceQueueTest {
 protected:
  std::shared_ptr<ReadBatch> batch_for(PieceReader& reader, size_t count, uint64_t size_bytes) {
    std::shared_ptr<ReadBatch> batch = batch_of(count, size_bytes);
    for (size_t i = 0; i < count; ++i) batch->slot(i).first_piece.reader = &reader;
    return batch;
  }
  void move(const PieceReader& reader) {
    queue_.move_to(other_, [&](const PieceReader& each) { return &each == &reader; });
  }
  static void expect_all_in_order(PieceQueue& queue, const ReadBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      const ReadPiece* piece = queue.take();
      ASSERT_NE(piece, nullptr);
      EXPECT_EQ(piece->batch, &batch);
      EXPECT_EQ(piece->slot_index, i);
    }
  }

  NoReader moving_, staying_;
  PieceQueue other_{order_, *pool_, metrics_};
};

TEST_F(MovingPieces, ThoseOfOneReaderGoAndTheOthersStayInTheirOrder) {
  const std::shared_ptr<ReadBatch> first = batch_for(staying_, 2, 1'000);
  const std::shared_ptr<ReadBatch> moved = batch_for(moving_, 3, 1'000);
  const std::shared_ptr<ReadBatch> last = batch_for(staying_, 2, 1'000);
  for (const auto& each : {first, moved, last}) push(*each);
  move(moving_);
  EXPECT_EQ(queue_.size(), 4u);
  EXPECT_EQ(other_.size(), 3u);
  const std::shared_ptr<ReadBatch> later = batch_for(staying_, 1, 1'000);
  push(*later);
  expect_all_in_order(queue_, *first);
  expect_all_in_order(queue_, *last);
  expect_all_in_order(queue_, *later);
  EXPECT_TRUE(moved->queued());
  EXPECT_EQ(order_.oldest_queued(), moved->order);
  expect_all_in_order(other_, *moved);
  EXPECT_EQ(order_.oldest_queued(), UINT64_MAX);
  EXPECT_TRUE(queue_.empty() && other_.empty());
}

TEST_F(MovingPieces, ThoseThatWaitForMemoryGoToo) {
  const std::shared_ptr<ReadBatch> held = batch_for(staying_, 1, kBudgetBytes);
  push(*held);
  ReadPiece* const holder = begin();
  ASSERT_NE(holder, nullptr);
  const std::shared_ptr<ReadBatch> moved = batch_for(moving_, 3, 64 * kKiB);
  const std::shared_ptr<ReadBatch> stays = batch_for(staying_, 2, 64 * kKiB);
  push(*moved);
  push(*stays);
  EXPECT_EQ(queue_.take(), nullptr);
  move(moving_);
  EXPECT_EQ(queue_.size(), 2u);
  EXPECT_EQ(other_.size(), 3u);
  EXPECT_EQ(other_.take(), nullptr) << "there is no memory there, either";
  free(holder);
  expect_all_in_order(other_, *moved);
  expect_all_in_order(queue_, *stays);
  EXPECT_FALSE(order_.short_of_memory());
}

TEST_F(PieceQueueTest, WhenTheEngineStopsEverythingIsGivenOut) {
  const std::shared_ptr<ReadBatch> held = batch_of(1, kBudgetBytes);
  push(*held);
  ASSERT_NE(begin(), nullptr);
  const std::shared_ptr<ReadBatch> ahead = batch_of(3, 64 * kKiB);
  push(*ahead);
  EXPECT_EQ(queue_.take(), nullptr);
  queue_.stop();
  for (int i = 0; i < 3; ++i) EXPECT_NE(queue_.take(), nullptr);
}

}  // namespace
}  // namespace headrace
