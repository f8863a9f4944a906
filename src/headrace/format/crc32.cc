#include "headrace/format/crc32.h"

#include <isa-l/crc.h>

#include "headrace/format/crc_algebra.h"

namespace headrace {
namespace {

constexpr uint32_t kCrc32Polynomial = 0xEDB88320;
constexpr crc::Shifts<uint32_t> kCrc32Shifts = crc::shifts(kCrc32Polynomial);
constexpr crc::Shifts<uint32_t> kCrc32ShiftsBack = crc::shifts_back(kCrc32Polynomial);

}  // namespace

Crc32 Crc32::extended(std::span<const std::byte> bytes) const {
  return Crc32(
      crc32_gzip_refl(value_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

Crc32 Crc32::joined(Crc32 next, uint64_t next_size_bytes) const {
  return Crc32(crc::joined(value_, next.value_, next_size_bytes, kCrc32Shifts, kCrc32Polynomial));
}

Crc32 Crc32::without_last(Crc32 last, uint64_t last_size_bytes) const {
  return Crc32(
      crc::without_last(value_, last.value_, last_size_bytes, kCrc32ShiftsBack, kCrc32Polynomial));
}

}  // namespace headrace
