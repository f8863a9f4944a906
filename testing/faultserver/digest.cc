#include "digest.h"

#include <openssl/evp.h>
#include <zlib.h>

#include <array>
#include <cstring>

#include "text.h"

namespace faultserver {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78u;  // Castagnoli, bit-reflected.

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) ? (crc >> 1) ^ kPolynomial : crc >> 1;
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

uint32_t crc_by_table(std::string_view bytes, uint32_t crc) {
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 255];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc_by_instruction(std::string_view bytes,
                                                              uint32_t crc) {
  uint64_t state = crc;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    state = __builtin_ia32_crc32di(state, word);
  }
  auto small = static_cast<uint32_t>(state);
  for (; left > 0; --left, ++at) small = __builtin_ia32_crc32qi(small, static_cast<uint8_t>(*at));
  return small;
}
#endif

// a * b modulo the polynomial; `a` is not 0.
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 1u << 31;; bit >>= 1) {
    if (a & bit) {
      product ^= b;
      if ((a & (bit - 1)) == 0) return product;
    }
    b = (b & 1) ? (b >> 1) ^ kPolynomial : b >> 1;
  }
}

// x^(8 * size_bytes) modulo the polynomial: what appending that many zero bytes multiplies by.
uint32_t shift_operator(uint64_t size_bytes) {
  uint32_t power = 1u << 30;                                   // x^1
  for (int i = 0; i < 3; ++i) power = multiply(power, power);  // x^8
  uint32_t result = 1u << 31;                                  // x^0
  for (; size_bytes != 0; size_bytes >>= 1) {
    if (size_bytes & 1) result = multiply(power, result);
    power = multiply(power, power);
  }
  return result;
}

}  // namespace

uint32_t crc32c(std::string_view bytes, uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~crc_by_instruction(bytes, ~crc);
#endif
  return ~crc_by_table(bytes, ~crc);
}

uint32_t crc32c_joined(uint32_t crc_a, uint32_t crc_b, uint64_t b_size_bytes) {
  // A list of objects of one size asks for the same operator again and again.
  thread_local uint64_t last_size_bytes = 0;
  thread_local uint32_t last_operator = 1u << 31;
  if (b_size_bytes != last_size_bytes) {
    last_size_bytes = b_size_bytes;
    last_operator = shift_operator(b_size_bytes);
  }
  return multiply(last_operator, crc_a) ^ crc_b;
}

std::string crc32c_text(uint32_t crc) {
  const std::string bytes = {static_cast<char>(crc >> 24), static_cast<char>(crc >> 16),
                             static_cast<char>(crc >> 8), static_cast<char>(crc)};
  return base64_encode(bytes);
}

std::string md5(std::string_view bytes) {
  std::string sum(16, '\0');
  EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(sum.data()), nullptr,
             EVP_md5(), nullptr);
  return sum;
}

std::optional<std::string> gunzip(std::string_view bytes) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return std::nullopt;
  std::string out;
  std::array<char, 65536> piece;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  int state = Z_OK;
  while (state == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    state = inflate(&stream, Z_NO_FLUSH);
    out.append(piece.data(), piece.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (state != Z_STREAM_END) return std::nullopt;
  return out;
}

}  // namespace faultserver
