#include "headrace/format/xxh64.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <new>

// Compiled in, so that no library is needed at run time.
#define XXH_INLINE_ALL
#define XXH_NO_XXH3
#include <xxhash.h>

namespace headrace {
namespace {

XXH64_state_t& state_of(std::array<uint64_t, 11>& state) {
  return *reinterpret_cast<XXH64_state_t*>(state.data());
}
const XXH64_state_t& state_of(const std::array<uint64_t, 11>& state) {
  return *reinterpret_cast<const XXH64_state_t*>(state.data());
}

// ---- whole stripes at a time
//
// A stripe of 32 bytes takes eight multiplications, and a core has one multiplier: eight cycles.
// AMD's cores from Zen 4 on multiply all four lanes of a vector in as many cycles as one, and are
// done in six, which is the latency of one step after the other. Intel's take three times as long.

constexpr size_t kStripeBytes = 32;
constexpr size_t kWorthwhileBytes = 8 * kStripeBytes;

#ifdef __x86_64__

#define HEADRACE_VECTORS [[gnu::target("avx512f,avx512dq,avx512vl")]]

bool has_vectors() {
  static const bool has = __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}

HEADRACE_VECTORS void add_stripes(std::span<const std::byte> stripes, XXH64_hash_t (&lanes)[4]) {
  const __m256i prime1 = _mm256_set1_epi64x(static_cast<int64_t>(0x9E3779B185EBCA87));
  const __m256i prime2 = _mm256_set1_epi64x(static_cast<int64_t>(0xC2B2AE3D27D4EB4F));
  __m256i sum = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lanes));
  for (size_t at = 0; at < stripes.size(); at += kStripeBytes) {
    const __m256i stripe = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&stripes[at]));
    sum = _mm256_add_epi64(sum, _mm256_mullo_epi64(stripe, prime2));
    sum = _mm256_mullo_epi64(_mm256_rol_epi64(sum, 31), prime1);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), sum);
}

#else

bool has_vectors() { return false; }
void add_stripes(std::span<const std::byte>, XXH64_hash_t (&)[4]) {}

#endif

}  // namespace

Xxh64::Xxh64(uint64_t seed) {
  static_assert(sizeof(state_) == sizeof(XXH64_state_t));
  static_assert(alignof(decltype(state_)) >= alignof(XXH64_state_t));
  new (state_.data()) XXH64_state_t;
  XXH64_reset(&state_of(state_), seed);
}

void Xxh64::extend(std::span<const std::byte> bytes) {
  XXH64_state_t& state = state_of(state_);
  if (bytes.size() >= kWorthwhileBytes && has_vectors()) {
    // The library keeps what follows the last whole stripe.
    const size_t head_bytes = state.memsize == 0 ? 0 : kStripeBytes - state.memsize;
    XXH64_update(&state, bytes.data(), head_bytes);
    bytes = bytes.subspan(head_bytes);
    const size_t whole_bytes = bytes.size() / kStripeBytes * kStripeBytes;
    add_stripes(bytes.first(whole_bytes), state.v);
    state.total_len += whole_bytes;
    bytes = bytes.subspan(whole_bytes);
  }
  XXH64_update(&state, bytes.data(), bytes.size());
}

uint64_t Xxh64::value() const { return XXH64_digest(&state_of(state_)); }

uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed) {
  if (bytes.size() < kWorthwhileBytes) return XXH64(bytes.data(), bytes.size(), seed);
  Xxh64 hash(seed);
  hash.extend(bytes);
  return hash.value();
}

}  // namespace headrace
