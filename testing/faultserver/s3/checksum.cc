#include "s3/checksum.h"

#include <array>

#include "digest.h"
#include "s3/s3.h"
#include "s3/xml.h"
#include "text.h"

namespace faultserver::s3 {
namespace {

constexpr auto kAlgorithms =
    std::to_array({Algorithm::kCrc32, Algorithm::kCrc32c, Algorithm::kCrc64Nvme, Algorithm::kSha1,
                   Algorithm::kSha256});

template <typename Word>
std::string big_endian(Word value) {
  std::string out(sizeof(Word), '\0');
  for (size_t i = out.size(); i-- > 0; value = static_cast<Word>(value >> 8)) {
    out[i] = static_cast<char>(value & 255);
  }
  return out;
}

template <typename Word>
Word from_big_endian(std::string_view bytes) {
  Word value = 0;
  for (const char c : bytes) value = static_cast<Word>((value << 8) | static_cast<uint8_t>(c));
  return value;
}

// Folds `sum` over the pieces of a body.
template <typename Word>
Word over(const Body& body, Word (*sum)(std::string_view, Word)) {
  Word value = 0;
  for (uint64_t at = 0; at < body.size_bytes();) {
    const std::string_view piece = body.view(at);
    value = sum(piece, value);
    at += piece.size();
  }
  return value;
}

// The bytes in one piece; those that do not lie together are copied into `scratch`.
std::string_view in_one_piece(const Body& body, std::string& scratch) {
  const std::string_view first = body.view(0);
  if (first.size() == body.size_bytes()) return first;
  scratch = body.copy();
  return scratch;
}

}  // namespace

std::optional<Algorithm> algorithm_from(std::string_view name) {
  for (const Algorithm algorithm : kAlgorithms) {
    if (equal_ignoring_case(name, algorithm_name(algorithm))) return algorithm;
  }
  return std::nullopt;
}

std::string_view algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kCrc32: return "CRC32";
    case Algorithm::kCrc32c: return "CRC32C";
    case Algorithm::kCrc64Nvme: return "CRC64NVME";
    case Algorithm::kSha1: return "SHA1";
    case Algorithm::kSha256: return "SHA256";
  }
  return {};
}

std::string header_name(Algorithm algorithm) {
  return "x-amz-checksum-" + lower(algorithm_name(algorithm));
}

std::string element_name(Algorithm algorithm) {
  return "Checksum" + std::string(algorithm_name(algorithm));
}

size_t sum_size_bytes(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kCrc32:
    case Algorithm::kCrc32c: return 4;
    case Algorithm::kCrc64Nvme: return 8;
    case Algorithm::kSha1: return 20;
    case Algorithm::kSha256: return 32;
  }
  return 0;
}

bool is_linear(Algorithm algorithm) {
  return algorithm != Algorithm::kSha1 && algorithm != Algorithm::kSha256;
}

std::string sum_of(Algorithm algorithm, std::string_view bytes) {
  switch (algorithm) {
    case Algorithm::kCrc32: return big_endian(crc32(bytes));
    case Algorithm::kCrc32c: return big_endian(crc32c(bytes));
    case Algorithm::kCrc64Nvme: return big_endian(crc64nvme(bytes));
    case Algorithm::kSha1: return sha1(bytes);
    case Algorithm::kSha256: return sha256(bytes);
  }
  return {};
}

std::string sum_of(Algorithm algorithm, const Body& body) {
  switch (algorithm) {
    case Algorithm::kCrc32: return big_endian(over<uint32_t>(body, &crc32));
    case Algorithm::kCrc32c: return big_endian(over<uint32_t>(body, &crc32c));
    case Algorithm::kCrc64Nvme: return big_endian(over<uint64_t>(body, &crc64nvme));
    case Algorithm::kSha1:
    case Algorithm::kSha256: break;
  }
  std::string scratch;
  return sum_of(algorithm, in_one_piece(body, scratch));
}

std::string md5_of(const Body& body) {
  std::string scratch;
  return md5(in_one_piece(body, scratch));
}

std::string joined(Algorithm algorithm, std::string_view sum_a, std::string_view sum_b,
                   uint64_t b_size_bytes) {
  switch (algorithm) {
    case Algorithm::kCrc32:
      return big_endian(crc32_joined(from_big_endian<uint32_t>(sum_a),
                                     from_big_endian<uint32_t>(sum_b), b_size_bytes));
    case Algorithm::kCrc32c:
      return big_endian(crc32c_joined(from_big_endian<uint32_t>(sum_a),
                                      from_big_endian<uint32_t>(sum_b), b_size_bytes));
    case Algorithm::kCrc64Nvme:
      return big_endian(crc64nvme_joined(from_big_endian<uint64_t>(sum_a),
                                         from_big_endian<uint64_t>(sum_b), b_size_bytes));
    case Algorithm::kSha1:
    case Algorithm::kSha256: break;
  }
  return {};
}

