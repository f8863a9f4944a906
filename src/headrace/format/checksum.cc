#include "headrace/format/checksum.h"

#include "headrace/base/ascii.h"
#include "headrace/format/base64.h"

namespace headrace {

std::string to_base64(const Checksum& sum) { return base64_encode(sum.bytes()); }

std::string to_hex(const Checksum& sum) {
  std::string hex;
  hex.reserve(2 * sum.bytes().size());
  for (const std::byte byte : sum.bytes()) {
    hex += kHexDigits[std::to_integer<size_t>(byte) >> 4];
    hex += kHexDigits[std::to_integer<size_t>(byte) & 15];
  }
  return hex;
}

Result<Checksum> checksum_from_base64(ChecksumKind kind, std::string_view text) {
  // Every verified read comes by here: no allocation.
  std::array<std::byte, Checksum::kMostBytes + 2> bytes;
  const Result<size_t> size = base64_decode(text, bytes);
  if (!size) return std::unexpected(size.error());
  if (*size != checksum_size(kind)) {
    return invalid_argument("a ", to_string(kind), " has ", checksum_size(kind), " bytes, not ",
                            *size);
  }
  return Checksum(kind, std::span(bytes).first(*size));
}

Result<Checksum> checksum_from_hex(ChecksumKind kind, std::string_view text) {
  std::array<std::byte, Checksum::kMostBytes> bytes;
  const size_t size = checksum_size(kind);
  if (text.size() != 2 * size) {
    return invalid_argument("a ", to_string(kind), " has ", 2 * size, " hexadecimal digits, not ",
                            text.size());
  }
  for (size_t i = 0; i < size; ++i) {
    const int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);
    if (high < 0 || low < 0) {
      return invalid_argument("a ", to_string(kind),
                              " with a character that is no hexadecimal digit");
    }
    bytes[i] = static_cast<std::byte>(high << 4 | low);
  }
  return Checksum(kind, std::span(bytes).first(size));
}

}  // namespace headrace
