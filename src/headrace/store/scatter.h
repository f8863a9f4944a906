// A range of an object that is read into several places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/format/checksum.h"
#include "headrace/format/object_info.h"
#include "headrace/format/running_sum.h"

namespace headrace {

// Memory for the bytes of an object from `begin` on.
struct Place {
  uint64_t begin = 0;
  std::span<std::byte> into = {};

  uint64_t end() const { return begin + into.size(); }
};

// From the first byte that has a place to the last one. They may overlap. Errors: kInvalidArgument
// if there are no places, if one is empty, or if they are not in the order in which they begin.
Result<ByteRange> range_of(std::span<const Place> places);

// Puts the bytes of a part of the object into their places as they arrive, and sums the bytes of
// each place. Bytes without a place are dropped. Large places are filled directly, and places that
// overlap them by copying from there; small places are filled by copying from scratch memory, which
// is kept until all bytes have arrived.
// Thread: confined. Borrows the places.
class PlaceFiller {
 public:
  // A place with less room than this is filled by copying, ...
  static constexpr size_t kDirectBytes = 32 * 1024;
  // ... from scratch memory of at most this size.
  static constexpr size_t kScratchBytes = 64 * 1024;

  // The bytes that a place has got.
  struct Filled {
    uint64_t size_bytes = 0;
    RunningSum sum;
  };

  // For the bytes from `begin` on. `kind`: of the sums; kNone: none are computed.
  PlaceFiller(std::span<const Place> places, uint64_t begin, ChecksumKind kind);

  // Memory for the next of the `left_bytes` to come (at least one). Never empty.
  std::span<std::byte> space(uint64_t left_bytes);
  // `count` bytes are now where space() said.
  void took(size_t count);

  // The place that `filled()` begins with.
  size_t first_place() const { return first_; }
  std::span<const Filled> filled() const { return filled_; }

 private:
  std::span<const Place> places_;
  size_t first_, next_;  // the first place that ends beyond the begin, beyond position_
  uint64_t position_;
  ChecksumKind kind_;
  std::vector<Filled> filled_;  // of places_[first_], ...
  // What space() was told, and said.
  uint64_t left_bytes_ = 0;
  std::span<std::byte> space_;
  const Place* direct_ = nullptr;  // the place that space_ lies in
  std::unique_ptr<std::byte[]> scratch_;
};

// One of several ranges that are read together, as if by itself.
struct JoinedPart {
  ByteRange range;
  std::span<std::byte> into = {};  // the caller's memory; empty: the engine's
  Checksum expected = {};          // what the range should have; empty: nothing is compared
};

// The places of a range, and their sums once all of it has arrived.
struct Scatter {
  std::vector<Place> places;
  std::vector<Checksum> sums = {};
  // Of a read of several parts:
  bool is_joined = false;
  std::vector<Checksum> expected = {};  // of each place; empty once the object has changed
  std::vector<size_t> mismatched = {};  // places whose bytes have another sum
  // If the memory is the engine's: the size of each place, and its block while it has one.
  std::vector<uint64_t> own_sizes = {};
  std::vector<Block> blocks = {};

  // Parts come in the order in which they begin. Either all have memory or none has.
  static std::unique_ptr<Scatter> joined(std::span<const JoinedPart> parts);

  bool lacks_blocks() const { return !own_sizes.empty() && blocks.empty(); }
  // What the blocks count, together and against the budget.
  uint64_t own_bytes() const;
  uint64_t charged_bytes() const;
  // As many as there are sizes.
  void take_blocks(std::vector<Block> taken);
  void release_blocks();
  // How many reads of callers it carries out.
  uint64_t read_count() const { return is_joined ? places.size() : 1; }
  // Appends what the next part of the range brought to its places.
  void join(const PlaceFiller& next);
  // Compares the sums with the expected ones; returns how many matched, and keeps the others.
  size_t compare();
};

}  // namespace headrace
