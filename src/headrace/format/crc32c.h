// CRC-32C (Castagnoli), the checksum that Google Cloud Storage and S3 keep for an object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

// The CRC of some bytes, as stored and compared; Crc32c() is that of no bytes. A value. Pieces can
// be summed separately, in any order, and joined.
// Thread: any (immutable).
class Crc32c {
 public:
  constexpr Crc32c() = default;
  constexpr explicit Crc32c(uint32_t value) : value_(value) {}

  constexpr uint32_t value() const { return value_; }

  // The sum of what this one covers followed by `bytes`.
  Crc32c extended(std::span<const std::byte> bytes) const;

  // The sum of what this one covers followed by the `next_size_bytes` bytes that `next` covers.
  // Reads no data: about 35 ns per set bit of the length.
  Crc32c joined(Crc32c next, uint64_t next_size_bytes) const;

  // The reverse: if this one covers both, the sum of the `next_size_bytes` bytes that follow those
  // of `first`.
  Crc32c without_first(Crc32c first, uint64_t next_size_bytes) const {
    return first.joined(*this, next_size_bytes);
  }
  // And the sum of the bytes before the `last_size_bytes` bytes that `last` covers.
  Crc32c without_last(Crc32c last, uint64_t last_size_bytes) const;

  constexpr bool operator==(const Crc32c&) const = default;

  // Four bytes, most significant first, in base64, as in x-goog-hash and JSON listings.
  std::string to_base64() const;
  // Errors: kInvalidArgument unless `text` is exactly that.
  static Result<Crc32c> from_base64(std::string_view text);

 private:
  uint32_t value_ = 0;
};

}  // namespace headrace
