// Counts the requests inside the engine, so that it can stop once there are none.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "headrace/base/may_block.h"
#include "headrace/base/mutex.h"

namespace headrace {

// Thread: any.
class Gate : public std::enable_shared_from_this<Gate> {
 public:
  // Held while inside.
  class Pass {
   public:
    explicit Pass(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
    ~Pass() { gate_->leave(); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    const std::shared_ptr<Gate> gate_;
  };

  // Null once the gate is closed.
  std::shared_ptr<Pass> enter() {
    const Lock lock(mutex_);
    if (closed_) return nullptr;
    auto pass = std::make_shared<Pass>(shared_from_this());
    ++inside_;
    return pass;
  }
  void close() {
    const Lock lock(mutex_);
    closed_ = true;
  }
  // True once nobody is inside.
  bool wait_empty(std::chrono::steady_clock::time_point until, MayBlock) {
    const Lock lock(mutex_);
    while (inside_ > 0) {
      if (changed_.wait_until(mutex_, until) == std::cv_status::timeout) break;
    }
    return inside_ == 0;
  }

 private:
  void leave() {
    const Lock lock(mutex_);
    if (--inside_ == 0) changed_.notify_all();
  }

  Mutex mutex_;
  CondVar changed_;
  uint64_t inside_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool closed_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace
