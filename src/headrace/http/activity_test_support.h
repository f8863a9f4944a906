// An activity for tests that need one in progress.
#pragma once

#include <chrono>

#include "headrace/http/io_thread.h"

namespace headrace {

// A request of nobody, for an hour: what a test waits in, or opens a connection by.
// Thread: I/O. Lives in a coroutine's frame; borrows the thread.
class TestActivity final : public Activity {
 public:
  explicit TestActivity(IoThread& thread)
      : Activity(thread, this, thread.now() + std::chrono::hours(1)) {}

 private:
  void interrupt(const Error&) override {}
  void sweep(std::chrono::steady_clock::time_point) override {}
};

}  // namespace headrace
