// Zip's structures: signatures, sizes, and little-endian numbers.
// The names are those of PKWARE's APPNOTE,
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace headrace::zip {

inline constexpr uint32_t kLocalHeader = 0x04034B50, kDescriptor = 0x08074B50;
inline constexpr uint32_t kDirectoryHeader = 0x02014B50, kEnd = 0x06054B50;
inline constexpr uint32_t kEnd64 = 0x06064B50, kEnd64Locator = 0x07064B50;

inline constexpr size_t kLocalHeaderBytes = 30, kDirectoryHeaderBytes = 46, kEndBytes = 22;
inline constexpr size_t kEnd64Bytes = 56, kEnd64LocatorBytes = 20;
inline constexpr size_t kExtraHeaderBytes = 4;
// The checksums and both sizes follow the content, in 32 or 64 bits.
inline constexpr size_t kDescriptorBytes = 16, kDescriptor64Bytes = 24;

inline constexpr uint16_t kEncrypted = 1 << 0, kHasDescriptor = 1 << 3, kUtf8Name = 1 << 11;
inline constexpr uint16_t kStored = 0;
inline constexpr uint16_t kVersion64 = 45;  // the first version with 64-bit fields

// Extra fields: 64-bit sizes; torch's padding; ours, with the CRC-32C of the content.
inline constexpr uint16_t kExtra64 = 0x0001, kExtraPadding = 0x4246 /* "FB" */;
inline constexpr uint16_t kExtraCrc32c = 0x5248 /* "HR" */;

// A field with this value means that the number is stored elsewhere, in 64 bits.
inline constexpr uint32_t kElsewhere32 = UINT32_MAX;
inline constexpr uint16_t kElsewhere16 = UINT16_MAX;

// torch aligns the content of a record so that it can be memory-mapped.
inline constexpr uint64_t kAlignmentBytes = 64;

// The comment of our files: this, and the CRC-32C, as eight hexadecimal digits, of everything from
// the first byte of the directory to here. torch writes none.
inline constexpr std::string_view kComment = "headrace 1: CRC-32C of the directory ";
inline constexpr size_t kCommentDigits = 8;

inline bool needs_64_bits(uint64_t value) { return value >= kElsewhere32; }

template <std::unsigned_integral Number>
void append(std::string& out, Number value) {
  for (size_t i = 0; i < sizeof(Number); ++i) {
    out += static_cast<char>(static_cast<uint8_t>(value >> (8 * i)));
  }
}

// `bytes` has them.
template <std::unsigned_integral Number>
Number number_at(std::span<const std::byte> bytes, size_t at) {
  Number value = 0;
  for (size_t i = 0; i < sizeof(Number); ++i) {
    value = static_cast<Number>(value | std::to_integer<Number>(bytes[at + i]) << (8 * i));
  }
  return value;
}

}  // namespace headrace::zip
