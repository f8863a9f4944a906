#include "s3/sigv4.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <utility>
#include <vector>

#include "digest.h"
#include "s3/s3.h"
#include "s3/xml.h"
#include "text.h"

namespace faultserver::s3 {
namespace {

constexpr std::string_view kScheme = "AWS4-HMAC-SHA256";
constexpr std::string_view kUnsigned = "UNSIGNED-PAYLOAD";
constexpr std::string_view kUnsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
constexpr int64_t kMaxSkewS = 15 * 60;
constexpr uint64_t kMaxExpiresS = 7 * 24 * 3600;

struct Signed {
  Credential credential{};
  std::vector<std::string> headers{};  // Names, as they were listed.
  std::string signature{};
  std::string time{};   // "20260131T120000Z"
  std::string token{};  // Of a session.
  std::string payload_hash{};
  uint64_t expires_s = 0;
};

Credential parse_credential(std::string_view text) {
  Credential out{.is_given = true};
  const std::vector<std::string_view> parts = split(text, '/');
  // The key itself may contain slashes; the four parts of the scope may not.
  if (parts.size() < 5 || parts.back() != "aws4_request") return out;
  const size_t count = parts.size();
  out.access_key = text.substr(0, static_cast<size_t>(parts[count - 4].data() - text.data()) - 1);
  out.day = parts[count - 4];
  out.region = parts[count - 3];
  out.service = parts[count - 2];
  return out;
}

// "Credential=..., SignedHeaders=..., Signature=...": the value of `name`.
std::string_view member(std::string_view header, std::string_view name) {
  header.remove_prefix(std::min(header.size(), kScheme.size()));
  for (std::string_view piece : split(header, ',')) {
    piece = trim(piece);
    if (piece.size() > name.size() && piece.starts_with(name) && piece[name.size()] == '=') {
      return piece.substr(name.size() + 1);
    }
  }
  return {};
}

// Seconds since 1970 of "20260131T120000Z".
std::optional<int64_t> parse_time(std::string_view text) {
  std::tm parts{};
  const std::string whole(text);
  const char* const end = strptime(whole.c_str(), "%Y%m%dT%H%M%SZ", &parts);
  if (!end || *end != '\0' || text.size() != 16) return std::nullopt;
  return timegm(&parts);
}

std::string encoded_path(std::string_view path) {
  std::string out;
  bool first = true;
  for (const std::string_view segment : split(percent_decode(path, false), '/')) {
    if (!first) out += '/';
    first = false;
    out += percent_encode(segment);
  }
  return out;
}

std::string canonical_query(std::string_view query, bool is_presigned) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string_view piece : split(query, '&')) {
    if (piece.empty()) continue;
    const size_t equals = piece.find('=');
    std::string name = percent_encode(percent_decode(piece.substr(0, equals), true));
    if (is_presigned && name == "X-Amz-Signature") continue;
    std::string value;
    if (equals != std::string_view::npos) {
      value = percent_encode(percent_decode(piece.substr(equals + 1), true));
    }
    pairs.emplace_back(std::move(name), std::move(value));
  }
  std::ranges::sort(pairs);
  std::string out;
  for (const auto& [name, value] : pairs) {
    if (!out.empty()) out += '&';
    out += name;
    out += '=';
    out += value;
  }
  return out;
}

// Runs of spaces within a value count as one.
std::string squeezed(std::string_view value) {
  std::string out;
  for (const char c : trim(value)) {
    if (c != ' ' || out.empty() || out.back() != ' ') out += c;
  }
  return out;
}

std::string canonical_headers(const Request& request, const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) {
    std::string values;
    for (const auto& [key, value] : request.headers) {
      if (!equal_ignoring_case(key, name)) continue;
      if (!values.empty()) values += ',';
      values += squeezed(value);
    }
    out += name;
    out += ':';
    out += values;
    out += '\n';
  }
  return out;
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) {
    if (!out.empty()) out += ';';
    out += name;
  }
  return out;
}

std::string canonical_request(const Request& request, const Signed& told) {
  return request.method + "\n" + encoded_path(request.path) + "\n" +
         canonical_query(request.query, told.credential.is_presigned) + "\n" +
         canonical_headers(request, told.headers) + "\n" + joined(told.headers) + "\n" +
         told.payload_hash;
}

