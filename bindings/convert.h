// Values as Python has them, and as the engine has them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "headrace/format/checksum.h"
#include "in_python.h"

namespace headrace::python {

inline nb::str to_str(std::string_view text) {
  // A server may send bytes that are not UTF-8; Python keeps them as surrogates, as in file names.
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
  // The bytes as values of a type that the caller has checked.
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
