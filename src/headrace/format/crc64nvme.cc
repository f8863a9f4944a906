#include "headrace/format/crc64nvme.h"

#include <array>
#include <bit>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace headrace {
namespace {

constexpr uint64_t kPolynomial = Crc64Nvme::kPolynomial;

// [k][b] is what byte b adds to a sum that k more bytes follow.
using Tables = std::array<std::array<uint64_t, 256>, 8>;
constexpr Tables kTables = [] {
  Tables tables{};
  for (uint64_t byte = 0; byte < 256; ++byte) {
    uint64_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum & 1) ? (sum >> 1) ^ kPolynomial : sum >> 1;
    tables[0][byte] = sum;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint64_t sum = tables[k - 1][byte];
      tables[k][byte] = (sum >> 8) ^ tables[0][sum & 0xFF];
    }
  }
  return tables;
}();

// `state` here and below is the sum with all bits inverted, as CRCs are computed.
uint64_t by_tables(uint64_t state, std::span<const std::byte> bytes) {
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof(word));
    if constexpr (std::endian::native == std::endian::big) word = std::byteswap(word);
    word ^= state;
    state = 0;
    for (size_t k = 0; k < 8; ++k) state ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (const std::byte byte : bytes) {
    state = (state >> 8) ^ kTables[0][(state ^ std::to_integer<uint64_t>(byte)) & 0xFF];
  }
  return state;
}

#ifdef __x86_64__

// Folding. 128 bits of the message, loaded as they lie in memory, are a polynomial whose highest
// coefficient is the lowest bit. D bits further on, it contributes itself times x^D, modulo the
// polynomial of the CRC: its first half times x^(D + 64) plus its second half times x^D, two
// products that have 128 bits again. A carry-less product of two reflected numbers is that of the
// polynomials times x, so the constants have one factor of x less.
struct Fold {
  uint64_t first, second;
};
constexpr Fold fold_by(uint64_t bits) {
  return {crc::power_of_x(bits + 63, kPolynomial), crc::power_of_x(bits - 1, kPolynomial)};
}
constexpr Fold kBy128 = fold_by(128), kBy512 = fold_by(512), kBy1024 = fold_by(1024),
               kBy2048 = fold_by(2048);

#define HEADRACE_MULTIPLY [[gnu::target("pclmul,sse4.1")]]
#define HEADRACE_MULTIPLY_WIDE [[gnu::target("pclmul,sse4.1,avx512f,vpclmulqdq")]]

HEADRACE_MULTIPLY inline __m128i load(const std::byte* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}
HEADRACE_MULTIPLY inline __m128i constants(Fold by) {
  return _mm_set_epi64x(static_cast<int64_t>(by.second), static_cast<int64_t>(by.first));
}
HEADRACE_MULTIPLY inline __m128i fold(__m128i x, __m128i by, __m128i onto) {
  return _mm_xor_si128(
      onto, _mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11)));
}

// `x` stands for the message so far, with `bytes` behind it.
HEADRACE_MULTIPLY inline uint64_t finish(__m128i x, std::span<const std::byte> bytes) {
  const __m128i by = constants(kBy128);
  for (; bytes.size() >= 16; bytes = bytes.subspan(16)) x = fold(x, by, load(bytes.data()));
  std::array<std::byte, 16> last;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(last.data()), x);
  return by_tables(by_tables(0, last), bytes);
}

// At least 128 bytes.
HEADRACE_MULTIPLY uint64_t by_multiplying(uint64_t state, std::span<const std::byte> bytes) {
  __m128i x[8];
  for (size_t i = 0; i < 8; ++i) x[i] = load(bytes.data() + 16 * i);
  x[0] = _mm_xor_si128(x[0], _mm_cvtsi64_si128(static_cast<int64_t>(state)));
  bytes = bytes.subspan(128);
  const __m128i by = constants(kBy1024);
  for (; bytes.size() >= 128; bytes = bytes.subspan(128)) {
    for (size_t i = 0; i < 8; ++i) x[i] = fold(x[i], by, load(bytes.data() + 16 * i));
  }
  const __m128i next = constants(kBy128);
  for (size_t i = 1; i < 8; ++i) x[i] = fold(x[i - 1], next, x[i]);
  return finish(x[7], bytes);
}

