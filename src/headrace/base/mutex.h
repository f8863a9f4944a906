// A mutex that clang's thread-safety analysis understands; libstdc++'s has no annotations.
#pragma once

#include <condition_variable>
#include <mutex>

#define HEADRACE_CAPABILITY(x) __attribute__((capability(x)))
#define HEADRACE_SCOPED_CAPABILITY __attribute__((scoped_lockable))
#define HEADRACE_GUARDED_BY(x) __attribute__((guarded_by(x)))
#define HEADRACE_REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define HEADRACE_ACQUIRE(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define HEADRACE_RELEASE(...) __attribute__((release_capability(__VA_ARGS__)))
#define HEADRACE_NO_ANALYSIS __attribute__((no_thread_safety_analysis))

namespace headrace {

class HEADRACE_CAPABILITY("mutex") Mutex {
 public:
  void lock() HEADRACE_ACQUIRE() { mutex_.lock(); }
  void unlock() HEADRACE_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class HEADRACE_SCOPED_CAPABILITY Lock {
 public:
  explicit Lock(Mutex& mutex) HEADRACE_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() HEADRACE_RELEASE() { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits are written as `while (!condition) variable.wait(mutex);` so that the analysis sees the
// guarded reads; a predicate in a lambda would hide them.
class CondVar {
 public:
  void wait(Mutex& mutex) HEADRACE_REQUIRES(mutex) { variable_.wait(mutex); }
  template <class TimePoint>
  std::cv_status wait_until(Mutex& mutex, TimePoint until) HEADRACE_REQUIRES(mutex) {
    return variable_.wait_until(mutex, until);
  }
  void notify_all() { variable_.notify_all(); }
  void notify_one() { variable_.notify_one(); }

 private:
  std::condition_variable_any variable_;
};

}  // namespace headrace
