// What tar archives consist of.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

// Headers are whole blocks, and data are filled up to whole ones.
inline constexpr size_t kTarBlockBytes = 512;
// Two blocks of zeros end an archive.
inline constexpr size_t kTarEndBytes = 2 * kTarBlockBytes;

// What fills up the last block.
constexpr uint64_t tar_padding_bytes(uint64_t size_bytes) {
  return (kTarBlockBytes - size_bytes % kTarBlockBytes) % kTarBlockBytes;
}

// Of data that are below 2^64 - 512 bytes.
constexpr uint64_t tar_padded_bytes(uint64_t size_bytes) {
  return size_bytes + tar_padding_bytes(size_bytes);
}

}  // namespace headrace
