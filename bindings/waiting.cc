#include "waiting.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace headrace::python {
namespace {

constinit std::atomic<bool> g_exiting = false;
constinit std::atomic<uint32_t> g_released = 0;  // threads that wait, or work, without the GIL
constinit pthread_t g_exiting_thread{};
// A forked child has one thread, which holds the GIL, and an end of its own.
const int g_registered = pthread_atfork(nullptr, nullptr, [] {
  g_released.store(0);
  g_exiting.store(false);
});

}  // namespace

bool exiting() { return g_exiting.load(); }

bool exiting_elsewhere() {
  return g_exiting.load() && pthread_equal(pthread_self(), g_exiting_thread) == 0;
}

void never_return() {
  for (;;) ::pause();
}

PyThreadState* release_gil() {
  g_released.fetch_add(1);
  return PyEval_SaveThread();
}

void retake_gil(PyThreadState* state) noexcept {
  in_python([state] { PyEval_RestoreThread(state); });
  g_released.fetch_sub(1);
}

void begin_exit(bool threads_left) {
  static_cast<void>(g_registered);
  g_exiting_thread = pthread_self();
  g_exiting.store(true);
  // The frames of a thread that never returns keep their objects, which is not a leak of ours.
  if (threads_left || g_released.load() != 0) nb::set_leak_warnings(false);
}

}  // namespace headrace::python
