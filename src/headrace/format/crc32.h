// CRC-32, the checksum that zip stores for each record, and S3 for objects that ask for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace {

// A value: Crc32() is the sum of nothing. Thread: any (immutable).
class Crc32 {
 public:
  constexpr Crc32() = default;
  constexpr explicit Crc32(uint32_t value) : value_(value) {}

  constexpr uint32_t value() const { return value_; }
  // The checksum of the bytes covered so far followed by `bytes`.
  Crc32 extended(std::span<const std::byte> bytes) const;
  // The same for the `next_size_bytes` bytes that `next` covers; reads no data.
  Crc32 joined(Crc32 next, uint64_t next_size_bytes) const;
  // The sum of the bytes before the `last_size_bytes` bytes that `last` covers, if this one covers
  // both.
  Crc32 without_last(Crc32 last, uint64_t last_size_bytes) const;
  constexpr bool operator==(const Crc32&) const = default;

 private:
  uint32_t value_ = 0;
};

}  // namespace headrace
