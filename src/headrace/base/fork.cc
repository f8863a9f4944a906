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

// Held for reading while forks are held off. It prefers the thread that wants to fork: otherwise
// many readers could keep it waiting for ever.
constinit pthread_rwlock_t g_forks = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
constinit thread_local int t_holds = 0;

void before_fork() { pthread_rwlock_wrlock(&g_forks); }

void in_parent() { pthread_rwlock_unlock(&g_forks); }

void in_child() {
  // Not unlocked: the lock knows its owner by a thread id that the child does not have.
  g_forks = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
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
  if (t_holds++ == 0) pthread_rwlock_rdlock(&g_forks);
}

HoldsOffForks::~HoldsOffForks() {
  if (--t_holds == 0) pthread_rwlock_unlock(&g_forks);
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
