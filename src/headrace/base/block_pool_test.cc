#include "headrace/base/block_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <random>
#include <thread>
#include <vector>

namespace headrace {
namespace {

std::shared_ptr<BlockPool> pool_of(uint64_t budget_bytes) {
  return BlockPool::create(budget_bytes);
}

TEST(BlockPool, MemoryOfOthersCountsWhileItsChargeLives) {
  const auto pool = BlockPool::create(kMiB);
  int rooms = 0;
  pool->set_on_room([&rooms] { ++rooms; });
  {
    Charge charge(pool, kMiB);
    EXPECT_EQ(pool->live_bytes(), kMiB);
    EXPECT_FALSE(pool->allocate_within_budget(1));
    pool->ask_for_room();
    Charge moved = std::move(charge);
    EXPECT_EQ(pool->live_bytes(), kMiB);
    moved.release();
    moved.release();
    EXPECT_EQ(pool->live_bytes(), 0u);
    EXPECT_EQ(rooms, 1);
  }
  EXPECT_EQ(pool->live_bytes(), 0u);
  EXPECT_EQ(pool->use().peak_live_bytes, kMiB);
}

TEST(BlockPool, MemoryOfABatchCountsUntilItIsGivenAwayAndIsUsedAgain) {
  const auto pool = BlockPool::create(64 * kMiB);
  int told = 0;
  pool->set_on_room([&told] { ++told; });
  const std::byte* data = nullptr;
  {
    BatchMemory memory(*pool, 7 * kMiB);
    data = memory.bytes().data();
    EXPECT_EQ(memory.bytes().size(), 7 * kMiB);
    EXPECT_EQ(pool->live_bytes(), 7 * kMiB);
    pool->ask_for_room();
    memory.give_away();
    EXPECT_EQ(told, 1);
    memory.give_away();
    EXPECT_EQ(pool->live_bytes(), 0U);
    const BatchMemory moved = std::move(memory);
    EXPECT_EQ(moved.bytes().data(), data);
  }
  EXPECT_EQ(pool->live_bytes(), 0U);
  EXPECT_EQ(pool->use().cached_bytes, 7 * kMiB);
  {
    const BatchMemory kept(*pool, 7 * kMiB - 1);
    EXPECT_EQ(kept.bytes().data(), data);
  }
  EXPECT_EQ(pool->live_bytes(), 0U);
  EXPECT_EQ(pool->use().peak_live_bytes, 7 * kMiB);
}

TEST(BlockPool, LargeBlocksAreUsedAgainAndCountWhatWasAskedFor) {
  const auto pool = BlockPool::create(1024 * kMiB);
  const std::byte* data = nullptr;
  {
    const Block block = pool->allocate(147 * kMiB);
    data = block.data();
    EXPECT_EQ(pool->live_bytes(), 147 * kMiB);
  }
  EXPECT_EQ(pool->live_bytes(), 0U);
  EXPECT_EQ(pool->use().cached_bytes, 160 * kMiB);
  EXPECT_EQ(pool->allocate(150 * kMiB).data(), data);
  EXPECT_EQ(pool->use().cached_bytes, 160 * kMiB);
  EXPECT_TRUE(BlockPool::create(100 * kMiB)->allocate_within_budget(99 * kMiB).has_value());
}

TEST(BlockPool, MemoryThatWasGivenAwayOutlivesThePoolsOwner) {
  auto pool = BlockPool::create(64 * kMiB);
  std::optional<BatchMemory> large(std::in_place, *pool, 300 * kMiB),
      small(std::in_place, *pool, 1);
  large->give_away();
  small->give_away();
  pool.reset();
  large->bytes()[0] = small->bytes()[0] = std::byte{1};
  large.reset();
  small.reset();
}

TEST(BlockPool, ZeroBytesAreAnEmptyBlockThatCostsNothing) {
  const auto pool = pool_of(kMiB);
  const Block block = pool->allocate(0);
  EXPECT_EQ(block.data(), nullptr);
  EXPECT_EQ(block.size_bytes(), 0u);
  EXPECT_EQ(pool->live_bytes(), 0u);
  EXPECT_EQ(BlockPool::charged_bytes(0), 0u);
}

TEST(BlockPool, AtMostAQuarterOfABlockIsUnusedAndBlocksAreAligned) {
  const auto pool = pool_of(kGiB);
  for (const uint64_t size :
       {uint64_t{1}, uint64_t{255}, uint64_t{256}, uint64_t{257}, uint64_t{320}, uint64_t{321},
        uint64_t{511}, uint64_t{512}, uint64_t{513}, 100 * kKiB, 4 * kMiB, 5 * kMiB + 1, 64 * kMiB,
        64 * kMiB + 1, 100 * kMiB}) {
    const Block block = pool->allocate(size);
    ASSERT_NE(block.data(), nullptr);
    EXPECT_EQ(block.size_bytes(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % 64, 0u) << size;
    const uint64_t charged = BlockPool::charged_bytes(size);
    EXPECT_GE(charged, size);
    if (size > BlockPool::kMinBlockBytes) {
      EXPECT_LE(charged, size + size / 4) << size;
    }
    EXPECT_EQ(pool->live_bytes(), charged);
  }
  EXPECT_EQ(pool->live_bytes(), 0u);
}

TEST(BlockPool, BlocksDoNotOverlap) {
  const auto pool = pool_of(kGiB);
  std::mt19937_64 random(1);
  std::vector<Block> blocks;
  const auto mark = [](size_t index) { return static_cast<int>(index % 251); };
  for (size_t i = 0; i < 500; ++i) {
    blocks.push_back(pool->allocate(1 + random() % (20 * kKiB)));
    std::memset(blocks[i].data(), mark(i), blocks[i].size_bytes());
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (const std::byte byte : blocks[i].bytes()) {
      ASSERT_EQ(std::to_integer<int>(byte), mark(i)) << i;
    }
  }
}

TEST(BlockPool, TheBlockFreedLastIsHandedOutNext) {
  const auto pool = pool_of(64 * kMiB);
  Block first = pool->allocate(100 * kKiB), second = pool->allocate(100 * kKiB);
  std::byte* const data = first.data();
  second.release();
  first.release();
  EXPECT_EQ(pool->allocate(100 * kKiB).data(), data);
}

TEST(BlockPool, AMovedBlockIsFreedOnce) {
  const auto pool = pool_of(kMiB);
  Block first = pool->allocate(1000);
  Block second = std::move(first);
  Block third = pool->allocate(2000);
  third = std::move(second);
  EXPECT_EQ(pool->live_bytes(), BlockPool::charged_bytes(1000));
  third.release();
  third.release();
  EXPECT_EQ(pool->live_bytes(), 0u);
}

TEST(BlockPool, KeepingOneSampleOfABatchPinsOneBlock) {
  const auto pool = pool_of(256 * kMiB);
  Block kept;
  for (int batch = 0; batch < 10; ++batch) {
    std::vector<Block> samples;
    for (int i = 0; i < 64; ++i) samples.push_back(pool->allocate(100 * kKiB));
    kept = std::move(samples[7]);
  }
  EXPECT_EQ(pool->live_bytes(), BlockPool::charged_bytes(100 * kKiB));
}

TEST(BlockPool, FreeBlocksKeptWarmAreAtMostAQuarterOfTheBudget) {
  const auto pool = pool_of(16 * kMiB);
  std::vector<Block> blocks;
  for (int i = 0; i < 128; ++i) blocks.push_back(pool->allocate(128 * kKiB));
  EXPECT_EQ(pool->use().cached_bytes, 0u);
  blocks.clear();
  EXPECT_GT(pool->use().cached_bytes, 0u);
  EXPECT_LE(pool->use().cached_bytes, 4 * kMiB);
  EXPECT_EQ(pool->use().peak_live_bytes, 16 * kMiB);
}

// How many of these pages have memory.
uint64_t resident_bytes(const std::byte* data, uint64_t size_bytes) {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> there(size_bytes / page);
  EXPECT_EQ(::mincore(const_cast<std::byte*>(data), size_bytes, there.data()), 0);
  return page * static_cast<uint64_t>(
                    std::ranges::count_if(there, [](auto each) { return (each & 1) != 0; }));
}

// Blocks of 4 MiB, all of which were written to.
std::vector<Block> filled(BlockPool& pool, size_t count) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < count; ++i) {
    blocks.push_back(pool.allocate(4 * kMiB));
    std::memset(blocks.back().data(), 1, blocks.back().size_bytes());
  }
  return blocks;
}

TEST(BlockPool, WhatIsFreeBeyondAQuarterIsKeptUntilItHasBeenUnusedForAWhile) {
  const auto pool = pool_of(64 * kMiB);
  int told = 0;
  pool->set_on_surplus([&told] { ++told; });
  std::vector<Block> blocks = filled(*pool, 16);
  std::vector<const std::byte*> places;
  for (const Block& block : blocks) places.push_back(block.data());
  blocks.clear();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(pool->use().cached_bytes, 64 * kMiB);
  const auto resident = [&places] {
    uint64_t sum = 0;
    for (const std::byte* place : places) sum += resident_bytes(place, 4 * kMiB);
    return sum;
  };
  EXPECT_EQ(resident(), 64 * kMiB);
  // Five were free all the time since it was told.
  EXPECT_EQ(pool->trim(), BlockPool::Trimmed::kUnused);
  EXPECT_EQ(pool->use().cached_bytes, 60 * kMiB);
  EXPECT_EQ(resident(), 60 * kMiB);
  // Eight of the fifteen blocks are in use once more, so that seven are not.
  filled(*pool, 8).clear();
  EXPECT_EQ(pool->trim(), BlockPool::Trimmed::kUnused);
  EXPECT_EQ(pool->use().cached_bytes, 48 * kMiB);
  EXPECT_EQ(resident(), 48 * kMiB);
  EXPECT_EQ(pool->trim(), BlockPool::Trimmed::kAll);
  EXPECT_EQ(pool->use().cached_bytes, 16 * kMiB);
  EXPECT_EQ(resident(), 16 * kMiB);
  EXPECT_EQ(told, 1);
  // The memory that went is had again, and is watched again.
  filled(*pool, 16).clear();
  EXPECT_EQ(told, 2);
  pool->set_on_surplus(nullptr);
  EXPECT_EQ(pool->use().cached_bytes, 16 * kMiB);
  filled(*pool, 16).clear();
  EXPECT_EQ(pool->use().cached_bytes, 16 * kMiB);
  EXPECT_EQ(resident(), 16 * kMiB);
}

TEST(BlockPool, WhatIsFreeAndWhatIsLiveAreNoMoreThanTheBudgetWhoeverSeesToTheSurplus) {
  const auto pool = pool_of(64 * kMiB);
  pool->set_on_surplus([] {});
  std::vector<Block> held = filled(*pool, 12), freed = filled(*pool, 8);
  freed.clear();
  EXPECT_EQ(pool->use().cached_bytes, 16 * kMiB);
  held.clear();
  EXPECT_EQ(pool->use().cached_bytes, 64 * kMiB);
}

TEST(BlockPool, WhatIsKeptMakesRoomForBlocksOfOtherSizes) {
  const auto pool = pool_of(64 * kMiB);
  pool->set_on_surplus([] {});
  std::vector<Block> blocks = filled(*pool, 16);
  std::vector<const std::byte*> places;
  for (const Block& block : blocks) places.push_back(block.data());
  blocks.clear();
  std::vector<Block> others;
  for (int i = 0; i < 48; ++i) {
    others.push_back(pool->allocate(kMiB));
    std::memset(others.back().data(), 1, kMiB);
    EXPECT_LE(pool->use().cached_bytes + pool->live_bytes(), 64 * kMiB);
  }
  uint64_t resident = 0;
  for (const std::byte* place : places) resident += resident_bytes(place, 4 * kMiB);
  EXPECT_EQ(resident, 16 * kMiB);
  // A quarter stays, as ever.
  for (int i = 0; i < 16; ++i) others.push_back(pool->allocate(kMiB));
  EXPECT_EQ(pool->use().cached_bytes, 16 * kMiB);
}

TEST(BlockPool, ALargeSurplusIsTrimmedInSeveralSteps) {
  const auto pool = pool_of(256 * kMiB);
  pool->set_on_surplus([] {});
  filled(*pool, 64).clear();
  EXPECT_EQ(pool->trim(), BlockPool::Trimmed::kUnused);
  EXPECT_EQ(pool->use().cached_bytes, 252 * kMiB);
  int steps = 1;
  while (pool->trim() == BlockPool::Trimmed::kSome) ++steps;
  EXPECT_EQ(steps, 6);  // of 32 MiB each
  EXPECT_EQ(pool->use().cached_bytes, 64 * kMiB);
}

TEST(BlockPool, ASurplusThatNobodyCouldBeToldOfIsToldOfWithTheNextBlock) {
  const auto pool = pool_of(16 * kMiB);
  int told = 0;
  pool->set_on_surplus([&told] {
    if (++told == 1) throw std::bad_alloc();
  });
  filled(*pool, 4).clear();
  EXPECT_EQ(told, 2);
  EXPECT_EQ(pool->use().cached_bytes, 16 * kMiB);
}

TEST(BlockPool, BlocksOutliveTheirOwnerOfThePool) {
  auto pool = pool_of(kMiB);
  Block block = pool->allocate(kKiB);
  pool.reset();
  std::memset(block.data(), 1, block.size_bytes());
  block.release();
}

TEST(BlockPool, ReadsInFlightStayWithinTheBudgetUnlessAlone) {
  const auto pool = pool_of(kMiB);
  EXPECT_TRUE(pool->try_begin_flight(4 * kMiB));  // alone
  EXPECT_FALSE(pool->try_begin_flight(1));
  pool->end_flight(4 * kMiB);
  EXPECT_TRUE(pool->try_begin_flight(1));
  EXPECT_TRUE(pool->try_begin_flight(kMiB / 2));
  pool->end_flight(1);
  pool->end_flight(kMiB / 2);
  EXPECT_EQ(pool->use().in_flight_bytes, 0u);
}

TEST(BlockPool, ManyBlocksAreOneStep) {
  const auto pool = pool_of(64 * kMiB);
  const std::vector<uint64_t> sizes = {1000, 5 * kMiB, 100 * kKiB, 1};
  std::vector<Block> blocks(sizes.size());
  ASSERT_TRUE(pool->allocate_many(sizes, blocks));
  uint64_t charged = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(blocks[i].size_bytes(), sizes[i]);
    std::memset(blocks[i].data(), static_cast<int>(i), sizes[i]);
    charged += BlockPool::charged_bytes(sizes[i]);
  }
  EXPECT_EQ(pool->live_bytes(), charged);
  EXPECT_EQ(pool->in_flight_bytes(), charged);
  for (const uint64_t size_bytes : sizes) pool->end_flight(size_bytes);
  EXPECT_EQ(pool->in_flight_bytes(), 0u);
  blocks.clear();
  EXPECT_EQ(pool->live_bytes(), 0u);
}

