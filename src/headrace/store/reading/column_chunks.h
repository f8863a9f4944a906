// Which requests bring the column chunks of a row group of a Parquet file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/base/units.h"

namespace headrace {

struct ColumnChunkRules {
  uint64_t max_gap_bytes = 0;
  // What one request brings for several column chunks, at most. A larger one is a request of its
  // own, which the store cuts into pieces.
  uint64_t max_request_bytes = 0;
};

struct ColumnChunkPlan {
  std::vector<ByteRange> requests;  // in the order in which they begin
  struct Location {
    size_t request = 0;
    uint64_t offset_bytes = 0;  // in what the request brings
    bool operator==(const Location&) const = default;
  };
  std::vector<Location> locations;  // of each column chunk, in the order of these
};

// The fewest requests that keep to the rules. Column chunks may come in any order. Pure.
// Errors: kCorrupt for a column chunk that is empty, or does not end before `end`, where the
// file's footer begins.
Result<ColumnChunkPlan> plan_column_chunks(std::span<const ByteRange> chunks, uint64_t end,
                                           const ColumnChunkRules& rules);

}  // namespace headrace
