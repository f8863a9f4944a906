#include "headrace/store/timeline/timeline.h"

#include <pthread.h>

#include <memory>
#include <utility>

#include "headrace/base/mutex.h"

namespace headrace {

constinit std::atomic<bool> timeline_state::is_on = false;

namespace {

// What one thread has noted. Thread: any.
class Ring {
 public:
  explicit Ring(size_t capacity) : capacity_(capacity) {}

  void note(const AttemptRecord& attempt) {
    const Lock lock(mutex_);
    if (records_.size() < capacity_) {
      records_.push_back(attempt);
      return;
    }
    records_[next_] = attempt;
    next_ = next_ + 1 == capacity_ ? 0 : next_ + 1;
    ++dropped_;
  }

  void take(Timeline& into) {
    std::vector<AttemptRecord> records;
    size_t oldest = 0;
    {
      const Lock lock(mutex_);
      records.swap(records_);
      oldest = std::exchange(next_, 0);
      into.dropped += std::exchange(dropped_, 0);
    }
    const auto middle = records.begin() + static_cast<ptrdiff_t>(oldest);
    into.attempts.insert(into.attempts.end(), middle, records.end());
    into.attempts.insert(into.attempts.end(), records.begin(), middle);
  }

 private:
  const size_t capacity_;
  Mutex mutex_;
  std::vector<AttemptRecord> records_ HEADRACE_GUARDED_BY(mutex_);
  size_t next_ HEADRACE_GUARDED_BY(mutex_) = 0;  // the oldest, once it is full
  uint64_t dropped_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

struct Rings {
  Mutex mutex;
  std::vector<std::shared_ptr<Ring>> all HEADRACE_GUARDED_BY(mutex);
  size_t capacity HEADRACE_GUARDED_BY(mutex) = 1;
};

// Never freed: a thread may note something while the process ends. A child makes its own, since the
// parent's lock may be held at the fork.
constinit std::atomic<Rings*> g_rings = nullptr;
// Of the timeline; a ring belongs to one.
constinit std::atomic<uint64_t> g_run = 0;

struct Mine {
  std::shared_ptr<Ring> ring;
  uint64_t run = 0;
};

Rings& rings() {
  Rings* now = g_rings.load(std::memory_order_acquire);
  if (now != nullptr) return *now;
  auto made = std::make_unique<Rings>();
  if (g_rings.compare_exchange_strong(now, made.get())) return *made.release();
  return *now;
}

const int g_registered = pthread_atfork(nullptr, nullptr, [] {
  timeline_state::is_on.store(false);
  g_rings.store(nullptr);
  g_run.fetch_add(1);
});

}  // namespace

std::string_view to_string(AttemptEnd end) {
  switch (end) {
    case AttemptEnd::kDone: return "done";
    case AttemptEnd::kFailed: return "failed";
    case AttemptEnd::kLost: return "lost";
  }
  std::unreachable();
}

void begin_timeline(size_t attempts_per_thread) {
  static_cast<void>(g_registered);
  Rings& each = rings();
  const Lock lock(each.mutex);
  each.all.clear();
  each.capacity = std::max<size_t>(1, attempts_per_thread);
  g_run.fetch_add(1);
  timeline_state::is_on.store(true);
}

Timeline end_timeline() {
  timeline_state::is_on.store(false);
  Timeline all;
  Rings& each = rings();
  const Lock lock(each.mutex);
  for (const std::shared_ptr<Ring>& ring : each.all) ring->take(all);
  each.all.clear();
  g_run.fetch_add(1);
  return all;
}

void note_attempt(const AttemptRecord& attempt) {
  thread_local Mine mine;
  if (mine.run != g_run.load(std::memory_order_acquire)) {
    Rings& each = rings();
    const Lock lock(each.mutex);
    if (!timeline_is_on()) return;  // it has just ended
    mine = {.ring = std::make_shared<Ring>(each.capacity), .run = g_run.load()};
    each.all.push_back(mine.ring);
  }
  mine.ring->note(attempt);
}

uint32_t next_request_number() {
  static constinit std::atomic<uint32_t> last = 0;
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace headrace
