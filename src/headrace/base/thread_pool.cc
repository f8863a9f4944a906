#include "headrace/base/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/base/fork.h"
#include "headrace/base/mutex.h"

namespace headrace {

struct ThreadPool::State {
  explicit State(uint32_t count) : thread_limit(std::max(count, 1u)), epoch(fork_epoch()) {}
  bool inherited() const { return epoch != fork_epoch(); }

  const uint32_t thread_limit;
  const uint64_t epoch;
  std::atomic<bool> stopping = false;
  std::atomic<uint64_t> wake_count = 0;
  Mutex mutex;
  CondVar changed;
  std::deque<Job> jobs HEADRACE_GUARDED_BY(mutex);
  std::vector<Job> parked HEADRACE_GUARDED_BY(mutex);
  std::vector<std::thread> threads HEADRACE_GUARDED_BY(mutex);
  uint32_t idle_count HEADRACE_GUARDED_BY(mutex) = 0;
};

ThreadPool::ThreadPool(uint32_t thread_count) : state_(std::make_shared<State>(thread_count)) {}

ThreadPool::~ThreadPool() {
  if (state_->inherited()) {
    // In a forked child neither the lock nor the thread handles mean anything; both are left alone.
    static_cast<void>(new std::shared_ptr<State>(state_));
    return;
  }
  stop();
}

bool ThreadPool::start_thread(const std::shared_ptr<State>& state) HEADRACE_NO_ANALYSIS {
  // Signals belong to the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    state->threads.emplace_back([state] { run(state); });
  } catch (const std::system_error&) {
    started = !state->threads.empty();  // the ones that there are will do
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

bool ThreadPool::enqueue(Job&& job, bool first) {
  State& state = *state_;
  if (state.inherited()) return false;
  const Lock lock(state.mutex);
  if (state.stopping) return false;
  if (state.idle_count <= state.jobs.size() && state.threads.size() < state.thread_limit) {
    if (!start_thread(state_)) return false;
  }
  if (first) {
    state.jobs.push_front(std::move(job));
  } else {
    state.jobs.push_back(std::move(job));
  }
  state.changed.notify_one();
  return true;
}

bool ThreadPool::post(Job&& job) { return enqueue(std::move(job), false); }
bool ThreadPool::post_first(Job&& job) { return enqueue(std::move(job), true); }

uint64_t ThreadPool::wake_count() const { return state_->wake_count.load(); }

bool ThreadPool::park(Job&& job, uint64_t seen_wake_count) {
  State& state = *state_;
  if (state.inherited()) return false;
  {
    const Lock lock(state.mutex);
    if (state.stopping) return false;
    if (state.wake_count.load() == seen_wake_count) {
      state.parked.push_back(std::move(job));
      return true;
    }
  }
  return enqueue(std::move(job), false);
}

void ThreadPool::wake() {
  State& state = *state_;
  if (state.inherited()) return;
  const Lock lock(state.mutex);
  state.wake_count.fetch_add(1);
  if (state.parked.empty()) return;
  // Only jobs park, so at least one thread is running; stop() runs the parked ones itself.
  for (Job& job : state.parked) state.jobs.push_back(std::move(job));
  state.parked.clear();
  state.changed.notify_all();
}

void ThreadPool::run(const std::shared_ptr<State>& state) {
  for (;;) {
    Job job;
    {
      const Lock lock(state->mutex);
      ++state->idle_count;
      while (state->jobs.empty() && !state->stopping) state->changed.wait(state->mutex);
      --state->idle_count;
      if (state->jobs.empty()) return;
      job = std::move(state->jobs.front());
      state->jobs.pop_front();
    }
    job();
  }
}

void ThreadPool::stop() {
  State& state = *state_;
  if (state.inherited()) return;
  std::vector<std::thread> threads;
  {
    const Lock lock(state.mutex);
    state.stopping = true;
    for (Job& job : state.parked) state.jobs.push_back(std::move(job));
    state.parked.clear();
    state.changed.notify_all();
    threads.swap(state.threads);
  }
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();  // a job held the last reference to the pool; the thread ends by itself
    } else {
      thread.join();
    }
  }
}

bool ThreadPool::stopping() const { return state_->inherited() || state_->stopping; }
uint32_t ThreadPool::thread_count() const { return state_->thread_limit; }

}  // namespace headrace
