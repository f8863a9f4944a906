// Which sample and field the members of a shard belong to, by the conventions of WebDataset.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>

#include "headrace/base/result.h"

namespace headrace {

// A member's name taken apart: "a/b.tar.gz" is the field "tar.gz" of the sample "a/b". A member
// that belongs to no sample has no key: what begins with a dot, has none, or is of WebDataset's own
// ("__name__" at the beginning).
struct MemberName {
  std::string_view key = {};
  std::string_view field = {};  // as it was written; samples have it in lower case
  bool has_key = false;
};
MemberName split_member_name(std::string_view name);

// A sample with more has names that are not meant as keys and fields.
inline constexpr size_t kMaxSampleFields = 16'384;

// Takes the names of a shard's members in their order. Neighbours of one key are a sample.
// Thread: confined. Errors: kInvalidArgument: a key is in two places of the shard, or a sample has
// a field twice, too many of them, or one that samples have anyway.
class ShardNames {
 public:
  struct Place {
    bool has_key = false;
    bool begins_sample = false;
    std::string_view field = {};  // valid until the next call
  };

  // What follows is of another shard, or of the same one again.
  void begin_shard();
  Result<Place> add(std::string_view name);
  // Of the latest sample.
  const std::string& key() const { return key_; }

 private:
  std::unordered_set<std::string> keys_;  // of the shard
  std::string key_;
  std::unordered_set<std::string> fields_;  // of the sample
};

}  // namespace headrace
