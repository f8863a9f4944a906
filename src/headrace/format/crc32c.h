// CRC-32C (Castagnoli), the checksum that Google Cloud Storage and S3 keep for an object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/format/crc_algebra.h"

namespace headrace {

class Crc32c : public crc::Value<Crc32c, uint32_t, 0x82F63B78> {
 public:
  using Value::Value;
  // The sum of what this one covers followed by `bytes`.
  Crc32c extended(std::span<const std::byte> bytes) const;

  // Four bytes, most significant first, in base64, as in x-goog-hash and JSON listings.
  std::string to_base64() const;
  // Errors: kInvalidArgument unless `text` is exactly that.
  static Result<Crc32c> from_base64(std::string_view text);
};

}  // namespace headrace
