// Threads that may block or compute: what the I/O threads must not do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace headrace {

// Started when first needed, joined by stop(). Jobs run in order of arrival. A job that cannot go
// on (no memory is free) parks itself, without a thread, until wake(). Jobs that are queued or
// parked when the pool stops still run, so that each can complete what it stands for; they ask
// stopping() and end early. Thread: any; callable from jobs, except stop(). In a forked child every
// call does nothing: the threads are the parent's.
class ThreadPool {
 public:
  using Job = std::move_only_function<void()>;

  explicit ThreadPool(uint32_t thread_count);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // False, and `job` is left as it was, after stop(), in a forked child, and when the system gives
  // no thread at all.
  [[nodiscard]] bool post(Job&& job);
  // The same, ahead of the queue: the remaining pieces of a file that is being read already.
  [[nodiscard]] bool post_first(Job&& job);

  // How often wake() was called. Read it before looking at the condition that a job waits for.
  uint64_t wake_count() const;
  // Sets the job aside until the next wake(); queues it at once if there was one since `seen`.
  // False as for post().
  [[nodiscard]] bool park(Job&& job, uint64_t seen_wake_count);
  // Queues all parked jobs. Called when memory was freed, and when a batch is waited for or
  // cancelled.
  void wake();

  void stop();
  bool stopping() const;
  uint32_t thread_count() const;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);
  static bool start_thread(const std::shared_ptr<State>& state);
  bool enqueue(Job&& job, bool first);
  const std::shared_ptr<State> state_;
};

}  // namespace headrace
