// The engine's errors as Python's exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "headrace/base/result.h"
#include "in_python.h"

namespace headrace::python {

// The name of the type of `value`, and its repr(), for messages.
std::string type_name_of(nb::handle value);
std::string shown(nb::handle value);
// A TypeError; `format` is as for PyErr_Format(), so it may show objects of the user.
template <class... Values>
[[noreturn]] void raise_type_error(const char* format, Values... values) {
  in_python([&] { return PyErr_Format(PyExc_TypeError, format, values...); });
  throw nb::python_error();
}

// The name of the class in headrace._base.errors that stands for `code`.
const char* exception_class_name(Code code);
// An instance of that class, with the error's details as attributes.
nb::object to_exception(const Error& error);
[[noreturn]] void raise(const Error& error);

template <class T>
T value_or_raise(Result<T>&& result) {
  if (!result) raise(result.error());
  return std::move(*result);
}

}  // namespace headrace::python
