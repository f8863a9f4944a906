// XXH64 (https://github.com/Cyan4973/xxHash), as AIStore sums objects and places them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace headrace {

// The hash of bytes that come in pieces. Thread: confined.
class Xxh64 {
 public:
  explicit Xxh64(uint64_t seed = 0);
  void extend(std::span<const std::byte> bytes);
  void extend(std::string_view text) { extend(std::as_bytes(std::span(text))); }
  // Of the bytes so far. More may follow.
  uint64_t value() const;

 private:
  std::array<uint64_t, 11> state_;  // the library's, which no header of ours includes
};

uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed = 0);
inline uint64_t xxh64(std::string_view text, uint64_t seed = 0) {
  return xxh64(std::as_bytes(std::span(text)), seed);
}

}  // namespace headrace
