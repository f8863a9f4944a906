// Memory for object bytes: size-class blocks, counted against one budget.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/units.h"

namespace headrace {

class BlockPool;

// The bytes of one object, owned. Moves, does not copy. It may be freed on any thread, and in a
// forked child, where freeing takes no lock and leaves the memory alone.
// Thread: confined.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept;
  ~Block() { release(); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::byte* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }
  std::span<std::byte> bytes() const { return {data_, size_bytes_}; }
  void release();

 private:
  friend class BatchMemory;
  friend class BlockPool;
  BlockPool* pool_ = nullptr;  // lives at least as long as its blocks
  std::byte* data_ = nullptr;
  uint64_t size_bytes_ = 0;
};

// Makes memory from elsewhere count against the budget for as long as this object lives. Movable.
// Releasing it in a forked child is as harmless as releasing a block.
// Thread: any.
class Charge {
 public:
  // What it is for: the bytes of objects, or keeping count of their reads, which is not live.
  enum class For : uint8_t { kBytes, kBatches };

  Charge(std::shared_ptr<BlockPool> pool, uint64_t size_bytes, For what = For::kBytes);
  ~Charge() { release(); }
  Charge(Charge&&) noexcept = default;
  Charge& operator=(Charge&&) = delete;
  void release();

 private:
  std::atomic<uint64_t>& counted() const;

  std::shared_ptr<BlockPool> pool_;
  uint64_t size_bytes_;
  For what_;
};

// A block for a batch that the user gets in the end. Given away, it does not count against the
// budget any more, as no memory of the user's own does; when it is freed the pool uses it again.
// Thread: confined.
class BatchMemory {
 public:
  // Counts, whether or not there is room. Empty only as with BlockPool::allocate().
  BatchMemory(BlockPool& pool, uint64_t size_bytes);
  ~BatchMemory();
  BatchMemory(BatchMemory&&) noexcept = default;
  BatchMemory& operator=(BatchMemory&&) = delete;
  void give_away();
  std::span<std::byte> bytes() const { return block_.bytes(); }

 private:
  Block block_;
  bool is_given_ = false;
};

struct MemoryUse {
  uint64_t budget_bytes = 0;     // what the user set
  uint64_t live_bytes = 0;       // blocks handed out: in flight, buffered, or held by the user
  uint64_t in_flight_bytes = 0;  // of these, reads that are not complete
  uint64_t cached_bytes = 0;     // free blocks kept warm for the next read
  uint64_t peak_live_bytes = 0;
};

