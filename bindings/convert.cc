#include "convert.h"

#include "errors.h"

namespace headrace::python {

std::string_view utf8_of(nb::handle str) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(str.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    raise(Error(Code::kInvalidArgument,
                cat(shown(str), " is no Unicode text, which names and URLs are")));
  }
  return {text, static_cast<size_t>(size)};
}

Text::operator std::string() const {
  if (!PyUnicode_Check(given.ptr())) {
    raise_type_error("a name, a prefix or a URL is a str, and not %.100s: %.300R",
                     type_name_of(given).c_str(), given.ptr());
  }
  return std::string(utf8_of(given));
}

}  // namespace headrace::python
