// Where threads let go of the GIL, and how they wait for the engine.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "errors.h"
#include "headrace/base/may_block.h"
#include "headrace/base/pending.h"
#include "in_python.h"

namespace headrace::python {

using std::chrono::steady_clock;

// How long a wait may delay the handling of a signal.
inline constexpr std::chrono::milliseconds kWaitSlice{50};

PyThreadState* release_gil();
void retake_gil(PyThreadState* state) noexcept;
// The interpreter is shutting down. `threads_left`: some threads may never leave their frames.
void begin_exit(bool threads_left);

// The only place that releases the GIL and, with MayBlock, the only one where a thread may wait.
template <class Work>
auto without_gil(Work&& work) {
  class Released {
   public:
    Released() : state_(release_gil()) {}
    ~Released() { retake_gil(state_); }
    Released(const Released&) = delete;
    Released& operator=(const Released&) = delete;

   private:
    PyThreadState* const state_;
  };
  const Released released;
  return std::forward<Work>(work)(MayBlock::on_this_thread());
}

// Below this, releasing and retaking the GIL takes longer than computing the sum.
constexpr size_t kSumWithGilBytes = size_t{16} << 10;

template <class Work>
auto without_gil_if_long(size_t size_bytes, Work&& work) {
  if (size_bytes < kSumWithGilBytes) return work();
  return without_gil([&work](MayBlock) { return work(); });
}

// bind_engine.cc. Passes the engine's log on to Python's logging, on a thread that is waiting for
// the engine and holds the GIL for a moment. So logging needs no thread of its own, and I/O threads
// stay out of Python. False, with Python's error set, if a signal handler raised: one may run
// wherever Python runs.
[[nodiscard]] bool pass_on_log() noexcept;
bool log_waits();

// True, with SystemExit as Python's error, on a thread that is left when the interpreter shuts
// down. The operation that it waits for has been cancelled, so the thread ends silently and
// releases its locks.
[[nodiscard]] inline bool must_end() noexcept {
  if (!exiting_elsewhere()) return false;
  PyErr_SetNone(PyExc_SystemExit);
  return true;
}

// Waits until `wait(until, permit)` is true. If a signal handler raises meanwhile (Ctrl-C), or the
// interpreter shuts down, calls `cancel()`, waits for the end, because the engine may still write
// to the caller's memory, and throws.
template <class Wait, class Cancel>
void wait_interruptibly(Wait&& wait, Cancel&& cancel) {
  const auto wait_a_slice = [&wait](MayBlock permit) {
    return wait(steady_clock::now() + kWaitSlice, permit);
  };
  while (!without_gil(wait_a_slice)) {
    if (!must_end() && pass_on_log() && PyErr_CheckSignals() == 0) continue;
    nb::python_error interrupted;
    without_gil([&wait_a_slice, &cancel](MayBlock permit) {
      cancel();
      while (!wait_a_slice(permit)) {
      }
    });
    throw interrupted;
  }
  if (must_end() || (log_waits() && !pass_on_log())) throw nb::python_error();
}

// Waits for the result of one operation and takes it.
template <class T>
T wait_and_take(const std::shared_ptr<Pending<T>>& pending) {
  wait_interruptibly([&pending](steady_clock::time_point until,
                                MayBlock permit) { return pending->wait_until(until, permit); },
                     [&pending] { pending->cancel(); });
  return value_or_raise(without_gil([&pending](MayBlock permit) { return pending->take(permit); }));
}

}  // namespace headrace::python
