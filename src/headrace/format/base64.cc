#include "headrace/format/base64.h"

#include <array>
#include <cstdint>

namespace headrace {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNoDigit = 0xFF;

constexpr std::array<uint8_t, 256> kDigits = [] {
  std::array<uint8_t, 256> digits{};
  digits.fill(kNoDigit);
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    digits[static_cast<unsigned char>(kAlphabet[i])] = static_cast<uint8_t>(i);
  }
  return digits;
}();

}  // namespace

std::string base64_encode(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  while (!bytes.empty()) {
    const size_t taken = bytes.size() < 3 ? bytes.size() : 3;
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) {
      group = group << 8 | (i < taken ? std::to_integer<uint32_t>(bytes[i]) : 0);
    }
    for (size_t i = 0; i < 4; ++i) {
      out += i <= taken ? kAlphabet[(group >> (18 - 6 * i)) & 63] : '=';
    }
    bytes = bytes.subspan(taken);
  }
  return out;
}

Result<size_t> base64_decode(std::string_view text, std::span<std::byte> into) {
  if (text.size() % 4 != 0) {
    return invalid_argument("base64 of ", text.size(), " characters: not a multiple of 4");
  }
  size_t size = 0;
  while (!text.empty()) {
    // Padding can only stand at the very end; anywhere else '=' is no digit.
    size_t digit_count = 4;
    if (text.size() == 4 && text[3] == '=') digit_count = text[2] == '=' ? 2 : 3;
    uint32_t group = 0;
    for (size_t i = 0; i < 4; ++i) {
      const uint8_t digit = i < digit_count ? kDigits[static_cast<unsigned char>(text[i])] : 0;
      if (digit == kNoDigit)
        return invalid_argument("base64 with a character outside its alphabet");
      group = group << 6 | digit;
    }
    const size_t byte_count = digit_count - 1;
    if ((group & ((uint32_t{1} << (8 * (3 - byte_count))) - 1)) != 0) {
      return invalid_argument("base64 with bits set behind its last byte");
    }
    if (byte_count > into.size() - size) {
      return invalid_argument("base64 of more than ", into.size(), " bytes");
    }
    for (size_t i = 0; i < byte_count; ++i) {
      into[size++] = static_cast<std::byte>(group >> (16 - 8 * i));
    }
    text.remove_prefix(4);
  }
  return size;
}

}  // namespace headrace
