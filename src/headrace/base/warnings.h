// What a user should know although nothing has failed.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"

namespace headrace {

// The engine prints nothing; its owner takes these texts and shows them.
// Thread: any.
class Warnings {
 public:
  void add(std::string text) {
    const Lock lock(mutex_);
    texts_.push_back(std::move(text));
    any_.store(true, std::memory_order_release);
  }
  // The texts added since the last call. Costs nothing while there are none.
  std::vector<std::string> take() {
    if (!any_.load(std::memory_order_acquire)) return {};
    const Lock lock(mutex_);
    any_.store(false, std::memory_order_release);
    return std::exchange(texts_, {});
  }

 private:
  std::atomic<bool> any_ = false;
  Mutex mutex_;
  std::vector<std::string> texts_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
