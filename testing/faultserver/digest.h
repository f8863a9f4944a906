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

// 16 raw bytes.
std::string md5(std::string_view bytes);

// Nothing when `bytes` is not a whole gzip stream.
std::optional<std::string> gunzip(std::string_view bytes);

}  // namespace faultserver
