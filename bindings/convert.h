// The border between the engine and Python: who waits, who owns, and how errors cross. Nothing here
// decides anything about objects or requests.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "headrace/base/fork.h"
#include "headrace/base/may_block.h"
#include "headrace/base/pending.h"
#include "headrace/base/result.h"
#include "headrace/format/checksum.h"
#include "in_python.h"

namespace headrace::python {

namespace nb = nanobind;
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

// bind_engine.cc. Passes what the engine has logged to Python's logging, on a thread that is
// waiting for the engine and holds the GIL for a moment. So logging needs no thread of its own, and
// I/O threads stay out of Python. False, with Python's error set, if a signal handler raised: one
// may run wherever Python runs.
[[nodiscard]] bool pass_on_log() noexcept;
bool log_waits();

// True, with SystemExit as Python's error, on a thread that is left when the interpreter shuts
// down. Its wait is for something that has been cancelled; so it ends silently, and lets go of its
// locks.
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

// The name of the type of `value`, and what repr() says of it, for messages.
std::string type_name_of(nb::handle value);
std::string shown(nb::handle value);
// A TypeError; `format` is as for PyErr_Format(), so it may show objects of the user.
template <class... Values>
[[noreturn]] void raise_type_error(const char* format, Values... values) {
  in_python([&] { return PyErr_Format(PyExc_TypeError, format, values...); });
  throw nb::python_error();
}

// errors.cc: the name of the class in headrace._errors that stands for `code`.
const char* exception_class_name(Code code);
// An instance of that class, with the error's details as attributes.
nb::object to_exception(const Error& error);
[[noreturn]] void raise(const Error& error);

template <class T>
T value_or_raise(Result<T>&& result) {
  if (!result) raise(result.error());
  return std::move(*result);
}

// Waits for the result of one operation and takes it.
template <class T>
T wait_and_take(const std::shared_ptr<Pending<T>>& pending) {
  wait_interruptibly([&pending](steady_clock::time_point until,
                                MayBlock permit) { return pending->wait_until(until, permit); },
                     [&pending] { pending->cancel(); });
  return value_or_raise(without_gil([&pending](MayBlock permit) { return pending->take(permit); }));
}

inline nb::str to_str(std::string_view text) {
  // What a server sent may not be UTF-8; Python keeps such bytes as surrogates, as in file names.
  PyObject* str =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape");
  if (str == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(str);
}

// ("crc32c", b"...") or None.
inline nb::object to_pair(const Checksum& sum) {
  if (sum.empty()) return nb::none();
  return nb::make_tuple(to_str(to_string(sum.kind())),
                        nb::bytes(sum.bytes().data(), sum.bytes().size()));
}

// The UTF-8 of a str. Raises InvalidArgumentError if it is not valid Unicode: file names can
// contain any bytes, which Python keeps as surrogates.
std::string_view utf8_of(nb::handle str);

// A name, prefix or URL as the caller gave it. Converting it to a string raises an error that says
// what was given, while nanobind's own error would list the signatures.
struct Text {
  nb::handle given;
  operator std::string() const;  // NOLINT(google-explicit-constructor): parameters are declared so
};

// Memory held through the buffer protocol. Destroyed with the GIL held.
class HeldBuffer {
 public:
  // Raises BufferError or TypeError unless it is a contiguous (and writable) buffer.
  HeldBuffer(nb::handle object, bool writable) {
    const int flags = writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    if (in_python([&] { return PyObject_GetBuffer(object.ptr(), &view_, flags); }) != 0) {
      throw nb::python_error();
    }
  }
  ~HeldBuffer() {
    in_python([this] { PyBuffer_Release(&view_); });
  }
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;

  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }
  // As values of the type that the caller knows them to have.
  template <class Value>
  std::span<const Value> values() const {
    return {static_cast<const Value*>(view_.buf), bytes().size() / sizeof(Value)};
  }

 private:
  Py_buffer view_{};
};

// `count` int64 values as a writable memoryview, which torch and NumPy accept as it is; `fill` gets
// them as a span.
template <class Fill>
nb::object int64_buffer(size_t count, Fill fill) {
  const auto size = static_cast<Py_ssize_t>(count * sizeof(int64_t));
  const nb::object bytes = nb::steal(PyByteArray_FromStringAndSize(nullptr, size));
  if (!bytes.is_valid()) throw nb::python_error();
  fill(std::span(reinterpret_cast<int64_t*>(PyByteArray_AsString(bytes.ptr())), count));
  const nb::object view = nb::steal(PyMemoryView_FromObject(bytes.ptr()));
  if (!view.is_valid()) throw nb::python_error();
  return view.attr("cast")("q");
}

}  // namespace headrace::python

template <>
struct nanobind::detail::type_caster<headrace::python::Text> {
  NB_TYPE_CASTER(headrace::python::Text, const_name("str"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    value.given = source;
    return true;
  }
};
