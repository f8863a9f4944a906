#include "headrace/base/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
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
    pool_ = std::move(other.pool_);
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

namespace {

// Inherited through fork: a thread that does not exist here may hold the pool's lock, with its
// lists half changed. The pool is left as it is for the rest of this process.
void leave(std::shared_ptr<BlockPool> pool) {
  static_cast<void>(new std::shared_ptr<BlockPool>(std::move(pool)));
}

}  // namespace

void Block::release() {
  if (data_ == nullptr) return;
  if (pool_->epoch_ == fork_epoch()) {
    pool_->free_block(data_, size_bytes_);
    pool_.reset();
  } else {
    leave(std::move(pool_));
  }
  data_ = nullptr;
  size_bytes_ = 0;
}

Charge::Charge(std::shared_ptr<BlockPool> pool, uint64_t size_bytes)
    : pool_(std::move(pool)), size_bytes_(size_bytes) {
  pool_->live_bytes_.fetch_add(size_bytes, std::memory_order_seq_cst);
  pool_->note_peak();
}

void Charge::release() {
  if (!pool_) return;
  if (pool_->epoch_ == fork_epoch()) {
    pool_->live_bytes_.fetch_sub(size_bytes_, std::memory_order_seq_cst);
    pool_->made_room();
    pool_.reset();
  } else {
    leave(std::move(pool_));
  }
}

BlockPool::BlockPool(uint64_t budget_bytes) : budget_bytes_(budget_bytes), epoch_(fork_epoch()) {}

BlockPool::~BlockPool() {
  if (epoch_ != fork_epoch()) return;  // as in Block::release()
  const Lock lock(mutex_);
  for (const Slab& slab : slabs_) {
    unpoison(slab.data, slab.size_bytes);  // the addresses may be another mapping's soon
    ::munmap(slab.data, slab.size_bytes);
  }
}

uint64_t BlockPool::charged_bytes(uint64_t size_bytes) {
  if (size_bytes == 0) return 0;
  size_bytes = std::min(size_bytes, kMaxBlockBytes);
  const size_t size_class = class_of(size_bytes);
  return size_class < kClassCount ? class_bytes(size_class)
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
  do {
    if (live + charged > budget_bytes_) return std::nullopt;
  } while (!live_bytes_.compare_exchange_weak(live, live + charged));
  return make(size_bytes);
}

Block BlockPool::make(uint64_t size_bytes) {
  Block block;
  if (size_bytes == 0) return block;
  const size_t size_class = class_of(size_bytes);
  const uint64_t charged = charged_bytes(size_bytes);
  if (size_class < kClassCount) {
    const Lock lock(mutex_);
    block.data_ = take(size_class);
  } else {
    block.data_ = map(charged);
  }
  if (block.data_ == nullptr) {
    live_bytes_.fetch_sub(charged, std::memory_order_seq_cst);
    return block;
  }
  unpoison(block.data_, size_bytes);
  block.pool_ = shared_from_this();
  block.size_bytes_ = size_bytes;
  note_peak();
  return block;
}

void BlockPool::note_peak() {
  const uint64_t live = live_bytes_.load(std::memory_order_relaxed);
  uint64_t peak = peak_live_bytes_.load(std::memory_order_relaxed);
  while (live > peak && !peak_live_bytes_.compare_exchange_weak(peak, live)) {
  }
}

std::byte* BlockPool::take(size_t size_class) {
  FreeList& free = free_[size_class];
  const uint64_t block_bytes = class_bytes(size_class);
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
  std::vector<std::byte*>& list = free.warm.empty() ? free.cold : free.warm;
  if (&list == &free.warm) cached_bytes_ -= block_bytes;
  std::byte* data = list.back();
  list.pop_back();
  return data;
}

void BlockPool::free_block(std::byte* data, uint64_t size_bytes) {
  const size_t size_class = class_of(size_bytes);
  const uint64_t charged = charged_bytes(size_bytes);
  // Sequentially consistent with ask_for_room() and what its caller checks next, here and in
  // end_flight(): either that caller sees the room, or made_room() sees that somebody wants it.
  const uint64_t live = live_bytes_.fetch_sub(charged, std::memory_order_seq_cst) - charged;
  if (size_class < kClassCount) {
    poison(data, charged);
    const Lock lock(mutex_);
    const uint64_t spare = budget_bytes_ > live ? budget_bytes_ - live : 0;
    const bool keep = cached_bytes_ + charged <= std::min(spare, budget_bytes_ / 4);
    if (keep) {
      cached_bytes_ += charged;
      free_[size_class].warm.push_back(data);
    } else {
      give_back(data, charged);
      free_[size_class].cold.push_back(data);
    }
  } else {
    ::munmap(data, charged);
  }
  made_room();
}

bool BlockPool::try_reserve(uint64_t charged) {
  uint64_t reserved = reserved_bytes_.load(std::memory_order_seq_cst);
  do {
    if (live_bytes() + reserved + charged > budget_bytes_) return false;
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

void BlockPool::end_flight(uint64_t size_bytes) {
  in_flight_bytes_.fetch_sub(charged_bytes(size_bytes), std::memory_order_seq_cst);
  made_room();
}

bool BlockPool::may_begin_flight(uint64_t charged, uint64_t batch_order, bool waited_for) {
  uint64_t first = first_in_line_.load(std::memory_order_seq_cst);
  const bool in_turn = first == UINT64_MAX || (waited_for && batch_order <= first);
  const uint64_t in_flight = in_flight_bytes();
  if (in_turn && (in_flight == 0 || in_flight + charged <= budget_bytes_)) return true;
  while (waited_for && batch_order < first &&
         !first_in_line_.compare_exchange_weak(first, batch_order)) {
  }
  return false;
}

void BlockPool::leave_line(uint64_t batch_order) {
  if (first_in_line_.load(std::memory_order_seq_cst) != batch_order) return;
  if (first_in_line_.compare_exchange_strong(batch_order, UINT64_MAX)) made_room();
}

void BlockPool::set_on_room(std::function<void()> on_room) {
  const Lock lock(mutex_);
  on_room_ = std::move(on_room);
}

void BlockPool::made_room() {
  if (!room_wanted_.load(std::memory_order_seq_cst)) return;
  if (!room_wanted_.exchange(false, std::memory_order_seq_cst)) return;
  std::function<void()> on_room;
  {
    const Lock lock(mutex_);
    on_room = on_room_;
  }
  if (on_room) on_room();
}

MemoryUse BlockPool::use() const {
  const Lock lock(mutex_);
  return {.budget_bytes = budget_bytes_,
          .live_bytes = live_bytes(),
          .in_flight_bytes = in_flight_bytes_.load(std::memory_order_relaxed),
          .cached_bytes = cached_bytes_,
          .peak_live_bytes = peak_live_bytes_.load(std::memory_order_relaxed)};
}

}  // namespace headrace
