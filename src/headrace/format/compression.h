// Compressed bytes: recognised by how they begin, and decompressed as they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

enum class Compression : uint8_t { kNone, kGzip, kZstd, kBzip2, kXz, kLz4 };

std::string_view to_string(Compression compression);

// How many bytes compression_of() needs.
inline constexpr size_t kCompressionMagicBytes = 6;

// How bytes that begin like this may be compressed. Those of something else may begin alike.
Compression compression_of(std::span<const std::byte> head);

// Decompresses one or more gzip members or zstd frames, which follow each other. Zeros behind a
// gzip member are passed over, as gzip and Python do it: what writes whole blocks pads with them.
// Takes at most the 128 MiB that zstd's own tool takes for the window of a frame. Thread: confined.
// Errors: kCorrupt for what is malformed, cut, or followed by anything else; kInvalidArgument for a
// frame with a larger window; kExhausted if the system has no memory. After one, it is finished.
class Decompressor {
 public:
  struct Step {
    size_t consumed = 0;  // bytes of `in`
    size_t produced = 0;  // bytes of `out`
  };

  // None for what this cannot decompress, or if the system has no memory.
  static std::unique_ptr<Decompressor> create(Compression compression);
  virtual ~Decompressor() = default;

  // Continues until `in` is used up or `out`, which is not empty, is full. As long as it is full,
  // there may be more without any further input.
  virtual Result<Step> next(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  // The bytes end here. Errors: they end within a member or frame, or there was none.
  Result<void> finish() const;

 protected:
  explicit Decompressor(Compression compression) : compression_(compression) {}
  const Compression compression_;
  bool at_start_ = true;  // of a member or frame
  bool is_empty_ = true;
};

}  // namespace headrace
