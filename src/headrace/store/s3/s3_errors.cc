#include "headrace/store/s3/s3_errors.h"

namespace headrace {

Code s3_code_of(int status, std::string_view code) {
  if (is_one_of(code, {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded",
                       "TooManyRequests", "BandwidthLimitExceeded", "RequestThrottled",
                       "SlowDownRead", "SlowDownWrite"})) {
    return Code::kThrottled;
  }
  if (is_one_of(code, {"BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"})) {
    return Code::kCorrupt;
  }
  if (code == "RequestTimeout") return Code::kTimedOut;
  if (status == 429) return Code::kThrottled;
  if (status == 401 || status == 403) return Code::kPermissionDenied;
  if (is_one_of(code, {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestExpired"})) {
    return Code::kPermissionDenied;
  }
  if (status == 404 || status == 410) return Code::kNotFound;
  if (status == 412 || status == 304) return Code::kPreconditionFailed;
  if (status == 408) return Code::kTimedOut;
  if (status == 409) {
    // Another change of the same object is under way. (An answer to HEAD has no code.) Other
    // conflicts are no less so a moment later, such as a parent that is a file.
    return code.empty() || is_one_of(code, {"OperationAborted", "ConditionalRequestConflict"})
               ? Code::kUnavailable
               : Code::kInvalidArgument;
  }
  if (status >= 500) return status == 501 ? Code::kInvalidArgument : Code::kUnavailable;
  return status >= 300 ? Code::kInvalidArgument : Code::kInternal;
}

Error s3_late_error(const XmlError& error) {
  const std::string_view code = error.code;
  // The status that such an error comes with where it is noticed in time.
  int status = 500;
  if (is_one_of(code, {"AccessDenied", "AccountProblem", "AllAccessDisabled", "InvalidAccessKeyId",
                       "InvalidObjectState", "SignatureDoesNotMatch"})) {
    status = 403;
  } else if (code.starts_with("NoSuch")) {
    status = 404;
  } else if (code == "PreconditionFailed") {
    status = 412;
  } else if (is_one_of(code, {"NotImplemented", "MethodNotAllowed"}) ||
             code.starts_with("EntityToo") || code.starts_with("Invalid") ||
             code.starts_with("Malformed")) {
    status = 400;
  }
  return Error(s3_code_of(status, code), cat(code, ": ", error.message));
}

}  // namespace headrace
