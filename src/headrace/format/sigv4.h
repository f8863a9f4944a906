// AWS Signature Version 4, as S3 and its kind take it.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

// What stands in the place of the payload's SHA-256 (hexadecimal) where there is none: a body that
// TLS protects, a body in chunks with a checksum behind it, no body.
inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";
inline constexpr std::string_view kUnsignedPayloadTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
inline constexpr std::string_view kEmptyPayload =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

// The keys of an identity. `session_token` is empty unless they are temporary.
struct AwsKeys {
  std::string access_key_id = {};
  std::string secret_access_key = {};
  std::string session_token = {};
};

// The key that signs the requests of one identity to one service of one region on one day (UTC).
// Deriving it takes some microseconds, so it is kept until the day ends.
// Thread: any (immutable).
class SigV4Key {
 public:
  // Errors: kInvalidArgument for a text that is missing or cannot stand in a header. The message
  // does not quote it.
  static Result<SigV4Key> derive(const AwsKeys& keys, std::string_view region,
                                 std::string_view service,
                                 std::chrono::system_clock::time_point now);

  // False once `now` is on another day: the service would refuse what the key signs.
  bool covers(std::chrono::system_clock::time_point now) const {
    return std::chrono::floor<std::chrono::days>(now) == day_;
  }

  // "20261122/eu-west-1/s3/aws4_request"
  std::string_view scope() const { return credential().substr(access_key_id_size_ + 1); }
  // The access key id, '/', scope().
  std::string_view credential() const {
    return std::string_view(authorization_).substr(credential_at_, credential_size_);
  }
  // "Authorization: AWS4-HMAC-SHA256 Credential=(credential()), SignedHeaders="
  const std::string& authorization() const { return authorization_; }
  const std::string& session_token() const { return session_token_; }

  // The states of SHA-256 behind the first block of HMAC's inner and outer sums.
  using State = std::array<uint32_t, 8>;
  const State& inner() const { return inner_; }
  const State& outer() const { return outer_; }

 private:
  SigV4Key() = default;

  std::string authorization_, session_token_;
  size_t credential_at_ = 0, credential_size_ = 0, access_key_id_size_ = 0;
  std::chrono::sys_days day_;
  State inner_{}, outer_{};
};

// A request as it is sent.
struct SigV4Request {
  std::string_view method = "GET";
  // Path and query. Names and values are encoded as percent_encode does it. The path is signed as
  // it is: S3 neither joins "//" nor resolves "." and "..".
  std::string_view target = "/";
  std::string_view authority = {};  // the value of the Host line
};

// Appends "x-amz-content-sha256", "x-amz-date", "x-amz-security-token" (for a session token) and
// "Authorization" to `header_lines` ("Name: value\r\n"...). Signed are the host, all x-amz-*
// headers, Content-MD5 and Content-Type: the lines that S3 asks for and no proxy changes.
// `payload` is a SHA-256 in hexadecimal or one of the texts above; `key` covers `now`.
void sign_headers(const SigV4Request& request, std::string_view payload, const SigV4Key& key,
                  std::chrono::system_clock::time_point now, std::string& header_lines);

// The signature alone, of a request in which all of `header_lines` and the host are signed.
std::array<char, 64> sigv4_signature(const SigV4Request& request, std::string_view header_lines,
                                     std::string_view payload, const SigV4Key& key,
                                     std::chrono::system_clock::time_point now);

// Appends to `target` the query parameters that let everyone who has them send this request, until
// `valid_for` (at most seven days) after `now`. Of `header_lines`, those are signed that
// sign_headers would sign: they must be sent with it. The body may be any.
void presign(std::string_view method, std::string_view authority, std::string_view header_lines,
             const SigV4Key& key, std::chrono::system_clock::time_point now,
             std::chrono::seconds valid_for, std::string& target);

}  // namespace headrace
