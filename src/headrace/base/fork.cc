#include "headrace/base/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>

namespace headrace {
namespace {

constexpr uint64_t kMaxDescriptors = uint64_t{1} << 20;
constexpr uint64_t kWordBits = 64;

// Static storage: a child's handler may neither allocate nor lock.
constinit std::array<std::atomic<uint64_t>, kMaxDescriptors / kWordBits> g_descriptors{};
constinit std::atomic<uint64_t> g_epoch = 0;
// One past the highest word ever used, so that the child need not scan 16,384 empty words.
constinit std::atomic<uint64_t> g_used_words = 0;

// One of several is held for reading while forks are held off; who forks has all of them. Threads
// that never fork thus share no cache line, as long as there are not more of them than locks. Each
// prefers the thread that wants to fork: otherwise many readers could keep it waiting for ever.
constexpr size_t kCacheLineBytes = 64;
struct alignas(kCacheLineBytes) ForkLock {
  pthread_rwlock_t lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
};
constinit std::array<ForkLock, 16> g_forks{};
constinit std::atomic<size_t> g_next_lock = 0;
constinit thread_local ForkLock* t_forks = nullptr;
constinit thread_local int t_holds = 0;

void before_fork() {
  for (ForkLock& each : g_forks) pthread_rwlock_wrlock(&each.lock);
}

void in_parent() {
  for (ForkLock& each : g_forks) pthread_rwlock_unlock(&each.lock);
}

void in_child() {
  // Not unlocked: a lock knows its owner by a thread id that the child does not have.
  for (ForkLock& each : g_forks) each = {};
  g_epoch.fetch_add(1, std::memory_order_relaxed);
  const uint64_t used = g_used_words.load(std::memory_order_relaxed);
  for (uint64_t word = 0; word < used; ++word) {
    uint64_t bits = g_descriptors[word].exchange(0, std::memory_order_relaxed);
    while (bits != 0) {
      const auto bit = static_cast<uint64_t>(std::countr_zero(bits));
      bits &= bits - 1;
      ::close(static_cast<int>(word * kWordBits + bit));
    }
  }
}

const int g_registered = pthread_atfork(&before_fork, &in_parent, &in_child);

}  // namespace

HoldsOffForks::HoldsOffForks() {
  if (t_holds++ > 0) return;
  if (t_forks == nullptr) {
    t_forks = &g_forks[g_next_lock.fetch_add(1, std::memory_order_relaxed) % g_forks.size()];
  }
  pthread_rwlock_rdlock(&t_forks->lock);
}

HoldsOffForks::~HoldsOffForks() {
  if (--t_holds == 0) pthread_rwlock_unlock(&t_forks->lock);
}

uint64_t fork_epoch() {
  static_cast<void>(g_registered);
  return g_epoch.load(std::memory_order_relaxed);
}

void close_in_child(int descriptor) {
  const auto index = static_cast<uint64_t>(descriptor);
  if (descriptor < 0 || index >= kMaxDescriptors) return;
  const uint64_t word = index / kWordBits;
  g_descriptors[word].fetch_or(uint64_t{1} << (index % kWordBits), std::memory_order_relaxed);
  uint64_t used = g_used_words.load(std::memory_order_relaxed);
  while (used <= word && !g_used_words.compare_exchange_weak(used, word + 1)) {
  }
}

void forget_in_child(int descriptor) {
  const auto index = static_cast<uint64_t>(descriptor);
  if (descriptor < 0 || index >= kMaxDescriptors) return;
  g_descriptors[index / kWordBits].fetch_and(~(uint64_t{1} << (index % kWordBits)),
                                             std::memory_order_relaxed);
}

uint64_t tracked_descriptor_count() {
  uint64_t count = 0;
  const uint64_t used = g_used_words.load(std::memory_order_relaxed);
  for (uint64_t word = 0; word < used; ++word) {
    count +=
        static_cast<uint64_t>(std::popcount(g_descriptors[word].load(std::memory_order_relaxed)));
  }
  return count;
}

}  // namespace headrace