// Blocks that are freed wait in a list, which needs no lock, until there are several, or until
// somebody asks for room or for a number that they change. With allocate_many() a thread takes the
// lock once for several blocks.
//
// Hands out blocks by size class, four classes to a doubling, so that at most a quarter of a block
// is unused. Blocks of a class are carved from slabs and reused last-freed-first, while they are
// still in cache. Free memory beyond a quarter of the budget goes back to the system: at once, or,
// if somebody sees to that (set_on_surplus()), when nobody has used it for a while. A sample that
// the user keeps therefore pins one block, never its whole batch.
// Thread: any.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  static constexpr uint64_t kMinBlockBytes = 256;  // keeps every block 64-byte aligned
  static constexpr uint64_t kSlabBytes = 4 * kMiB;

  static std::shared_ptr<BlockPool> create(uint64_t budget_bytes);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A block of `size_bytes`; zero bytes give an empty block. Contents are unspecified. Fails only
  // when the system has no memory (an empty block for a size above zero).
  Block allocate(uint64_t size_bytes);
  // The same, but empty if that would exceed the budget. One step, because threads that checked
  // live_bytes() before allocating could exceed it together.
  std::optional<Block> allocate_within_budget(uint64_t size_bytes);
  // A block for each of the sizes, each of which begins a flight, as one step. False, and nothing
  // has changed, if memory or flights would then take up more than half of the budget, or if one
  // of the sizes is beyond those that are kept for use again.
  bool allocate_many(std::span<const uint64_t> sizes_bytes, std::span<Block> blocks);
  // How much allocate(size_bytes) counts against the budget.
  static uint64_t charged_bytes(uint64_t size_bytes);

  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t live_bytes();
  // What would be live, reserved or taken by batches with so much more. Beyond half of the budget
  // it is exact; below, blocks that are free, but have not been collected yet, may count.
  uint64_t taken_bytes(uint64_t more);
  uint64_t in_flight_bytes() const { return in_flight_bytes_.load(std::memory_order_seq_cst); }

  // Incomplete reads may take up the whole budget but no more, except that a single read may have
  // any size.
  bool try_begin_flight(uint64_t size_bytes);
  void end_flight(uint64_t size_bytes) { end_flights(charged_bytes(size_bytes)); }
  void end_flights(uint64_t charged);  // of several reads

  // Whether a read of a batch may begin a flight, to be asked before try_begin_flight(). So that
  // small reads cannot keep a large one out for ever, a read that is waited for and finds no room
  // claims the next room for its batch: until the claim is dropped, no read of a later batch
  // begins, and no read ahead.
  bool may_begin_flight(uint64_t charged, uint64_t batch_order, bool waited_for);
  // A read of the batch has begun, or need not begin any more. Others of the batch that still find
  // no room claim it again.
  void drop_claim(uint64_t batch_order);

  // Memory set aside for reads that have begun and will need it, or are expected to.
  uint64_t reserved_bytes() const { return reserved_bytes_.load(std::memory_order_seq_cst); }
  void reserve(uint64_t charged) { reserved_bytes_.fetch_add(charged, std::memory_order_seq_cst); }
  bool try_reserve(uint64_t charged);  // only within the budget
  // What the batches take beside the bytes that they read.
  uint64_t batch_bytes() const { return batch_bytes_.load(std::memory_order_relaxed); }
  void unreserve(uint64_t charged) {
    reserved_bytes_.fetch_sub(charged, std::memory_order_seq_cst);
    made_room();
  }

  // `on_room` is called on the thread that frees memory, if somebody has asked for room.
  void set_on_room(std::function<void()> on_room);
  void ask_for_room() { freed_.fetch_or(kRoomWanted, std::memory_order_seq_cst); }
  bool room_wanted() const { return (freed_.load(std::memory_order_seq_cst) & kRoomWanted) != 0; }
  // Calls `on_room` if somebody has asked for room. The pool does so when memory becomes free;
  // stores when a different batch is entitled to the memory.
  void made_room();

  // `on_surplus` is called when there is free memory beyond a quarter of the budget. It is to have
  // trim() called a while later, and must not use the pool itself. Without it, such memory goes
  // back to the system as soon as it is free, on the thread that frees it, which may be the user's:
  // it takes a millisecond for 16 MiB, and as much again when the memory is next written to.
  void set_on_surplus(std::function<void()> on_surplus);
  enum class Trimmed : uint8_t {
    kAll,     // there is no surplus
    kSome,    // there is more of what nobody has used: to be called again at once
    kUnused,  // nobody may use what is left: to be called again a while later
  };
  // Returns to the system some of what was free since the call before, beyond a quarter of the
  // budget: a few milliseconds' worth.
  Trimmed trim();
  // Nobody will call trim(): whoever was told of the surplus could not see to it.
  void forget_surplus();

  MemoryUse use();

 private:
  friend class BatchMemory;
  friend class Block;
  friend class Charge;
  static constexpr size_t kClassCount = 81;  // up to 256 MiB; larger blocks are mapped one by one
  // From here on a block counts the pages that are asked for, not those of its class: what is left
  // over is never touched, unless a larger read before left it warm.
  static constexpr uint64_t kMaxWholeChargeBytes = 64 * kMiB;
  struct FreeList {
    std::vector<std::byte*> warm, cold;  // cold: pages returned to the system
  };
  struct Slab {
    std::byte* data;
    uint64_t size_bytes;
  };

  // At the beginning of a block that is free, but has not been collected.
  struct Freed {
    uintptr_t next;
    uint64_t size_bytes;
  };
  // Beyond either of these, a thread that frees collects the blocks itself.
  static constexpr uint64_t kMaxFreedCount = 32, kMaxFreedBytes = 1 * kMiB;
  static constexpr uint64_t kMaxTrimBytes = 32 * kMiB;  // with the lock held
  // In `freed_`, beside the address of the first block. With either of them a block that is freed
  // is collected at once.
  static constexpr uintptr_t kRoomWanted = 1, kClosed = 2, kFlags = 3;

  explicit BlockPool(uint64_t budget_bytes);
  ~BlockPool();
  static void disown(BlockPool* pool);  // its owners are gone

  Block make(uint64_t size_bytes);  // already counted
  void hand_out(Block& block, std::byte* data, uint64_t size_bytes);
  void note_peak();
  void free_block(std::byte* data, uint64_t size_bytes);
  bool free_later(std::byte* data, uint64_t size_bytes);
  void free_now(std::byte* data, uint64_t size_bytes, bool counts = true);
  void collect();
  void collect_all() HEADRACE_REQUIRES(mutex_);
  void put_back(std::byte* data, uint64_t size_bytes, uint64_t live) HEADRACE_REQUIRES(mutex_);
  uint64_t kept_bytes() const { return budget_bytes_ / 4; }
  uint64_t give_back_warm(uint64_t size_bytes) HEADRACE_REQUIRES(mutex_);
  void make_room_for_pages() HEADRACE_REQUIRES(mutex_);
  std::byte* take(size_t size_class) HEADRACE_REQUIRES(mutex_);

  const uint64_t budget_bytes_;
  const uint64_t epoch_;
  std::atomic<uint64_t> live_bytes_ = 0, peak_live_bytes_ = 0, in_flight_bytes_ = 0;
  std::atomic<uint64_t> reserved_bytes_ = 0, batch_bytes_ = 0;
  std::atomic<uint64_t> first_claim_ = UINT64_MAX;  // the order of the oldest batch with a claim
  alignas(64) std::atomic<uintptr_t> freed_ = 0;    // the list of Freed, and flags
  alignas(64) mutable Mutex mutex_;
  // The pool is deleted once both are zero: blocks may outlive its owners.
  bool owned_ HEADRACE_GUARDED_BY(mutex_) = true;
  uint64_t blocks_out_ HEADRACE_GUARDED_BY(mutex_) = 0;  // those in `freed_` count
  std::array<FreeList, kClassCount> free_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<Slab> slabs_ HEADRACE_GUARDED_BY(mutex_);
  uint64_t cached_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  uint64_t least_cached_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;  // since trim() or the last surplus
  bool is_watched_ HEADRACE_GUARDED_BY(mutex_) = false;          // trim() will be called
  std::function<void()> on_room_ HEADRACE_GUARDED_BY(mutex_);
  std::function<void()> on_surplus_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
