#include "headrace/base/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "headrace/base/fork.h"

#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif

namespace headrace {
namespace {

// AddressSanitizer does not know about the blocks inside a slab. We tell it which bytes are off
// limits: free blocks, and the part of a block beyond the requested size.
void poison([[maybe_unused]] const std::byte* data, [[maybe_unused]] uint64_t size_bytes) {
#if __has_feature(address_sanitizer)
  ASAN_POISON_MEMORY_REGION(data, size_bytes);
#endif
}

void unpoison([[maybe_unused]] const std::byte* data, [[maybe_unused]] uint64_t size_bytes) {
#if __has_feature(address_sanitizer)
  ASAN_UNPOISON_MEMORY_REGION(data, size_bytes);
#endif
}

constexpr uint64_t kPageBytes = 4 * kKiB;
// More than any machine has, and small enough that sums of such sizes do not wrap around.
constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 48;

// Four classes to a doubling: 256, 320, 384, 448, 512, 640, ...
size_t class_of(uint64_t size_bytes) {
  const uint64_t size = std::max(size_bytes, BlockPool::kMinBlockBytes);
  const auto exponent = static_cast<unsigned>(std::bit_width(size - 1)) - 1;  // 2^e < size
  const uint64_t base = uint64_t{1} << exponent;
  if (size <= BlockPool::kMinBlockBytes) return 0;
  const uint64_t step =
      ((size - base - 1) >> (exponent - 2)) + 1;  // of a quarter of base each: 1..4
  const unsigned doublings =
      exponent - static_cast<unsigned>(std::countr_zero(BlockPool::kMinBlockBytes));
  return doublings * 4 + step;
}

uint64_t class_bytes(size_t size_class) {
  const uint64_t base = BlockPool::kMinBlockBytes << (size_class / 4);
  return base + base / 4 * (size_class % 4);
}

// Anonymous memory; null if there is none.
std::byte* map(uint64_t size_bytes) {
  void* memory = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// Returns the whole pages inside the block to the system.
void give_back(std::byte* data, uint64_t size_bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (address + kPageBytes - 1) & ~(kPageBytes - 1);
  const uintptr_t end = (address + size_bytes) & ~(kPageBytes - 1);
  if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace

Block& Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::exchange(other.pool_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

void Block::release() {
  if (data_ == nullptr) return;
  // Of another epoch, the memory is left alone. Its pool lives on, since this block is never freed.
  if (pool_->epoch_ == fork_epoch()) pool_->free_block(data_, size_bytes_);
  pool_ = nullptr;
  data_ = nullptr;
  size_bytes_ = 0;
}

Charge::Charge(std::shared_ptr<BlockPool> pool, uint64_t size_bytes, For what)
    : pool_(std::move(pool)), size_bytes_(size_bytes), what_(what) {
  counted().fetch_add(size_bytes, std::memory_order_seq_cst);
  pool_->note_peak();
}

std::atomic<uint64_t>& Charge::counted() const {
  return what_ == For::kBytes ? pool_->live_bytes_ : pool_->batch_bytes_;
}

void Charge::release() {
  if (!pool_) return;
  if (pool_->epoch_ == fork_epoch()) {
    counted().fetch_sub(size_bytes_, std::memory_order_seq_cst);
    pool_->made_room();
  }
  pool_.reset();
}

BatchMemory::BatchMemory(BlockPool& pool, uint64_t size_bytes)
    : block_(pool.allocate(size_bytes)) {}

BatchMemory::~BatchMemory() {
  if (!is_given_ || block_.data() == nullptr || block_.pool_->epoch_ != fork_epoch()) return;
  BlockPool* const pool = std::exchange(block_.pool_, nullptr);
  pool->free_now(std::exchange(block_.data_, nullptr), block_.size_bytes(), /*counts=*/false);
}

void BatchMemory::give_away() {
  if (std::exchange(is_given_, true) || block_.data() == nullptr) return;
  if (block_.pool_->epoch_ != fork_epoch()) return;
  block_.pool_->live_bytes_.fetch_sub(BlockPool::charged_bytes(block_.size_bytes()),
                                      std::memory_order_seq_cst);
  block_.pool_->made_room();
}

std::shared_ptr<BlockPool> BlockPool::create(uint64_t budget_bytes) {
  return std::shared_ptr<BlockPool>(new BlockPool(budget_bytes), &BlockPool::disown);
}

BlockPool::BlockPool(uint64_t budget_bytes) : budget_bytes_(budget_bytes), epoch_(fork_epoch()) {}

void BlockPool::disown(BlockPool* pool) {
  // Inherited through fork: a thread that does not exist here may hold the pool's lock, with its
  // lists half changed. The pool is left as it is for the rest of this process.
  if (pool->epoch_ != fork_epoch()) return;
  pool->freed_.fetch_or(kClosed, std::memory_order_seq_cst);
  bool gone = false;
  {
    const Lock lock(pool->mutex_);
    pool->collect_all();
    pool->owned_ = false;
    gone = pool->blocks_out_ == 0;
  }
  if (gone) delete pool;
}

BlockPool::~BlockPool() {
  const Lock lock(mutex_);
  for (const Slab& slab : slabs_) {
    unpoison(slab.data, slab.size_bytes);  // the addresses may be another mapping's soon
    ::munmap(slab.data, slab.size_bytes);
  }
}

uint64_t BlockPool::charged_bytes(uint64_t size_bytes) {
  if (size_bytes == 0) return 0;
  size_bytes = std::min(size_bytes, kMaxBlockBytes);
  return size_bytes <= kMaxWholeChargeBytes ? class_bytes(class_of(size_bytes))
                                            : (size_bytes + kPageBytes - 1) & ~(kPageBytes - 1);
}

Block BlockPool::allocate(uint64_t size_bytes) {
  if (size_bytes > kMaxBlockBytes) return Block();
  live_bytes_.fetch_add(charged_bytes(size_bytes), std::memory_order_relaxed);
  return make(size_bytes);
}

std::optional<Block> BlockPool::allocate_within_budget(uint64_t size_bytes) {
  const uint64_t charged = charged_bytes(size_bytes);
  if (charged > budget_bytes_) return std::nullopt;
  uint64_t live = live_bytes_.load(std::memory_order_seq_cst);
  if (live + charged > budget_bytes_) live = live_bytes();
  do {
    if (live + charged > budget_bytes_) return std::nullopt;
  } while (!live_bytes_.compare_exchange_weak(live, live + charged));
  return make(size_bytes);
}

void BlockPool::hand_out(Block& block, std::byte* data, uint64_t size_bytes) {
  unpoison(data, size_bytes);
  block.pool_ = this;
  block.data_ = data;
  block.size_bytes_ = size_bytes;
}

Block BlockPool::make(uint64_t size_bytes) {
  Block block;
  if (size_bytes == 0) return block;
  const size_t size_class = class_of(size_bytes);
  const uint64_t charged = charged_bytes(size_bytes);
  std::byte* data = size_class < kClassCount ? nullptr : map(charged);
  {
    const Lock lock(mutex_);
    if (size_class < kClassCount) {
      data = take(size_class);
    } else {
      make_room_for_pages();
    }
    if (data != nullptr) ++blocks_out_;
  }
  if (data == nullptr) {
    live_bytes_.fetch_sub(charged, std::memory_order_seq_cst);
    return block;
  }
  hand_out(block, data, size_bytes);
  note_peak();
  return block;
}

bool BlockPool::allocate_many(std::span<const uint64_t> sizes_bytes, std::span<Block> blocks) {
  uint64_t charged = 0;
  for (const uint64_t size_bytes : sizes_bytes) {
    if (class_of(size_bytes) >= kClassCount) return false;  // such memory is mapped block by block
    charged += charged_bytes(size_bytes);
  }
  if (in_flight_bytes() + charged > budget_bytes_ / 2) return false;
  // Threads that do this at the same time may exceed the half together, but not the whole.
  if (taken_bytes(charged) > budget_bytes_ / 2) return false;
  live_bytes_.fetch_add(charged, std::memory_order_seq_cst);
  in_flight_bytes_.fetch_add(charged, std::memory_order_seq_cst);
  size_t made = 0;
  {
    const Lock lock(mutex_);
    for (; made < sizes_bytes.size(); ++made) {
      const size_t size_class = class_of(sizes_bytes[made]);
      std::byte* const data = take(size_class);
      if (data == nullptr) break;
      ++blocks_out_;
      hand_out(blocks[made], data, sizes_bytes[made]);
    }
  }
  note_peak();
  if (made == sizes_bytes.size()) return true;
  uint64_t missing = charged;
  for (size_t i = 0; i < made; ++i) {
    missing -= charged_bytes(sizes_bytes[i]);
    blocks[i].release();
  }
  live_bytes_.fetch_sub(missing, std::memory_order_seq_cst);
  end_flights(charged);
  return false;
}

void BlockPool::note_peak() {
  uint64_t peak = peak_live_bytes_.load(std::memory_order_relaxed);
  if (live_bytes_.load(std::memory_order_relaxed) <= peak) return;
  const uint64_t live = live_bytes();
  while (live > peak && !peak_live_bytes_.compare_exchange_weak(peak, live)) {
  }
}

std::byte* BlockPool::take(size_t size_class) {
  FreeList& free = free_[size_class];
  const uint64_t block_bytes = class_bytes(size_class);
  if (free.warm.empty()) collect_all();
  if (free.warm.empty() && free.cold.empty()) {
    const uint64_t slab_bytes = std::max(kSlabBytes, block_bytes);
    std::byte* slab = map(slab_bytes);
    if (slab == nullptr) return nullptr;
    poison(slab, slab_bytes);
    slabs_.push_back({slab, slab_bytes});
    const uint64_t count = slab_bytes / block_bytes;
    // The first block of the slab is handed out first: pages are touched in order.
    for (uint64_t i = count; i > 0; --i) free.cold.push_back(slab + (i - 1) * block_bytes);
  }
  if (free.warm.empty()) make_room_for_pages();
  std::vector<std::byte*>& list = free.warm.empty() ? free.cold : free.warm;
  if (&list == &free.warm) {
    cached_bytes_ -= block_bytes;
    least_cached_bytes_ = std::min(least_cached_bytes_, cached_bytes_);
  }
  std::byte* data = list.back();
  list.pop_back();
  return data;
}

void BlockPool::free_block(std::byte* data, uint64_t size_bytes) {
  if (!free_later(data, size_bytes)) free_now(data, size_bytes);
}

// False if it has to be collected at once. If it is true, another thread may have deleted the pool.
bool BlockPool::free_later(std::byte* data, uint64_t size_bytes) {
  // Of all pools: a bound is all that is wanted.
  thread_local uint64_t freed_count = 0, freed_bytes = 0;
  const uint64_t charged = charged_bytes(size_bytes);
  ++freed_count;
  freed_bytes += charged;
  if (freed_count > kMaxFreedCount || freed_bytes > kMaxFreedBytes) {
    freed_count = freed_bytes = 0;
    return false;
  }
  poison(data, charged);
  unpoison(data, sizeof(Freed));
  auto* const freed = ::new (data) Freed{.next = 0, .size_bytes = size_bytes};
  // Sequentially consistent with ask_for_room() and what its caller checks next, here and in
  // end_flights(): either that caller collects this block, or we see that somebody wants room.
  uintptr_t first = freed_.load(std::memory_order_relaxed);
  do {
    if ((first & kFlags) != 0) return false;
    freed->next = first;
  } while (!freed_.compare_exchange_weak(first, reinterpret_cast<uintptr_t>(freed)));
  return true;
}

void BlockPool::free_now(std::byte* data, uint64_t size_bytes, bool counts) {
  const size_t size_class = class_of(size_bytes);
  if (size_class >= kClassCount) ::munmap(data, charged_bytes(size_bytes));
  const uint64_t charged = counts ? charged_bytes(size_bytes) : 0;
  const uint64_t live = live_bytes_.fetch_sub(charged, std::memory_order_seq_cst) - charged;
  bool gone = false;
  {
    const Lock lock(mutex_);
    if (size_class < kClassCount) put_back(data, size_bytes, live);
    collect_all();
    if (!room_wanted()) {
      gone = --blocks_out_ == 0 && !owned_;
      if (!gone) return;
    }
  }
  if (gone) {
    delete this;
    return;
  }
  made_room();
  {
    // Only now, since without this block the pool might be gone already.
    const Lock lock(mutex_);
    gone = --blocks_out_ == 0 && !owned_;
  }
  if (gone) delete this;
}

void BlockPool::put_back(std::byte* data, uint64_t size_bytes, uint64_t live) {
  const size_t size_class = class_of(size_bytes);
  const uint64_t block_bytes = class_bytes(size_class);
  poison(data, block_bytes);
  const uint64_t spare = budget_bytes_ > live ? budget_bytes_ - live : 0;
  const bool is_surplus = cached_bytes_ + block_bytes > kept_bytes();
  if (cached_bytes_ + block_bytes > spare || (is_surplus && !on_surplus_)) {
    give_back(data, block_bytes);
    free_[size_class].cold.push_back(data);
    return;
  }
  cached_bytes_ += block_bytes;
  free_[size_class].warm.push_back(data);
  if (!is_surplus || is_watched_) return;
  least_cached_bytes_ = cached_bytes_;
  try {
    on_surplus_();
    is_watched_ = true;
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory; the next block will
  }
}

void BlockPool::set_on_surplus(std::function<void()> on_surplus) {
  const bool is_set = on_surplus != nullptr;
  {
    const Lock lock(mutex_);
    on_surplus_ = std::move(on_surplus);
    is_watched_ = false;
    least_cached_bytes_ = cached_bytes_;
  }
  while (!is_set && trim() == Trimmed::kSome) {
  }
}

void BlockPool::forget_surplus() {
  const Lock lock(mutex_);
  is_watched_ = false;
}

BlockPool::Trimmed BlockPool::trim() {
  const Lock lock(mutex_);
  collect_all();
  const uint64_t unused = std::min(least_cached_bytes_, cached_bytes_);
  const uint64_t surplus = unused > kept_bytes() ? unused - kept_bytes() : 0;
  const uint64_t given = give_back_warm(std::min(surplus, kMaxTrimBytes));
  if (given < surplus) {
    least_cached_bytes_ = unused - given;
    return Trimmed::kSome;
  }
  least_cached_bytes_ = cached_bytes_;
  is_watched_ = cached_bytes_ > kept_bytes() && on_surplus_;
  return is_watched_ ? Trimmed::kUnused : Trimmed::kAll;
}

// Returns to the system at least so much of what is kept, and tells how much: of large blocks
// first, and of each class those that were freed first.
uint64_t BlockPool::give_back_warm(uint64_t size_bytes) {
  uint64_t given = 0;
  for (size_t size_class = kClassCount; size_class-- > 0 && given < size_bytes;) {
    const uint64_t block_bytes = class_bytes(size_class);
    FreeList& free = free_[size_class];
    const uint64_t wanted = (size_bytes - given + block_bytes - 1) / block_bytes;
    const size_t count = std::min<size_t>(wanted, free.warm.size());
    free.cold.reserve(free.cold.size() + count);
    const auto end = free.warm.begin() + static_cast<ptrdiff_t>(count);
    for (auto block = free.warm.begin(); block != end; ++block) {
      give_back(*block, block_bytes);
      free.cold.push_back(*block);
    }
    free.warm.erase(free.warm.begin(), end);
    cached_bytes_ -= count * block_bytes;
    given += count * block_bytes;
  }
  return given;
}

// Before pages are used that the process has not: what is kept beyond a quarter makes room for
// them.
void BlockPool::make_room_for_pages() {
  const uint64_t live = live_bytes_.load(std::memory_order_relaxed);
  const uint64_t most = std::max(kept_bytes(), budget_bytes_ > live ? budget_bytes_ - live : 0);
  if (cached_bytes_ > most) give_back_warm(cached_bytes_ - most);
}

void BlockPool::collect_all() {
  const uintptr_t list = freed_.fetch_and(kFlags, std::memory_order_seq_cst) & ~kFlags;
  if (list == 0) return;
  const auto freed_at = [](uintptr_t address) { return reinterpret_cast<Freed*>(address); };
  // Oldest first, so that the one freed last is handed out next.
  uintptr_t oldest = 0;
  uint64_t charged = 0;
  for (uintptr_t at = list; at != 0;) {
    Freed& freed = *freed_at(at);
    charged += charged_bytes(freed.size_bytes);
    const uintptr_t next = std::exchange(freed.next, oldest);
    oldest = std::exchange(at, next);
  }
  const uint64_t live = live_bytes_.fetch_sub(charged, std::memory_order_seq_cst) - charged;
  for (uintptr_t at = oldest; at != 0;) {
    const Freed freed = *freed_at(at);
    put_back(reinterpret_cast<std::byte*>(at), freed.size_bytes, live);
    --blocks_out_;
    at = freed.next;
  }
}

void BlockPool::collect() {
  if ((freed_.load(std::memory_order_seq_cst) & ~kFlags) == 0) return;
  const Lock lock(mutex_);
  collect_all();
}

uint64_t BlockPool::live_bytes() {
  collect();
  return live_bytes_.load(std::memory_order_seq_cst);
}

uint64_t BlockPool::taken_bytes(uint64_t more) {
  // Batches alone keep no read out: they count where something else is taken, too.
  const auto with = [&](uint64_t live) {
    const uint64_t taken = live + reserved_bytes();
    return taken + more + (taken > 0 ? batch_bytes() : 0);
  };
  const uint64_t taken = with(live_bytes_.load(std::memory_order_seq_cst));
  return taken <= budget_bytes_ / 2 ? taken : with(live_bytes());
}

bool BlockPool::try_reserve(uint64_t charged) {
  uint64_t reserved = reserved_bytes_.load(std::memory_order_seq_cst);
  do {
    if (taken_bytes(charged) > budget_bytes_) return false;
  } while (!reserved_bytes_.compare_exchange_weak(reserved, reserved + charged));
  return true;
}

bool BlockPool::try_begin_flight(uint64_t size_bytes) {
  const uint64_t charged = charged_bytes(size_bytes);
  uint64_t in_flight = in_flight_bytes_.load(std::memory_order_seq_cst);
  do {
    if (in_flight != 0 && in_flight + charged > budget_bytes_) return false;
  } while (!in_flight_bytes_.compare_exchange_weak(in_flight, in_flight + charged));
  return true;
}

void BlockPool::end_flights(uint64_t charged) {
  in_flight_bytes_.fetch_sub(charged, std::memory_order_seq_cst);
  made_room();
}

bool BlockPool::may_begin_flight(uint64_t charged, uint64_t batch_order, bool waited_for) {
  uint64_t first = first_claim_.load(std::memory_order_seq_cst);
  const bool in_turn = first == UINT64_MAX || (waited_for && batch_order <= first);
  const uint64_t in_flight = in_flight_bytes();
  if (in_turn && (in_flight == 0 || in_flight + charged <= budget_bytes_)) return true;
  while (waited_for && batch_order < first &&
         !first_claim_.compare_exchange_weak(first, batch_order)) {
  }
  return false;
}

void BlockPool::drop_claim(uint64_t batch_order) {
  if (first_claim_.load(std::memory_order_seq_cst) != batch_order) return;
  if (first_claim_.compare_exchange_strong(batch_order, UINT64_MAX)) made_room();
}

void BlockPool::set_on_room(std::function<void()> on_room) {
  const Lock lock(mutex_);
  on_room_ = std::move(on_room);
}

void BlockPool::made_room() {
  if (!room_wanted()) return;
  if ((freed_.fetch_and(~kRoomWanted, std::memory_order_seq_cst) & kRoomWanted) == 0) return;
  std::function<void()> on_room;
  {
    const Lock lock(mutex_);
    on_room = on_room_;
  }
  if (on_room) on_room();
}

MemoryUse BlockPool::use() {
  collect();
  const Lock lock(mutex_);
  return {.budget_bytes = budget_bytes_,
          .live_bytes = live_bytes_.load(std::memory_order_relaxed),
          .in_flight_bytes = in_flight_bytes_.load(std::memory_order_relaxed),
          .cached_bytes = cached_bytes_,
          .peak_live_bytes = peak_live_bytes_.load(std::memory_order_relaxed)};
}

}  // namespace headrace
