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

// The shards that samples are in, each as often as its samples come, and the first sample of each.
// A shard's samples follow each other. Errors: kInvalidArgument: this is no index of samples.
struct SampledShards {
  std::shared_ptr<const ObjectIndex> index;
  std::vector<int64_t> firsts = {};
};
Result<SampledShards> shards_of_samples(const ObjectIndex& samples);

// Where the fields of a sample are in the bytes of its range.
struct SampleFields {
  std::string key = {};
  std::string names = {};  // as in kFieldsColumn
  std::vector<ByteRange> places = {};
};
// Errors: kCorrupt unless the columns of entry `i` are those of a sample.
Result<SampleFields> sample_fields(const ObjectIndex& samples, size_t i);

}  // namespace headrace
