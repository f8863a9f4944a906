// Where our code calls Python's, and where it takes the GIL again.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>

#include <utility>

namespace headrace::python {

namespace nb = nanobind;

// module.cc: the interpreter is shutting down; on another thread.
bool exiting();
bool exiting_elsewhere();
// Sleeps until the process ends.
[[noreturn]] void never_return();

// Runs `work`, in which Python may let another thread run. Once the interpreter is finalizing,
// CPython 3.13 and older answer a thread that wants the GIL by pthread_exit(), which unwinds its
// stack: through functions that are noexcept, and dropping Python objects without the GIL. Such a
// thread stays here until the process ends, and nothing that it holds is touched; from 3.14 on
// Python itself sees to that.
// So `work` calls Python and owns no Python object: its arguments live outside. Nor may it call
// Python through a noexcept function, such as nanobind's getattr() with a default.
template <class Work>
auto in_python(Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (abi::__forced_unwind&) {
    if (exiting()) never_return();
    throw;  // somebody else ends the thread
  }
}

inline nb::object imported(const char* module) {
  PyObject* const found = in_python([module] { return PyImport_ImportModule(module); });
  if (found == nullptr) throw nb::python_error();
  return nb::steal(found);
}

inline nb::object attribute(nb::handle object, const char* name) {
  PyObject* const found = in_python([&] { return PyObject_GetAttrString(object.ptr(), name); });
  if (found == nullptr) throw nb::python_error();
  return nb::steal(found);
}

// Calls `act` with each of `items`, which may be a generator of the user.
template <class Act>
void for_each(nb::handle items, Act&& act) {
  const nb::object iterator =
      nb::steal(in_python([items] { return PyObject_GetIter(items.ptr()); }));
  if (!iterator.is_valid()) throw nb::python_error();
  while (PyObject* const item = in_python([&] { return PyIter_Next(iterator.ptr()); })) {
    const nb::object held = nb::steal(item);
    act(nb::handle(held));
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
}

// The items of an iterable as a list or a tuple; `message` says what it must be.
inline nb::object sequence_of(nb::handle items, const char* message) {
  PyObject* const made = in_python([&] { return PySequence_Fast(items.ptr(), message); });
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

// `value` as an int; without an object, and with Python's error set, if it is not an integer.
inline nb::object to_index(nb::handle value) {
  return nb::steal(in_python([value] { return PyNumber_Index(value.ptr()); }));
}

inline nb::object fspath(nb::handle path) {
  PyObject* const text = in_python([path] { return PyOS_FSPath(path.ptr()); });
  if (text == nullptr) throw nb::python_error();
  return nb::steal(text);
}

// A reference to an object of a user's class, which may have a __del__.
class UserObject {
 public:
  explicit UserObject(nb::object object = nb::none()) : object_(std::move(object)) {}
  ~UserObject() {
    PyObject* const object = object_.release().ptr();
    in_python([object] { Py_XDECREF(object); });  // nanobind's own dec_ref() is noexcept
  }
  UserObject(const UserObject&) = default;
  UserObject(UserObject&&) noexcept = default;
  UserObject& operator=(UserObject other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  const nb::object& get() const { return object_; }

 private:
  nb::object object_;
};

}  // namespace headrace::python