Given given_checksum(const Request& request, const Route& route) {
  Given given;
  constexpr std::string_view kPrefix = "x-amz-checksum-";
  for (const auto& [name, value] : request.headers) {
    const std::string small = lower(name);
    if (!small.starts_with(kPrefix)) continue;
    const std::string_view kind = std::string_view(small).substr(kPrefix.size());
    if (kind == "mode" || kind == "type" || kind == "algorithm") continue;
    const std::optional<Algorithm> algorithm = algorithm_from(kind);
    if (!algorithm) {
      given.wrong = error(route, 501, "NotImplemented",
                          "This server does not know the checksum " + std::string(kind) + ".");
      return given;
    }
    if (given.algorithm) {
      given.wrong = error(route, 400, "InvalidRequest",
                          "Expecting a single x-amz-checksum- header. Multiple checksum Types are "
                          "not allowed.");
      return given;
    }
    given.algorithm = algorithm;
    given.text = value;
  }
  const std::string_view named = request.header("x-amz-sdk-checksum-algorithm");
  if (!named.empty() && !given.algorithm) {
    given.wrong = error(route, 400, "InvalidRequest",
                        "x-amz-sdk-checksum-algorithm specified, but no corresponding "
                        "x-amz-checksum-* or x-amz-trailer headers were found.");
  } else if (!named.empty() && algorithm_from(named) != given.algorithm) {
    given.wrong = error(route, 400, "InvalidRequest",
                        "Value for x-amz-sdk-checksum-algorithm header is invalid.");
  }
  return given;
}

std::optional<Response> check_body(const Request& request, const Route& route, const Given& given,
                                   std::string_view bytes, std::string& sum) {
  const std::string_view md5_header = request.header("content-md5");
  if (!md5_header.empty()) {
    const std::optional<std::string> wanted = base64_decode(md5_header);
    if (!wanted || wanted->size() != 16) {
      return error(route, 400, "InvalidDigest", "The Content-MD5 you specified was invalid.");
    }
    const std::string found = md5(bytes);
    if (*wanted != found) {
      return error(route, 400, "BadDigest",
                   "The Content-MD5 you specified did not match what we received.",
                   element("ExpectedDigest", md5_header) +
                       element("CalculatedDigest", base64_encode(found)));
    }
  }
  if (!given.algorithm) return std::nullopt;
  const std::optional<std::string> wanted = base64_decode(given.text);
  if (!wanted || wanted->size() != sum_size_bytes(*given.algorithm)) {
    return error(route, 400, "InvalidRequest",
                 "Value for " + header_name(*given.algorithm) + " header is invalid.");
  }
  sum = sum_of(*given.algorithm, bytes);
  if (*wanted != sum) {
    return error(route, 400, "BadDigest",
                 "The " + std::string(algorithm_name(*given.algorithm)) +
                     " you specified did not match the calculated checksum.");
  }
  return std::nullopt;
}

std::string_view checksum_type(const S3Facts& facts) {
  return facts.is_composite ? "COMPOSITE" : "FULL_OBJECT";
}

S3Facts facts_of(const Object& object) {
  S3Facts facts = object.s3;
  if (object.is_made) {
    facts.checksum_algorithm = algorithm_name(Algorithm::kCrc32c);
    facts.checksum = base64_encode(big_endian(object.crc));
  }
  return facts;
}

void set_checksum_headers(Response& response, const Object& object) {
  const S3Facts facts = facts_of(object);
  const std::optional<Algorithm> algorithm = algorithm_from(facts.checksum_algorithm);
  if (!algorithm || facts.checksum.empty()) return;
  response.set(header_name(*algorithm), facts.checksum);
  response.set("x-amz-checksum-type", std::string(checksum_type(facts)));
}

std::string checksum_elements(const Object& object) {
  const S3Facts facts = facts_of(object);
  const std::optional<Algorithm> algorithm = algorithm_from(facts.checksum_algorithm);
  if (!algorithm || facts.checksum.empty()) return {};
  return element(element_name(*algorithm), facts.checksum) +
         element("ChecksumType", checksum_type(facts));
}

void set_full_checksum(S3Facts& facts, const Body& body) {
  const std::optional<Algorithm> algorithm = algorithm_from(facts.checksum_algorithm);
  facts.is_composite = false;
  facts.checksum = algorithm ? base64_encode(sum_of(*algorithm, body)) : "";
}

}  // namespace faultserver::s3
