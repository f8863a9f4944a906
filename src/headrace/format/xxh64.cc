#include "headrace/format/xxh64.h"

#include <cstring>
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

}  // namespace

Xxh64::Xxh64(uint64_t seed) {
  static_assert(sizeof(state_) == sizeof(XXH64_state_t));
  static_assert(alignof(decltype(state_)) >= alignof(XXH64_state_t));
  new (state_.data()) XXH64_state_t;
  XXH64_reset(&state_of(state_), seed);
}

void Xxh64::extend(std::span<const std::byte> bytes) {
  XXH64_update(&state_of(state_), bytes.data(), bytes.size());
}

uint64_t Xxh64::value() const { return XXH64_digest(&state_of(state_)); }

uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH64(bytes.data(), bytes.size(), seed);
}

}  // namespace headrace