TEST(BlockPool, ManyBlocksTakeNoMoreThanHalfOfTheBudget) {
  const auto pool = pool_of(64 * kMiB);
  const std::vector<uint64_t> sizes(4, 9 * kMiB);
  std::vector<Block> blocks(sizes.size());
  EXPECT_FALSE(pool->allocate_many(sizes, blocks));
  EXPECT_EQ(pool->live_bytes(), 0u);
  EXPECT_EQ(pool->in_flight_bytes(), 0u);
  EXPECT_EQ(blocks[0].data(), nullptr);
}

TEST(BlockPool, BlocksTooLargeToBeKeptAreNotAmongMany) {
  const auto pool = pool_of(uint64_t{8} << 30);
  const std::vector<uint64_t> sizes = {1000, 257 * kMiB};
  std::vector<Block> blocks(sizes.size());
  EXPECT_FALSE(pool->allocate_many(sizes, blocks));
  EXPECT_EQ(pool->live_bytes(), 0u);
  EXPECT_EQ(pool->in_flight_bytes(), 0u);
}

TEST(BlockPool, RoomIsAnnouncedOnceToWhoAskedForIt) {
  const auto pool = pool_of(kMiB);
  int calls = 0;
  pool->set_on_room([&] { ++calls; });
  pool->allocate(kKiB).release();
  EXPECT_EQ(calls, 0);
  pool->ask_for_room();
  Block block = pool->allocate(kKiB);
  EXPECT_EQ(calls, 0);
  block.release();
  EXPECT_EQ(calls, 1);
  pool->allocate(kKiB).release();
  EXPECT_EQ(calls, 1);
  pool->ask_for_room();
  ASSERT_TRUE(pool->try_begin_flight(kKiB));
  pool->end_flight(kKiB);
  EXPECT_EQ(calls, 2);
}