HEADRACE_MULTIPLY_WIDE inline __m512i load_wide(const std::byte* data) {
  return _mm512_loadu_si512(data);
}
HEADRACE_MULTIPLY_WIDE inline __m512i constants_wide(Fold by) {
  return _mm512_broadcast_i32x4(constants(by));
}
HEADRACE_MULTIPLY_WIDE inline __m512i fold_wide(__m512i x, __m512i by, __m512i onto) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(onto, _mm512_clmulepi64_epi128(x, by, 0x00),
                                   _mm512_clmulepi64_epi128(x, by, 0x11), kXorOfThree);
}

// At least 256 bytes.
HEADRACE_MULTIPLY_WIDE uint64_t by_multiplying_wide(uint64_t state,
                                                    std::span<const std::byte> bytes) {
  __m512i x[4];
  for (size_t i = 0; i < 4; ++i) x[i] = load_wide(bytes.data() + 64 * i);
  x[0] = _mm512_xor_si512(x[0],
                          _mm512_zextsi128_si512(_mm_cvtsi64_si128(static_cast<int64_t>(state))));
  bytes = bytes.subspan(256);
  const __m512i by = constants_wide(kBy2048);
  for (; bytes.size() >= 256; bytes = bytes.subspan(256)) {
    for (size_t i = 0; i < 4; ++i) x[i] = fold_wide(x[i], by, load_wide(bytes.data() + 64 * i));
  }
  const __m512i next = constants_wide(kBy512);
  for (size_t i = 1; i < 4; ++i) x[i] = fold_wide(x[i - 1], next, x[i]);
  for (; bytes.size() >= 64; bytes = bytes.subspan(64)) {
    x[3] = fold_wide(x[3], next, load_wide(bytes.data()));
  }
  const __m128i by_128 = constants(kBy128);
  __m128i whole = _mm512_castsi512_si128(x[3]);
  whole = fold(whole, by_128, _mm512_extracti32x4_epi32(x[3], 1));
  whole = fold(whole, by_128, _mm512_extracti32x4_epi32(x[3], 2));
  whole = fold(whole, by_128, _mm512_extracti32x4_epi32(x[3], 3));
  return finish(whole, bytes);
}

bool can_multiply() { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }
bool can_multiply_wide() {
  return can_multiply() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("vpclmulqdq");
}

#endif

Crc64Nvme::Way fastest_way() {
#ifdef __x86_64__
  if (can_multiply_wide()) return Crc64Nvme::Way::kMultiplyWide;
  if (can_multiply()) return Crc64Nvme::Way::kMultiply;
#endif
  return Crc64Nvme::Way::kTables;
}

// `way` is one that the processor has. What is too short for it is left to the next one.
uint64_t sum(uint64_t state, std::span<const std::byte> bytes, Crc64Nvme::Way way) {
#ifdef __x86_64__
  if (way == Crc64Nvme::Way::kMultiplyWide && bytes.size() >= 256) {
    return by_multiplying_wide(state, bytes);
  }
  if (way != Crc64Nvme::Way::kTables && bytes.size() >= 128) return by_multiplying(state, bytes);
#else
  static_cast<void>(way);
#endif
  return by_tables(state, bytes);
}

}  // namespace

Crc64Nvme Crc64Nvme::extended(std::span<const std::byte> bytes) const {
  static const Way fastest = fastest_way();
  return Crc64Nvme(~sum(~value_, bytes, fastest));
}

std::optional<Crc64Nvme> Crc64Nvme::extended(std::span<const std::byte> bytes, Way way) const {
  if (way > fastest_way()) return std::nullopt;
  return Crc64Nvme(~sum(~value_, bytes, way));
}

}  // namespace headrace
