// Checksums and gzip.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace faultserver {

// CRC32C of `bytes`, continued from `crc` (0 at the start).
uint32_t crc32c(std::string_view bytes, uint32_t crc = 0);
// The CRC32C of A followed by B, from their own and the length of B.
uint32_t crc32c_joined(uint32_t crc_a, uint32_t crc_b, uint64_t b_size_bytes);
// As GCS writes it: base64 of the four bytes, big end first.
std::string crc32c_text(uint32_t crc);

// CRC32 of zip and PNG, and CRC64NVME; each continued from `crc` (0 at the start), and joined.
uint32_t crc32(std::string_view bytes, uint32_t crc = 0);
uint32_t crc32_joined(uint32_t crc_a, uint32_t crc_b, uint64_t b_size_bytes);
uint64_t crc64nvme(std::string_view bytes, uint64_t crc = 0);
uint64_t crc64nvme_joined(uint64_t crc_a, uint64_t crc_b, uint64_t b_size_bytes);

// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, the variant of 64 bits.
class Xxh64 {
 public:
  explicit Xxh64(uint64_t seed = 0);
  void update(std::string_view bytes);
  uint64_t sum() const;

 private:
  void take_stripe(const char* at);

  const uint64_t seed_;
  uint64_t lanes_[4];
  uint64_t size_bytes_ = 0;
  std::string waiting_;  // Less than a stripe.
};
uint64_t xxh64(std::string_view bytes, uint64_t seed = 0);

// Raw bytes: 16, 20, 32, 64.
std::string md5(std::string_view bytes);
std::string sha1(std::string_view bytes);
std::string sha256(std::string_view bytes);
std::string sha512(std::string_view bytes);
std::string hmac_sha256(std::string_view key, std::string_view bytes);

// Nothing when `bytes` is not a whole gzip stream.
std::optional<std::string> gunzip(std::string_view bytes);

}  // namespace faultserver
