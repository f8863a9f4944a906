#include "convert.h"

namespace headrace::python {

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
      nb::module_::import_("headrace.errors").attr(exception_class_name(error.code()));
  nb::object exception = type(to_str(error.to_string()));
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
  const nb::object exception = to_exception(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace headrace::python
