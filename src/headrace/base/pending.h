// One result that another thread will deliver.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "headrace/base/may_block.h"
#include "headrace/base/mutex.h"
#include "headrace/base/result.h"

namespace headrace {

// The two ends of one operation: the caller waits and may cancel; the engine completes it exactly
// once. cancel() is only a request: the completion still comes, and until then the engine may use
// the memory that the caller lent it.
// Thread: any.
template <class T>
class Pending {
 public:
  // The engine's end ------------------------------------------------------------------------
  void complete(Result<T> result) {
    std::function<void()> on_cancel;  // destroyed without the lock: it may own the operation
    Then then;
    {
      Lock lock(mutex_);
      if (completed_) return;  // the drain at stop may race with the operation's own end
      completed_ = true;
      on_cancel.swap(on_cancel_);
      then.swap(then_);
      if (!then) {
        result_.emplace(std::move(result));
        changed_.notify_all();
        return;
      }
    }
    then(std::move(result));
  }
  // `on_cancel` runs at most once: on the thread that cancels, or at once if that has happened
  // already. It never starts after complete(), but may still be running then.
  void set_on_cancel(std::function<void()> on_cancel) {
    {
      Lock lock(mutex_);
      if (completed_) return;
      if (!cancelled()) {
        on_cancel_ = std::move(on_cancel);
        return;
      }
    }
    on_cancel();
  }
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  // The caller's end ------------------------------------------------------------------------
  // True once the result is there.
  bool wait_until(std::chrono::steady_clock::time_point until, MayBlock) {
    Lock lock(mutex_);
    while (!result_) {
      if (changed_.wait_until(mutex_, until) == std::cv_status::timeout) break;
    }
    return result_.has_value();
  }
  void cancel() {
    std::function<void()> on_cancel;
    {
      Lock lock(mutex_);
      cancelled_.store(true, std::memory_order_release);
      on_cancel = std::exchange(on_cancel_, nullptr);
    }
    if (on_cancel) on_cancel();
  }
  using Then = std::move_only_function<void(Result<T>)>;
  // Instead of waiting: `then` runs once with the result, either now or on the completing thread,
  // which it must not block.
  void then(Then then) {
    std::optional<Result<T>> result;
    {
      Lock lock(mutex_);
      if (!result_) {
        then_ = std::move(then);
        return;
      }
      result.swap(result_);
    }
    then(std::move(*result));
  }
  // Waits without a time limit and takes the result. Call once.
  Result<T> take(MayBlock) {
    Lock lock(mutex_);
    while (!result_) changed_.wait(mutex_);
    return std::move(*result_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<Result<T>> result_ HEADRACE_GUARDED_BY(mutex_);
  bool completed_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::function<void()> on_cancel_ HEADRACE_GUARDED_BY(mutex_);
  Then then_ HEADRACE_GUARDED_BY(mutex_);
  std::atomic<bool> cancelled_ = false;
};

}  // namespace headrace
