// CRC-32, the checksum that zip stores for each record, and S3 for objects that ask for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/format/crc_algebra.h"

namespace headrace {

class Crc32 : public crc::Value<Crc32, uint32_t, 0xEDB88320> {
 public:
  using Value::Value;
  // The sum of what this one covers followed by `bytes`.
  Crc32 extended(std::span<const std::byte> bytes) const;
};

}  // namespace headrace
