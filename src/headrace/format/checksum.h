// Checksums of several kinds, as stores keep them and an index remembers them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/format/crc32c.h"

namespace headrace {

// The numbers are stored in index images, so a number that is taken never changes its meaning.
enum class ChecksumKind : uint8_t {
  kNone = 0,
  kCrc32 = 1,
  kCrc32c = 2,
  kCrc64Nvme = 3,
  kSha1 = 4,
  kSha256 = 5,
  kMd5 = 6,
  kXxh64 = 7,
};
inline constexpr uint8_t kChecksumKindCount = 8;

// How many bytes a value of this kind has.
constexpr size_t checksum_size(ChecksumKind kind) {
  switch (kind) {
    case ChecksumKind::kNone: return 0;
    case ChecksumKind::kCrc32:
    case ChecksumKind::kCrc32c: return 4;
    case ChecksumKind::kCrc64Nvme:
    case ChecksumKind::kXxh64: return 8;
    case ChecksumKind::kMd5: return 16;
    case ChecksumKind::kSha1: return 20;
    case ChecksumKind::kSha256: return 32;
  }
  return 0;
}

constexpr std::string_view to_string(ChecksumKind kind) {
  switch (kind) {
    case ChecksumKind::kNone: return "none";
    case ChecksumKind::kCrc32: return "crc32";
    case ChecksumKind::kCrc32c: return "crc32c";
    case ChecksumKind::kCrc64Nvme: return "crc64nvme";
    case ChecksumKind::kSha1: return "sha1";
    case ChecksumKind::kSha256: return "sha256";
    case ChecksumKind::kMd5: return "md5";
    case ChecksumKind::kXxh64: return "xxh64";
  }
  return "none";
}

// For messages.
constexpr std::string_view label(ChecksumKind kind) {
  switch (kind) {
    case ChecksumKind::kNone: return "no checksum";
    case ChecksumKind::kCrc32: return "CRC32";
    case ChecksumKind::kCrc32c: return "CRC32C";
    case ChecksumKind::kCrc64Nvme: return "CRC64NVME";
    case ChecksumKind::kSha1: return "SHA-1";
    case ChecksumKind::kSha256: return "SHA-256";
    case ChecksumKind::kMd5: return "MD5";
    case ChecksumKind::kXxh64: return "XXH64";
  }
  return "";
}

constexpr std::optional<ChecksumKind> checksum_kind(std::string_view text) {
  for (uint8_t i = 1; i < kChecksumKindCount; ++i) {
    if (to_string(static_cast<ChecksumKind>(i)) == text) return static_cast<ChecksumKind>(i);
  }
  return {};
}

// A checksum of one kind: its bytes, most significant first, as HTTP headers encode them in base64.
// Thread: any (immutable).
class Checksum {
 public:
  static constexpr size_t kMostBytes = 32;

  constexpr Checksum() = default;
  // `bytes` must have the size of the kind.
  Checksum(ChecksumKind kind, std::span<const std::byte> bytes) : kind_(kind) {
    std::ranges::copy(bytes.first(std::min(bytes.size(), checksum_size(kind))), bytes_.begin());
  }
  // Implicit: a CRC-32C is a checksum, and none is one of no kind.
  Checksum(Crc32c sum) : Checksum(ChecksumKind::kCrc32c, uint64_t{sum.value()}) {}
  Checksum(const std::optional<Crc32c>& sum) : Checksum(sum ? Checksum(*sum) : Checksum()) {}
  // For kinds of up to eight bytes.
  Checksum(ChecksumKind kind, uint64_t number) : kind_(kind) {
    for (size_t i = checksum_size(kind); i-- > 0; number >>= 8) {
      bytes_[i] = static_cast<std::byte>(number);
    }
  }

  ChecksumKind kind() const { return kind_; }
  bool empty() const { return kind_ == ChecksumKind::kNone; }
  std::span<const std::byte> bytes() const { return std::span(bytes_).first(checksum_size(kind_)); }
  bool is_number() const { return checksum_size(kind_) <= sizeof(uint64_t); }
  uint64_t number() const {
    uint64_t out = 0;
    for (const std::byte each : bytes()) out = out << 8 | static_cast<uint64_t>(each);
    return out;
  }
  std::optional<Crc32c> crc32c() const {
    if (kind_ != ChecksumKind::kCrc32c) return {};
    return Crc32c(static_cast<uint32_t>(number()));
  }
  bool operator==(const Checksum& other) const {
    return kind_ == other.kind_ && std::memcmp(bytes_.data(), other.bytes_.data(), kMostBytes) == 0;
  }

 private:
  ChecksumKind kind_ = ChecksumKind::kNone;
  std::array<std::byte, kMostBytes> bytes_{};
};

// The bytes in base64, as HTTP headers have them, and in lower-case hexadecimal, as ETags do.
std::string to_base64(const Checksum& sum);
std::string to_hex(const Checksum& sum);
// Errors: kInvalidArgument unless `text` is exactly a sum of that kind; capitals are fine in
// hexadecimal.
Result<Checksum> checksum_from_base64(ChecksumKind kind, std::string_view text);
Result<Checksum> checksum_from_hex(ChecksumKind kind, std::string_view text);

}  // namespace headrace
