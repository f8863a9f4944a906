#include "headrace/store/s3/s3_errors.h"

#include <array>

namespace headrace {

Code s3_code_of(int status, std::string_view code) {
  if (is_one_of(code, {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded",
                       "TooManyRequests", "BandwidthLimitExceeded", "RequestThrottled",
                       "SlowDownRead", "SlowDownWrite"})) {
    return Code::kThrottled;
  }
  // Other bytes have arrived than were sent, in the words of several services.
  if (is_one_of(code,
                {"BadChecksum", "BadDigest", "ChecksumMismatch", "ContentMD5Mismatch",
                 "IncompleteBody", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"})) {
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
  // A full disk is not better the next second.
  if (status == 507 || code == "XMinioStorageFull") return Code::kExhausted;
  if (status >= 500) return status == 501 ? Code::kInvalidArgument : Code::kUnavailable;
  return status >= 300 ? Code::kInvalidArgument : Code::kInternal;
}

std::optional<int> s3_status_of(std::string_view code) {
  if (is_one_of(code, {"AccessDenied", "AccountProblem", "AllAccessDisabled", "InvalidAccessKeyId",
                       "InvalidObjectState", "InvalidPayer", "NotSignedUp", "QuotaExceeded",
                       "RequestTimeTooSkewed", "SignatureDoesNotMatch"})) {
    return 403;
  }
  if (code.starts_with("NoSuch")) return 404;
  if (code == "MethodNotAllowed") return 405;
  if (is_one_of(code, {"OperationAborted", "ConditionalRequestConflict", "InvalidBucketState"})) {
    return 409;
  }
  if (code == "MissingContentLength") return 411;
  if (code == "PreconditionFailed") return 412;
  if (code == "InvalidRange") return 416;
  if (code == "InternalError") return 500;
  if (code == "NotImplemented") return 501;
  if (is_one_of(code, {"Busy", "ServiceUnavailable", "SlowDown"})) return 503;
  if (code == "XMinioStorageFull") return 507;
  constexpr std::array<std::string_view, 13> kBeginnings = {
      "Authorization", "Bad",     "EntityToo",  "IllegalLocation", "IncompleteBody",
      "Invalid",       "KMS.",    "KeyTooLong", "Malformed",       "MetadataTooLarge",
      "Missing",       "TooMany", "Unsupported"};
  const bool is_bad =
      std::ranges::any_of(kBeginnings,
                          [code](std::string_view each) { return code.starts_with(each); }) ||
      is_one_of(code, {"ChecksumMismatch", "ContentMD5Mismatch", "ExpiredToken", "NotSupported",
                       "RequestExpired", "RequestIsNotMultiPartContent", "RequestTimeout",
                       "TokenRefreshRequired", "UnexpectedContent", "UserKeyMustBeSpecified",
                       "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"});
  return is_bad ? std::optional(400) : std::nullopt;
}

}  // namespace headrace
