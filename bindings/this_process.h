// Objects of the engine that a forked child must not touch.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "headrace/base/fork.h"

namespace headrace::python {

// Shared ownership of an object that relies on locks or threads. A forked child inherits the object
// but not the threads, so it never touches or frees it there: destroying a mutex or condition
// variable that another thread was using would wait for a thread that does not exist.
// Thread: confined.
template <class T>
class OfThisProcess {
 public:
  OfThisProcess() = default;
  explicit OfThisProcess(std::shared_ptr<T> object)
      : object_(std::move(object)), epoch_(fork_epoch()) {}
  OfThisProcess(OfThisProcess&&) noexcept = default;
  OfThisProcess& operator=(OfThisProcess&& other) noexcept {
    if (this != &other) {
      drop();
      object_ = std::move(other.object_);
      epoch_ = other.epoch_;
    }
    return *this;
  }
  ~OfThisProcess() { drop(); }

  bool usable() const { return object_ != nullptr && epoch_ == fork_epoch(); }
  const std::shared_ptr<T>& shared() const { return object_; }
  T* operator->() const { return object_.get(); }
  T& operator*() const { return *object_; }

 private:
  void drop() {
    if (object_ && epoch_ != fork_epoch()) {
      static_cast<void>(new std::shared_ptr<T>(std::move(object_)));
    }
    object_.reset();
  }

  std::shared_ptr<T> object_;
  uint64_t epoch_ = 0;
};

}  // namespace headrace::python
