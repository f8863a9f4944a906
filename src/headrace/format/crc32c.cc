#include "headrace/format/crc32c.h"

#include <algorithm>
#include <array>

#include <isa-l/crc.h>

#include "headrace/format/base64.h"

namespace headrace {
namespace {

// Polynomials over GF(2) modulo Castagnoli's, in the reflected form that the CRC itself has: the
// highest bit is the coefficient of x^0.
constexpr uint32_t kPolynomial = 0x82F63B78;
constexpr uint32_t kOne = uint32_t{1} << 31;

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = (b & 1) ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

// [k] is x^(8 * 2^k): what 2^k further bytes multiply a sum by.
constexpr std::array<uint32_t, 64> kShifts = [] {
  std::array<uint32_t, 64> shifts{};
  uint32_t power = kOne >> 8;  // x^8
  for (uint32_t& shift : shifts) {
    shift = power;
    power = multiply(power, power);
  }
  return shifts;
}();

}  // namespace

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

Crc32c Crc32c::joined(Crc32c next, uint64_t next_size_bytes) const {
  uint32_t moved = value_;
  for (size_t k = 0; next_size_bytes != 0; ++k, next_size_bytes >>= 1) {
    if (next_size_bytes & 1) moved = multiply(kShifts[k], moved);
  }
  return Crc32c(moved ^ next.value_);
}

Crc32c Crc32c::without_last(Crc32c last, uint64_t last_size_bytes) const {
  // The polynomial is (x + 1) times an irreducible one of degree 31, so x^(2^31 - 1) is 1: going
  // back by some bytes is going on by what is missing to a multiple of that.
  constexpr uint64_t kOrder = (uint64_t{1} << 31) - 1;
  return Crc32c(value_ ^ last.value_).joined(Crc32c(), kOrder - last_size_bytes % kOrder);
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
