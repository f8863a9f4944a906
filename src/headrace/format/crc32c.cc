#include "headrace/format/crc32c.h"

#include <algorithm>
#include <array>

#include <isa-l/crc.h>

#include "headrace/format/base64.h"

namespace headrace {

Crc32c Crc32c::extended(std::span<const std::byte> bytes) const {
  // The library takes an int for the length, and leaves both inversions to its caller.
  constexpr size_t kMaxPieceBytes = size_t{1} << 30;
  uint32_t state = ~value_;
  while (!bytes.empty()) {
    const size_t piece_bytes = std::min(bytes.size(), kMaxPieceBytes);
    // It reads only; its declaration is older than const.
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(piece_bytes), state);
    bytes = bytes.subspan(piece_bytes);
  }
  return Crc32c(~state);
}

std::string Crc32c::to_base64() const {
  const std::array<std::byte, 4> bytes = {std::byte(value_ >> 24), std::byte(value_ >> 16),
                                          std::byte(value_ >> 8), std::byte(value_)};
  return base64_encode(bytes);
}

Result<Crc32c> Crc32c::from_base64(std::string_view text) {
  // Every read comes by here with its x-goog-hash: no allocation.
  std::array<std::byte, 6> bytes;
  const Result<size_t> size = base64_decode(text, bytes);
  if (!size) return std::unexpected(size.error());
  if (*size != 4) return invalid_argument("a CRC32C has 4 bytes, not ", *size);
  uint32_t value = 0;
  for (const std::byte byte : std::span(bytes).first(4)) {
    value = value << 8 | std::to_integer<uint32_t>(byte);
  }
  return Crc32c(value);
}

}  // namespace headrace