TEST(BlockPool, ManyThreadsAllocateAndFreeForEachOther) {
  const auto pool = pool_of(8 * kMiB);
  Mutex mutex;
  std::vector<Block> shared;
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      for (int i = 0; i < 2000; ++i) {
        Block block = pool->allocate(1 + random() % (64 * kKiB));
        block.data()[0] = std::byte{1};
        block.data()[block.size_bytes() - 1] = std::byte{1};
        const Lock lock(mutex);
        if (shared.size() < 32) {
          shared.push_back(std::move(block));
        } else {
          std::swap(shared[random() % shared.size()], block);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  shared.clear();
  EXPECT_EQ(pool->live_bytes(), 0u);
  EXPECT_LE(pool->use().cached_bytes, 2 * kMiB);
}

TEST(BlockPool, AForkedChildFreesInheritedBlocksWhileTheParentsThreadsAllocate) {
  // Enough forks that some happen while another thread holds the pool's lock.
  auto pool = pool_of(8 * kMiB);
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!done) pool->allocate(kKiB).release();
    });
  }
  for (int i = 0; i < 100; ++i) {
    Block block = pool->allocate(kKiB);
    std::memset(block.data(), 7, block.size_bytes());
    const pid_t child = ::fork();
    if (child == 0) {
      const bool readable = block.data()[kKiB - 1] == std::byte{7};
      block.release();
      block.release();
      // A pool of the child's own works.
      const Block own = BlockPool::create(kMiB)->allocate(kKiB);
      ::_exit(readable && own.data() != nullptr ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool->live_bytes(), 0u);
}

}  // namespace
}  // namespace headrace
