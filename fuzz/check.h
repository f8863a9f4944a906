// What the fuzzers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <span>
#include <string_view>

#include "headrace/format/crc32c.h"

namespace headrace::fuzz {

// A property that does not hold is a crash: the fuzzer keeps the input.
inline void check(bool holds, std::source_location where = std::source_location::current()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: the property does not hold\n", where.file_name(),
               static_cast<unsigned>(where.line()));
  std::abort();
}

inline std::string_view as_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Choices (where to cut, how much room to give) that depend on the input alone and take nothing
// away from it, so that a file of the corpus is what a server would send.
class Choices {
 public:
  explicit Choices(std::string_view input)
      : state_(Crc32c().extended(as_bytes(input)).value() * kStep + input.size()) {}

  uint32_t operator()() {
    state_ += kStep;
    uint64_t mixed = (state_ ^ state_ >> 32) * kStep;
    mixed = (mixed ^ mixed >> 29) * kStep;
    return static_cast<uint32_t>(mixed >> 32);
  }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15;  // odd, 2^64 over the golden ratio
  uint64_t state_;
};

}  // namespace headrace::fuzz