std::string string_to_sign(const Signed& told, std::string_view canonical) {
  const Credential& scope = told.credential;
  return std::string(kScheme) + "\n" + told.time + "\n" + scope.day + "/" + scope.region + "/" +
         scope.service + "/aws4_request\n" + hex(sha256(canonical));
}

std::string signature_of(const Signed& told, std::string_view secret, std::string_view text) {
  std::string key = "AWS4" + std::string(secret);
  for (const std::string_view part :
       {std::string_view(told.credential.day), std::string_view(told.credential.region),
        std::string_view(told.credential.service), std::string_view("aws4_request")}) {
    key = hmac_sha256(key, part);
  }
  return hex(hmac_sha256(key, text));
}

Signed read(const Request& request) {
  Signed told{.credential = credential_of(request)};
  const auto list_headers = [&told](std::string_view text) {
    for (const std::string_view name : split(text, ';')) told.headers.push_back(lower(name));
  };
  if (told.credential.is_presigned) {
    list_headers(request.parameter("X-Amz-SignedHeaders"));
    told.signature = request.parameter("X-Amz-Signature");
    told.time = request.parameter("X-Amz-Date");
    told.token = request.parameter("X-Amz-Security-Token");
    told.expires_s = parse_u64(request.parameter("X-Amz-Expires")).value_or(0);
    told.payload_hash = request.header("x-amz-content-sha256");
    if (told.payload_hash.empty()) told.payload_hash = kUnsigned;
  } else {
    const std::string_view header = request.header("authorization");
    list_headers(member(header, "SignedHeaders"));
    told.signature = member(header, "Signature");
    told.time = request.header("x-amz-date");
    told.token = request.header("x-amz-security-token");
    told.payload_hash = request.header("x-amz-content-sha256");
  }
  return told;
}

std::string iso_seconds(int64_t seconds) {
  std::string text = iso_time(seconds * 1'000'000);
  return text.substr(0, text.find('.')) + "Z";
}

Response malformed(const Route& route, const Credential& credential, std::string_view message,
                   std::string_view more = {}) {
  return error(route, 400,
               credential.is_presigned ? "AuthorizationQueryParametersError"
                                       : "AuthorizationHeaderMalformed",
               message, more);
}

std::optional<Response> wrong_time(const World& world, const Route& route, const Signed& told) {
  const std::optional<int64_t> at_s = parse_time(told.time);
  if (!at_s) {
    return error(route, 403, "AccessDenied",
                 "AWS authentication requires a valid Date or x-amz-date header");
  }
  if (!told.time.starts_with(told.credential.day)) {
    return malformed(route, told.credential,
                     "The authorization header is malformed; Invalid credential date \"" +
                         told.credential.day + "\". This date is not the same as X-Amz-Date.");
  }
  const int64_t now_s = (now_us() + world.clock_offset_us) / 1'000'000;
  const std::string server_time = element("ServerTime", iso_seconds(now_s));
  if (told.credential.is_presigned) {
    if (told.expires_s == 0 || told.expires_s > kMaxExpiresS) {
      return error(route, 400, "AuthorizationQueryParametersError",
                   "X-Amz-Expires must be between 1 and 604800 seconds");
    }
    const int64_t end_s = *at_s + static_cast<int64_t>(told.expires_s);
    if (now_s > end_s) {
      return error(route, 403, "AccessDenied", "Request has expired",
                   element("X-Amz-Expires", told.expires_s) +
                       element("Expires", iso_seconds(end_s)) + server_time);
    }
    if (*at_s - now_s > kMaxSkewS) {
      return error(route, 403, "AccessDenied", "Request is not valid yet", server_time);
    }
  } else if (std::abs(*at_s - now_s) > kMaxSkewS) {
    return error(route, 403, "RequestTimeTooSkewed",
                 "The difference between the request time and the current time is too large.",
                 element("RequestTime", told.time) + server_time +
                     element("MaxAllowedSkewMilliseconds", uint64_t{kMaxSkewS * 1000}));
  }
  return std::nullopt;
}

