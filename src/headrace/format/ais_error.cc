#include "headrace/format/ais_error.h"

#include "headrace/base/ascii.h"
#include "headrace/format/json.h"

namespace headrace {

AisError parse_ais_error(std::string_view text) {
  AisError out;
  simdjson::dom::object object;
  if (const auto root = parse_json(text); root && root->get(object) == simdjson::SUCCESS) {
    const auto line = [&object](const char* name) {
      std::string_view value;
      return object[name].get(value) == simdjson::SUCCESS ? printable_line(value) : "";
    };
    out.type = line("tcode");
    out.message = line("message");
    if (out.message.empty()) out.message = line("mssage");  // as early servers spell it
    out.node = line("node");
    uint64_t status = 0;
    if (object["status"].get(status) == simdjson::SUCCESS && status < 1000) {
      out.status = static_cast<int>(status);
    }
  }
  if (out.message.empty()) out.message = out.type.empty() ? printable_line(text) : out.type;
  return out;
}

AisError parse_ais_error(std::string_view body, std::string_view hdr_error) {
  return parse_ais_error(printable_line(body, 1).empty() ? hdr_error : body);
}

Code ais_code_of(int status, std::string_view type) {
  // The target has compared the bytes that came with the sum that was sent along, and stored
  // nothing. It says 500.
  if (type == "ErrBadCksum" || type == "ErrInvalidCksum") return Code::kCorrupt;
  if (type == "ErrTooManyRequests" || type == "ErrRateLimitFrontend") return Code::kThrottled;
  // A full cluster is not better the next second.
  if (type == "ErrCapExceeded" || status == 507) return Code::kExhausted;
  switch (status) {
    case 304:
    case 412: return Code::kPreconditionFailed;
    case 401:
    case 403: return Code::kPermissionDenied;
    case 404:
    case 410: return Code::kNotFound;
    case 408: return Code::kTimedOut;
    case 429: return Code::kThrottled;
    // What it says to what it was not built for: an ETL without Kubernetes, for example.
    case 501: return Code::kInvalidArgument;
    // A bucket that is being moved, renamed or rebuilt.
    case 409:
      return type == "ErrBucketAlreadyExists" ? Code::kPreconditionFailed : Code::kUnavailable;
    default: break;
  }
  if (status >= 500 || status < 400) return Code::kUnavailable;
  return Code::kInvalidArgument;
}

bool is_ais_bucket_missing(const AisError& error) {
  return error.type == "ErrBckNotFound" || error.type == "ErrRemoteBckNotFound";
}

}  // namespace headrace
