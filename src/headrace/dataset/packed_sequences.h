// The sequences of a file in some order, packed: as one stream of bytes without borders. Samples
// are windows of it, and a sample that crosses a border consists of several ranges of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/format/megatron_index.h"

namespace headrace {

// 16 bytes for each sequence; those that follow each other in the file, too, count as one.
// Thread: any (immutable).
class PackedSequences {
 public:
  // `order` has the numbers of sequences, and may have one several times.
  // Errors: kInvalidArgument for a number that no sequence has, and for more than 2^63 bytes.
  static Result<PackedSequences> pack(const MegatronIndex& index, std::span<const size_t> order);

  // What parts() has returned.
  // Errors: kInvalidArgument for anything else.
  static Result<PackedSequences> from_parts(std::span<const std::byte> parts);

  // Everything that the stream consists of, 16 bytes a part, for another process.
  std::string parts() const;

  uint64_t size_bytes() const { return ends_.empty() ? 0 : ends_.back(); }
  size_t part_count() const { return ends_.size(); }
  // Where in the file a byte of the stream, which is below size_bytes(), lies.
  uint64_t file_byte(uint64_t at) const;
  // Appends the ranges of the file that `window` of the stream, which lies in it, consists of.
  void append_ranges(ByteRange window, std::vector<ByteRange>& out) const;

 private:
  std::vector<uint64_t> begins_;  // of each part, in the file
  std::vector<uint64_t> ends_;    // of each part, in the stream
};

}  // namespace headrace
