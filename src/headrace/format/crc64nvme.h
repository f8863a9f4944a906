// CRC-64/NVME, which S3 computes for every object that came without a checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace headrace {

// A value: Crc64Nvme() is the sum of nothing. Thread: any (immutable).
class Crc64Nvme {
 public:
  // How to compute it: by tables, by carry-less multiplication of 16 bytes (PCLMULQDQ), or of 64
  // (VPCLMULQDQ with AVX-512).
  enum class Way : uint8_t { kTables, kMultiply, kMultiplyWide };

  constexpr Crc64Nvme() = default;
  constexpr explicit Crc64Nvme(uint64_t value) : value_(value) {}

  constexpr uint64_t value() const { return value_; }
  // The checksum of the bytes covered so far followed by `bytes`; in the fastest way that this
  // processor has.
  Crc64Nvme extended(std::span<const std::byte> bytes) const;
  // The same for the `next_size_bytes` bytes that `next` covers; reads no data.
  Crc64Nvme joined(Crc64Nvme next, uint64_t next_size_bytes) const;
  // The sum of the bytes before the `last_size_bytes` bytes that `last` covers, if this one covers
  // both.
  Crc64Nvme without_last(Crc64Nvme last, uint64_t last_size_bytes) const;
  constexpr bool operator==(const Crc64Nvme&) const = default;

  // In a way of the caller's, for tests and benchmarks; none if this processor lacks it.
  std::optional<Crc64Nvme> extended(std::span<const std::byte> bytes, Way way) const;

 private:
  uint64_t value_ = 0;
};

}  // namespace headrace
