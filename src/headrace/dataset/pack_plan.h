// What is packed into which shard: the entries of an index as samples, in order or shuffled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/dataset/object_index.h"
#include "headrace/dataset/order.h"
#include "headrace/format/tar_scan.h"

namespace headrace {

struct PackRules {
  // A shard ends before the sample that would make it larger; one sample always fits.
  uint64_t max_shard_bytes = 256 * kMiB;
  uint64_t max_shard_samples = UINT64_MAX;
  bool shuffle = false;
  uint64_t seed = 0;
  // A column, of integers or texts, that becomes a field "cls" of each sample.
  std::optional<std::string> label = {};
  // Each entry is a sample by itself, whatever its name, and takes its own bytes without a header.
  bool documents = false;
};

// A pure function of an index and rules: made again, here or elsewhere, it gives the same shards.
// A sample is the entries whose names have the same key (shard_names.h), wherever they are
// in the index; of members of shards, those in the same shard. Samples come in the order of their
// first entries, or shuffled as the first epoch would be.
//
// It keeps two numbers for each entry and sample, and asks the index for the rest again: once for
// each piece.
// Thread: any (immutable).
class PackPlan {
 public:
  // Positions in the order in which samples are packed.
  struct Samples {
    size_t begin = 0, end = 0;
    size_t size() const { return end - begin; }
  };
  // What the index says about some samples.
  struct Gathered {
    std::vector<size_t> entries = {};
    std::vector<size_t> ends = {};  // of each sample, in `entries`
    TextValues names = {};          // of entries; none of documents
    std::vector<std::string> labels = {};

    // Adds as many of the first samples of `more`.
    void add(const Gathered& more, size_t sample_count);
  };
  // Samples that are read and written together.
  struct Piece {
    Samples samples = {};
    uint64_t size_bytes = 0;  // with headers, labels and what fills up blocks
    Gathered gathered = {};
  };
  // Of a piece: its samples one after the other.
  struct Layout {
    std::vector<size_t> entries = {};
    std::vector<uint64_t> places = {};  // where the bytes of each belong
  };
  // A sample by the names of its fields, in the order of its entries.
  struct Sample {
    std::string key = {};
    std::vector<std::string> fields = {};
    std::optional<std::string> label = {};
  };

  // Errors, with the URL of an entry: kInvalidArgument: its size is not known, its sample has the
  // field already, its shard has another sample of the same key, or no tar can have its name; there
  // is no such column.
  static Result<PackPlan> make(std::shared_ptr<const ObjectIndex> index, PackRules rules);

  size_t sample_count() const { return sample_ends_.size(); }
  size_t shard_count() const { return shard_ends_.size(); }
  Samples shard(size_t i) const {
    return {.begin = i == 0 ? 0 : shard_ends_[i - 1], .end = shard_ends_[i]};
  }
  // Entries that belong to no sample: how many, and the name of the first.
  size_t left_out_count() const { return left_out_count_; }
  const std::string& first_left_out() const { return first_left_out_; }

  // Whether entries may be ranges that somebody gave, who may be wrong about where objects end.
  bool has_given_ranges() const { return index_->has_ranges() && !member_column_; }
  // The bytes of their entries.
  uint64_t source_bytes(Samples samples) const;
  // As many of the first of these samples as fit into `max_bytes`, but at least one.
  Piece piece(Samples samples, uint64_t max_bytes) const;
  // Writes the headers of a piece, labels and what fills up blocks, and says where data belong.
  // Errors: kInternal if there is less room than the piece takes.
  Result<Layout> lay_out(const Piece& piece, std::span<std::byte> into) const;
  // Adds the files of a piece, which begins at a byte of its shard.
  void add_files(const Piece& piece, uint64_t begin, TarFiles& files) const;
  std::vector<Sample> describe(const Piece& piece) const;

 private:
  PackPlan(std::shared_ptr<const ObjectIndex> index, const PackRules& rules);
  Result<void> find_label();
  void group();
  Result<void> cut();
  std::span<const size_t> entries(size_t sample) const;
  Gathered gather(Samples samples) const;
  // Of each of these samples.
  std::vector<uint64_t> packed_bytes(const Gathered& gathered) const;
  TextValues names_of(std::span<const size_t> entries) const;
  template <class Visit>
  void each_member(const Gathered& gathered, Visit visit) const;

  std::shared_ptr<const ObjectIndex> index_;
  PackRules rules_;
  std::optional<size_t> member_column_, label_column_;
  std::vector<size_t> entries_;      // sample after sample
  std::vector<size_t> sample_ends_;  // in entries_
  std::vector<size_t> shard_ends_;   // positions
  Order order_{0, 0, 0, false};
  size_t left_out_count_ = 0;
  std::string first_left_out_;
};

}  // namespace headrace
