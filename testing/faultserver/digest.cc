#include "digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
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

// Polynomials modulo `polynomial`, bit-reflected: the highest bit of the word is x^0.
template <typename Word>
struct Field {
  Word polynomial;
  static constexpr Word kOne = Word{1} << (sizeof(Word) * 8 - 1);

  // `a` is not 0.
  constexpr Word multiply(Word a, Word b) const {
    Word product = 0;
    for (Word bit = kOne;; bit >>= 1) {
      if (a & bit) {
        product ^= b;
        if ((a & (bit - 1)) == 0) return product;
      }
      b = (b & 1) ? (b >> 1) ^ polynomial : b >> 1;
    }
  }

  // x^(8 * size_bytes): what appending that many zero bytes multiplies by.
  constexpr Word shift_operator(uint64_t size_bytes) const {
    Word power = kOne >> 1;                                      // x^1
    for (int i = 0; i < 3; ++i) power = multiply(power, power);  // x^8
    Word result = kOne;
    for (; size_bytes != 0; size_bytes >>= 1) {
      if (size_bytes & 1) result = multiply(power, result);
      power = multiply(power, power);
    }
    return result;
  }
};
constexpr Field<uint32_t> kCastagnoli{kPolynomial};
constexpr Field<uint64_t> kNvme{0x9a6c9329ac4bc9b5u};

// Eight bytes at a time: table i is what a byte does that has i bytes behind it.
using Crc64Tables = std::array<std::array<uint64_t, 256>, 8>;
Crc64Tables make_crc64_tables() {
  Crc64Tables tables{};
  for (uint64_t i = 0; i < 256; ++i) {
    uint64_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) ? (crc >> 1) ^ kNvme.polynomial : crc >> 1;
    tables[0][i] = crc;
  }
  for (size_t table = 1; table < tables.size(); ++table) {
    for (size_t i = 0; i < 256; ++i) {
      const uint64_t before = tables[table - 1][i];
      tables[table][i] = (before >> 8) ^ tables[0][before & 255];
    }
  }
  return tables;
}

std::string digest_of(const EVP_MD* kind, std::string_view bytes) {
  std::string sum(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(sum.data()), &size, kind,
             nullptr);
  sum.resize(size);
  return sum;
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
    last_operator = kCastagnoli.shift_operator(b_size_bytes);
  }
  return kCastagnoli.multiply(last_operator, crc_a) ^ crc_b;
}

std::string crc32c_text(uint32_t crc) {
  const std::string bytes = {static_cast<char>(crc >> 24), static_cast<char>(crc >> 16),
                             static_cast<char>(crc >> 8), static_cast<char>(crc)};
  return base64_encode(bytes);
}

uint32_t crc32(std::string_view bytes, uint32_t crc) {
  return static_cast<uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

uint32_t crc32_joined(uint32_t crc_a, uint32_t crc_b, uint64_t b_size_bytes) {
  return static_cast<uint32_t>(crc32_combine(crc_a, crc_b, static_cast<z_off_t>(b_size_bytes)));
}

uint64_t crc64nvme(std::string_view bytes, uint64_t crc) {
  static const Crc64Tables tables = make_crc64_tables();
  crc = ~crc;
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    word ^= crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= tables[7 - i][(word >> (8 * i)) & 255];
    bytes.remove_prefix(8);
  }
  for (const char c : bytes) {
    crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<uint8_t>(c)) & 255];
  }
  return ~crc;
}

uint64_t crc64nvme_joined(uint64_t crc_a, uint64_t crc_b, uint64_t b_size_bytes) {
  return kNvme.multiply(kNvme.shift_operator(b_size_bytes), crc_a) ^ crc_b;
}

std::string md5(std::string_view bytes) { return digest_of(EVP_md5(), bytes); }
std::string sha1(std::string_view bytes) { return digest_of(EVP_sha1(), bytes); }
std::string sha256(std::string_view bytes) { return digest_of(EVP_sha256(), bytes); }
std::string sha512(std::string_view bytes) { return digest_of(EVP_sha512(), bytes); }

namespace {

constexpr uint64_t kXxhPrimes[] = {0x9E3779B185EBCA87u, 0xC2B2AE3D27D4EB4Fu, 0x165667B19E3779F9u,
                                   0x85EBCA77C2B2AE63u, 0x27D4EB2F165667C5u};
constexpr size_t kXxhStripeBytes = 32;

uint64_t xxh_round(uint64_t lane, uint64_t input) {
  return std::rotl(lane + input * kXxhPrimes[1], 31) * kXxhPrimes[0];
}

template <typename Word>
Word read_little(const char* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

}  // namespace

Xxh64::Xxh64(uint64_t seed)
    : seed_(seed),
      lanes_{seed + kXxhPrimes[0] + kXxhPrimes[1], seed + kXxhPrimes[1], seed,
             seed - kXxhPrimes[0]} {}

void Xxh64::take_stripe(const char* at) {
  for (size_t i = 0; i < 4; ++i) {
    lanes_[i] = xxh_round(lanes_[i], read_little<uint64_t>(at + 8 * i));
  }
}

void Xxh64::update(std::string_view bytes) {
  size_bytes_ += bytes.size();
  if (!waiting_.empty()) {
    const size_t take = std::min(kXxhStripeBytes - waiting_.size(), bytes.size());
    waiting_ += bytes.substr(0, take);
    bytes.remove_prefix(take);
    if (waiting_.size() < kXxhStripeBytes) return;
    take_stripe(waiting_.data());
    waiting_.clear();
  }
  for (; bytes.size() >= kXxhStripeBytes; bytes.remove_prefix(kXxhStripeBytes)) {
    take_stripe(bytes.data());
  }
  waiting_ = bytes;
}

uint64_t Xxh64::sum() const {
  uint64_t sum = seed_ + kXxhPrimes[4];
  if (size_bytes_ >= kXxhStripeBytes) {
    sum = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
          std::rotl(lanes_[3], 18);
    for (const uint64_t lane : lanes_) {
      sum = (sum ^ xxh_round(0, lane)) * kXxhPrimes[0] + kXxhPrimes[3];
    }
  }
  sum += size_bytes_;
  std::string_view rest = waiting_;
  for (; rest.size() >= 8; rest.remove_prefix(8)) {
    sum ^= xxh_round(0, read_little<uint64_t>(rest.data()));
    sum = std::rotl(sum, 27) * kXxhPrimes[0] + kXxhPrimes[3];
  }
  if (rest.size() >= 4) {
    sum ^= uint64_t{read_little<uint32_t>(rest.data())} * kXxhPrimes[0];
    sum = std::rotl(sum, 23) * kXxhPrimes[1] + kXxhPrimes[2];
    rest.remove_prefix(4);
  }
  for (const char byte : rest) {
    sum = std::rotl(sum ^ (static_cast<uint8_t>(byte) * kXxhPrimes[4]), 11) * kXxhPrimes[0];
  }
  sum = (sum ^ (sum >> 33)) * kXxhPrimes[1];
  sum = (sum ^ (sum >> 29)) * kXxhPrimes[2];
  return sum ^ (sum >> 32);
}

uint64_t xxh64(std::string_view bytes, uint64_t seed) {
  Xxh64 state(seed);
  state.update(bytes);
  return state.sum();
}

std::string hmac_sha256(std::string_view key, std::string_view bytes) {
  std::string sum(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
       reinterpret_cast<unsigned char*>(sum.data()), &size);
  sum.resize(size);
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
