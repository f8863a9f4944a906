// CRC-64/NVME, which S3 computes for every object that came without a checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "headrace/format/crc_algebra.h"

namespace headrace {

class Crc64Nvme : public crc::Value<Crc64Nvme, uint64_t, 0x9A6C9329AC4BC9B5> {
 public:
  // How to compute it: by tables, by carry-less multiplication of 16 bytes (PCLMULQDQ), or of 64
  // (VPCLMULQDQ with AVX-512).
  enum class Way : uint8_t { kTables, kMultiply, kMultiplyWide };

  using Value::Value;
  // The sum of what this one covers followed by `bytes`, in the fastest way that this processor
  // has.
  Crc64Nvme extended(std::span<const std::byte> bytes) const;
  // In a way of the caller's, for tests and benchmarks; none if this processor lacks it.
  std::optional<Crc64Nvme> extended(std::span<const std::byte> bytes, Way way) const;
};

}  // namespace headrace
