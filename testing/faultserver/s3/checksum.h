// The checksums that S3 keeps with an object, and those that a request brings along.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "body.h"
#include "http.h"
#include "route.h"
#include "storage.h"

namespace faultserver::s3 {

enum class Algorithm { kCrc32, kCrc32c, kCrc64Nvme, kSha1, kSha256 };

// "CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256", in any case.
std::optional<Algorithm> algorithm_from(std::string_view name);
std::string_view algorithm_name(Algorithm algorithm);
// "x-amz-checksum-crc32" and so on.
std::string header_name(Algorithm algorithm);
// "ChecksumCRC32" and so on.
std::string element_name(Algorithm algorithm);
size_t sum_size_bytes(Algorithm algorithm);
// Whether the sum of a whole can be had from those of its parts; hashes only make composites.
bool is_linear(Algorithm algorithm);

// Raw bytes, big end first.
std::string sum_of(Algorithm algorithm, std::string_view bytes);
std::string sum_of(Algorithm algorithm, const Body& body);
std::string md5_of(const Body& body);
// Of A followed by B; only of linear ones.
std::string joined(Algorithm algorithm, std::string_view sum_a, std::string_view sum_b,
                   uint64_t b_size_bytes);

// The checksum that a request carries in a header or in the trailer of its body.
struct Given {
  std::optional<Algorithm> algorithm{};
  std::string text{};               // As it came: base64, perhaps with "-N".
  std::optional<Response> wrong{};  // Several, or one that is none.
};
Given given_checksum(const Request& request, const Route& route);

// Checks Content-MD5 and the given checksum against `bytes`; `sum` becomes the raw one of the given
// algorithm.
std::optional<Response> check_body(const Request& request, const Route& route, const Given& given,
                                   std::string_view bytes, std::string& sum);

// What the server keeps of an object; a made one has the CRC32C that it is made with.
S3Facts facts_of(const Object& object);
// The headers that tell an object's checksum; none if it has none.
void set_checksum_headers(Response& response, const Object& object);
// The same as elements of a result: <ChecksumCRC32>, <ChecksumType>.
std::string checksum_elements(const Object& object);
std::string_view checksum_type(const S3Facts& facts);

// Gives `facts` the sum of `body` by its algorithm, whatever it was before.
void set_full_checksum(S3Facts& facts, const Body& body);

}  // namespace faultserver::s3