// The host and everything of Amazon's own must be signed.
std::optional<Response> unsigned_headers(const Request& request, const Route& route,
                                         const Signed& told) {
  std::string missing;
  for (const auto& [name, value] : request.headers) {
    const std::string small = lower(name);
    const bool must = small == "host" || small.starts_with("x-amz-");
    if (must && std::ranges::find(told.headers, small) == told.headers.end()) {
      missing += missing.empty() ? small : ", " + small;
    }
  }
  if (missing.empty()) return std::nullopt;
  return error(route, 403, "AccessDenied",
               "There were headers present in the request which were not signed",
               element("HeadersNotSigned", missing));
}

std::optional<Response> wrong_payload(const Request& request, const Route& route,
                                      const Signed& told) {
  const std::string_view hash = told.payload_hash;
  if (hash == kUnsigned || hash == kUnsignedTrailer) return std::nullopt;
  if (hash.starts_with("STREAMING-")) {
    return error(route, 501, "NotImplemented", "Signatures of single chunks are not checked here.");
  }
  const std::string found = hex(sha256(request.body));
  if (hash == found) return std::nullopt;
  return error(
      route, 400, "XAmzContentSHA256Mismatch",
      "The provided 'x-amz-content-sha256' header does not match what was computed.",
      element("ClientComputedContentSHA256", hash) + element("S3ComputedContentSHA256", found));
}

}  // namespace

Credential credential_of(const Request& request) {
  if (request.has_parameter("X-Amz-Algorithm")) {
    Credential out = parse_credential(request.parameter("X-Amz-Credential"));
    out.is_presigned = true;
    return out;
  }
  const std::string_view header = request.header("authorization");
  if (header.empty()) return {};
  return parse_credential(header.starts_with(kScheme) ? member(header, "Credential") : "");
}

std::optional<Response> failed_signature(const World& world, const Request& request,
                                         const Route& route, std::string_view region) {
  const Signed told = read(request);
  const Credential& credential = told.credential;
  if (credential.access_key.empty() || told.signature.empty() || credential.service != "s3") {
    return malformed(route, credential,
                     "The authorization header is malformed; the authorization header requires "
                     "three components: Credential, SignedHeaders, and Signature.");
  }
  if (told.payload_hash.empty()) {
    return error(route, 400, "InvalidRequest",
                 "Missing required header for this request: x-amz-content-sha256");
  }
  const auto key = std::ranges::find(world.access_keys, credential.access_key, &AccessKey::id);
  if (key == world.access_keys.end()) {
    return error(route, 403, "InvalidAccessKeyId",
                 "The AWS Access Key Id you provided does not exist in our records.",
                 element("AWSAccessKeyId", credential.access_key));
  }
  if (!region.empty() && credential.region != region) {
    Response wrong =
        malformed(route, credential,
                  "The authorization header is malformed; the region '" + credential.region +
                      "' is wrong; expecting '" + std::string(region) + "'",
                  element("Region", region));
    wrong.set("x-amz-bucket-region", std::string(region));
    return wrong;
  }
  if (std::optional<Response> wrong = wrong_time(world, route, told)) return wrong;
  if (key->session_token != told.token) {
    return error(route, 400, "InvalidToken",
                 "The provided token is malformed or otherwise invalid.",
                 element("Token-0", told.token));
  }
  if (std::optional<Response> wrong = unsigned_headers(request, route, told)) return wrong;
  const std::string canonical = canonical_request(request, told);
  const std::string text = string_to_sign(told, canonical);
  if (signature_of(told, key->secret, text) != told.signature) {
    return error(route, 403, "SignatureDoesNotMatch",
                 "The request signature we calculated does not match the signature you provided. "
                 "Check your key and signing method.",
                 element("AWSAccessKeyId", credential.access_key) + element("StringToSign", text) +
                     element("SignatureProvided", told.signature) +
                     element("CanonicalRequest", canonical));
  }
  // Only who proves to have the key is told that it has expired.
  if (key->expired) {
    return error(route, 400, "ExpiredToken", "The provided token has expired.",
                 element("Token-0", told.token));
  }
  return wrong_payload(request, route, told);
}

}  // namespace faultserver::s3
