// Samples in shards: which members of a tar belong together, by the conventions of WebDataset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/dataset/object_index.h"
#include "headrace/format/tar_scan.h"

namespace headrace {

// The columns of an index of members, and of one of samples.
inline constexpr std::string_view kMemberColumn = "member";
inline constexpr std::string_view kKeyColumn = "key";
inline constexpr std::string_view kFieldsColumn = "fields";  // their names, with '/' between them
inline constexpr std::string_view kPlacesColumn = "places";  // where they are in the entry's range

// A member's name taken apart: "a/b.tar.gz" is the field "tar.gz" of the sample "a/b". A member
// that belongs to no sample has no key: what begins with a dot, has none, or is of WebDataset's own
// ("__name__" at the beginning).
struct MemberName {
  std::string_view key = {};
  std::string_view field = {};  // as it was written; samples have it in lower case
  bool has_key = false;
};
MemberName split_member_name(std::string_view name);

// An index of all members: entry after entry of `shards`, each with its files.
// `files` has as many items as `shards`; a null one is left out with all that it has.
Result<std::shared_ptr<const ObjectIndex>> member_index(const ObjectIndex& shards,
                                                        std::span<const TarFiles* const> files,
                                                        std::span<const std::string> generations);

struct SampleIndex {
  std::shared_ptr<const ObjectIndex> index;
  // Of shards that were left out.
  std::vector<Error> errors = {};
  // Members that belong to no sample: how many, and the URL and name of the first.
  size_t left_out = 0;
  std::string first_left_out = {};
};

// One entry for each sample, which is the range from the first of its members to the last.
// `members` has the column kMemberColumn. Neighbours of one key are a sample.
// A shard may come several times, and so do its samples.
// Errors: kInvalidArgument, with the URL of the shard: a sample has a field twice, is in two places
// of its shard, or its members are far from each other. With `skip_errors`, the shard is left out
// instead. There is no such column.
Result<SampleIndex> sample_index(const ObjectIndex& members, bool skip_errors = false);

// The same samples with these of their fields alone; what lies between them is still read.
// Errors: kInvalidArgument: a sample has no such field, or this is no index of samples.
Result<std::shared_ptr<const ObjectIndex>> with_fields(const ObjectIndex& samples,
                                                       std::span<const std::string> fields);

// Where the fields of a sample are in the bytes of its range.
struct SampleFields {
  std::string key = {};
  std::string names = {};  // as in kFieldsColumn
  std::vector<ByteRange> places = {};
};
// Errors: kCorrupt unless the columns of entry `i` are those of a sample.
Result<SampleFields> sample_fields(const ObjectIndex& samples, size_t i);

}  // namespace headrace
