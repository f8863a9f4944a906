#include "errors.h"

#include "convert.h"
#include "waiting.h"

namespace headrace::python {

std::string type_name_of(nb::handle value) {
  return nb::cast<std::string>(nb::handle(value.type()).attr("__name__"));
}

std::string shown(nb::handle value) {
  const nb::object text = nb::steal(in_python([value] { return PyObject_Repr(value.ptr()); }));
  if (!text.is_valid()) throw nb::python_error();
  return nb::cast<std::string>(text);
}

const char* exception_class_name(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return "InvalidArgumentError";
    case Code::kNotFound: return "NotFoundError";
    case Code::kPermissionDenied: return "PermissionDeniedError";
    case Code::kPreconditionFailed: return "PreconditionFailedError";
    case Code::kThrottled: return "ThrottledError";
    case Code::kUnavailable: return "UnavailableError";
    case Code::kTimedOut: return "TimedOutError";
    case Code::kCorrupt: return "CorruptDataError";
    case Code::kCancelled: return "CancelledError";
    case Code::kExhausted: return "ResourceError";
    case Code::kInternal: return "InternalError";
  }
  return "InternalError";
}

nb::object to_exception(const Error& error) {
  const nb::object type =
      imported("headrace._base.errors").attr(exception_class_name(error.code()));
  const nb::str text = to_str(error.to_string());
  nb::object exception = in_python([&] { return type(text); });
  const auto text_or_none = [](const std::string& text) {
    return text.empty() ? nb::object(nb::none()) : nb::object(to_str(text));
  };
  exception.attr("url") = text_or_none(error.url());
  exception.attr("request_id") = text_or_none(error.request_id());
  exception.attr("http_status") =
      error.http_status() == 0 ? nb::object(nb::none()) : nb::object(nb::int_(error.http_status()));
  exception.attr("attempts") = nb::int_(error.attempts());
  return exception;
}

void raise(const Error& error) {
  if (error.code() == Code::kCancelled && must_end()) throw nb::python_error();
  const nb::object exception = to_exception(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace headrace::python
