// The .idx beside a .bin of Megatron-Core (MMIDIDX, version 1): which type its tokens have, and
// where the sequences and documents lie in them. Little-endian, one part after another: a head, of
// each sequence its length in items and its offset in bytes, of each document its first sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

// Thread: any (immutable). Borrows the bytes.
// Errors: kCorrupt for what is no such index or contradicts itself.
class MegatronIndex {
 public:
  static constexpr size_t kHeadBytes = 34;

  static Result<MegatronIndex> parse(std::span<const std::byte> file);

  // As NumPy calls it: "uint16". Also floating-point types, which are no tokens.
  std::string_view item_type() const { return item_type_; }
  size_t item_bytes() const { return item_bytes_; }
  size_t sequence_count() const { return sequence_count_; }
  size_t document_count() const { return document_count_; }
  // In items.
  uint64_t length(size_t sequence) const;
  // In bytes, from the beginning of the .bin.
  uint64_t begin(size_t sequence) const;
  // The first sequence of a document; that of document_count() is the end of the last one.
  // Sequences behind it belong to none.
  uint64_t first_sequence(size_t document) const;
  // Bytes of the .bin that all sequences together reach up to.
  uint64_t end() const { return end_; }
  // Whether the sequences follow each other from the first byte on, with nothing in between.
  bool is_contiguous() const { return is_contiguous_; }

 private:
  Result<void> check();

  std::string_view item_type_;
  size_t item_bytes_ = 0, sequence_count_ = 0, document_count_ = 0;
  std::span<const std::byte> lengths_, begins_, documents_;
  uint64_t end_ = 0;
  bool is_contiguous_ = true;
};

}  // namespace headrace
