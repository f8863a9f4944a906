// A thread that runs one io_context, and the activities in progress on it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "headrace/base/block_pool.h"
#include "headrace/base/metrics.h"
#include "headrace/base/result.h"
#include "headrace/http/asio.h"
#include "headrace/http/clock.h"

namespace headrace {

class IoThread;

// Something in progress on an I/O thread, which its owner, a deadline or the end of the engine may
// stop. Lives in a coroutine's frame. stop() records the first reason and ends the current wait;
// the coroutine finds the reason when it resumes.
// Thread: I/O. Borrows the thread, which outlives it.
class Activity {
 public:
  // `owner` is only compared, never dereferenced: IoThread::stop_owned_by(owner) finds all
  // activities of a batch.
  Activity(IoThread& thread, const void* owner, std::chrono::steady_clock::time_point deadline);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  void stop(Error why);
  const std::optional<Error>& stopped() const { return stopped_; }
  std::chrono::steady_clock::time_point deadline() const { return deadline_; }
  IoThread& thread() { return thread_; }

  // Waits for `until`, the deadline, wake() or stop(), whichever comes first.
  awaitable<void> park(std::chrono::steady_clock::time_point until);
  void wake();
  // Returns a function, callable on any thread, that wakes this activity if it still exists.
  std::function<void()> waker();

 protected:
  // Ends a wait of the derived class other than park().
  virtual void interrupt(const Error& why) = 0;
  // Called on every sweep, for time-outs shorter than the deadline.
  virtual void sweep(std::chrono::steady_clock::time_point now) = 0;

 private:
  friend class IoThread;
  struct Parking;  // shared with wakers on other threads

  IoThread& thread_;
  const void* owner_;
  const std::chrono::steady_clock::time_point deadline_;
  std::optional<Error> stopped_;
  std::shared_ptr<Parking> parking_;
  Activity* previous_ = nullptr;
  Activity* next_ = nullptr;
};

// One sweep over all activities every 50 ms checks the deadlines, so that a read costs no timer. It
// comes sooner if an activity asks for that, and sleeps while nothing is in progress.
// Thread: any for post(), stop_owned_by() and stop_all(); I/O for the rest.
class IoThread : public std::enable_shared_from_this<IoThread> {
 public:
  static constexpr std::chrono::milliseconds kSweepInterval{50}, kLeastSweepInterval{2};
  static constexpr std::chrono::seconds kLongestEnd{10};
  // Longer than an epoch of large objects goes without reading, at its end.
  static constexpr std::chrono::seconds kUnusedBeforeTrim{10};

  static std::shared_ptr<IoThread> start(uint32_t index);
  // For tests: has no thread of its own, so that they run context() themselves. Borrows the clock.
  static std::shared_ptr<IoThread> without_thread(uint32_t index, Clock& clock);
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  void post(std::function<void()> job);
  void stop_owned_by(const void* owner, Error why);
  // Ends every activity, present and future, with kCancelled. Returns at once.
  void stop_all();
  // Returns once every activity has ended, or at the latest after kLongestEnd, and the thread with
  // them. After stop_all().
  void join();

  // Sees to the pool's surplus until that is told otherwise (BlockPool::set_on_surplus()).
  void trim_when_unused(const std::shared_ptr<BlockPool>& pool);

  Clock::TimePoint now() const { return clock_.now(); }
  Clock& clock() { return clock_; }
  asio::io_context& context() { return context_; }
  uint32_t index() const { return index_; }
  Metrics& metrics() { return metrics_; }
  const Metrics& metrics() const { return metrics_; }
  bool stopping() const { return stopping_; }  // I/O thread only
  // During a sweep: the next one is to come at this time, if that is sooner than usual.
  void sweep_by(Clock::TimePoint at) { next_sweep_ = std::min(next_sweep_, at); }

 private:
  friend class Activity;
  IoThread(uint32_t index, Clock& clock);
  void add(Activity& activity);
  void remove(Activity& activity);
  void arm_sweep();
  void sweep();
  void run();
  void leave();
  void trim_later(std::weak_ptr<BlockPool> pool);
  void trim(const std::weak_ptr<BlockPool>& pool);

  const uint32_t index_;
  Clock& clock_;
  // Only this thread touches its sockets: the reactor needs no locks for them.
  asio::io_context context_{BOOST_ASIO_CONCURRENCY_HINT_UNSAFE_IO};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  const std::shared_ptr<Timer> sweep_timer_, end_timer_;
  bool sweep_armed_ = false;
  Clock::TimePoint next_sweep_ = Clock::TimePoint::max();
  bool stopping_ = false;
  bool leaving_ = false;  // the thread ends with its last activity
  Activity* first_ = nullptr;
  Metrics metrics_;
  std::thread thread_;
};

}  // namespace headrace
