// The samples of a shard, from its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/dataset/shard_names.h"
#include "headrace/format/tar.h"

namespace headrace {

// A sample and the memory of its fields, a block each.
struct ShardSample {
  struct Field {
    std::string name = {};
    Block block = {};
    std::optional<size_t> same_as = {};  // a hard link: the bytes are those of this field
  };
  std::string key = {};
  std::vector<Field> fields = {};
  uint64_t number = 0;  // in the shard, from 0
  // Where in the tar a parser may begin that wants the samples behind this one; 0: only at its
  // beginning.
  uint64_t next_offset = 0;

  uint64_t size_bytes() const;
};

// Takes the bytes of a tar as they come, cut anywhere, and gives whole samples: each byte of theirs
// is copied once, into the block of its field. Which members are a sample, ShardNames says. What is
// no file is left out; a hard link is the file that it leads to, which must be a field of the same
// sample; a sparse file has its zeros.
// Thread: confined. Owns the blocks of the sample that has begun.
// Errors: kCorrupt: it is no tar, is cut, or has a member that ends behind it. kInvalidArgument:
// those of ShardNames; a sample lacks a field; a hard link leads elsewhere; there is no sample of
// `first_key`. kExhausted: a sample has
// more bytes than are allowed. After one, it is finished.
class ShardParser {
 public:
  struct Options {
    uint64_t tar_bytes = kUnknownSize;
    // Of the sample that begins at `offset`, which is 0 or a ShardSample::next_offset; or, if it
    // has this key, behind `offset`, which is between two members.
    uint64_t number = 0;
    uint64_t offset = 0;
    std::string first_key = {};
    uint64_t first = 0;                    // samples before this one are passed over
    std::vector<std::string> fields = {};  // the wanted ones, in their order; empty: all
    uint64_t max_sample_bytes = UINT64_MAX;
  };

  ShardParser(std::shared_ptr<BlockPool> pool, Options options);

  // Appends the samples that are now complete to `out`.
  Result<void> take(std::span<const std::byte> bytes, std::vector<ShardSample>& out);
  // The bytes end here.
  Result<void> finish(std::vector<ShardSample>& out);

  // Of the sample that comes next, or is being read.
  uint64_t number() const { return number_; }
  // Members that belong to no sample: how many, and the name of the first.
  size_t left_out_count() const { return left_out_count_; }
  const std::string& first_left_out() const { return first_left_out_; }
  // Once it is finished: why there may be more samples than were found, a sentence each.
  std::vector<std::string> warnings() const;

 private:
  Result<void> take_member(std::vector<ShardSample>& out);
  Result<void> begin_field(std::string_view name);
  Result<void> link_field(std::string_view name);
  Result<void> end_sample(uint64_t next_offset, std::vector<ShardSample>& out);
  void take_data(std::span<const std::byte> data);
  void leave_out(std::string_view name);

  const std::shared_ptr<BlockPool> pool_;
  const Options options_;
  TarReader tar_;
  ShardNames names_;
  uint64_t number_;
  bool awaits_key_;
  bool in_sample_ = false;
  ShardSample sample_;
  std::vector<std::string> members_;  // the names of the fields' members
  uint64_t sample_bytes_ = 0;
  uint64_t sparse_bytes_ = 0;  // of the sparse members that began in this take()
  bool wants_data_ = false;    // of the member that is being read, for the last field
  uint64_t filled_bytes_ = 0;
  size_t part_ = 0;                         // of a sparse file
  std::unordered_set<std::string> passed_;  // links and devices
  size_t left_out_count_ = 0;
  std::string first_left_out_;
  bool has_more_ = false;  // bytes other than zeros behind the end
  uint64_t total_bytes_;
};

}  // namespace headrace
