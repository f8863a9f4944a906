// Threads that may block or compute, which I/O threads must not.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace headrace {

// Started when first needed, joined by stop(). Jobs run in order of arrival. A job that cannot
// continue (because no memory is free) parks itself, without a thread, until wake(). Jobs that are
// queued or parked when the pool stops still run, so that each can complete its request; they check
// stopping() and end early. Thread: any; callable from jobs, except stop(). In a forked child every
// call does nothing: the threads are the parent's.
class ThreadPool {
 public:
  using Job = std::move_only_function<void()>;

  explicit ThreadPool(uint32_t thread_count);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // False, leaving `job` unchanged, after stop(), in a forked child, and if the system cannot start
  // a single thread.
  [[nodiscard]] bool post(Job&& job);
  // The same, at the front of the queue: for the remaining pieces of a file that is already being
  // read.
  [[nodiscard]] bool post_first(Job&& job);

  // How often wake() was called. Read it before checking the condition that a job waits for.
  uint64_t wake_count() const;
  // Sets the job aside until the next wake(), or queues it at once if there was one since
  // `seen_wake_count`. False as for post().
  [[nodiscard]] bool park(Job&& job, uint64_t seen_wake_count);
  // Queues all parked jobs. Called when memory is freed, and when a batch is waited for or
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
