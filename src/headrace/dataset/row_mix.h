// From which of several row groups each row of a stream comes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

// Some of the rows that follow each other in a stream.
struct RowMix {
  // How many come from each of the row groups.
  std::vector<uint64_t> counts;
  // If these are put one behind the other, all rows of the first row group before those of the
  // second: which of them stands at each place of the stream.
  std::vector<int64_t> order;
};

// Draws each row, from the one at `first` of the stream of reader `lane` on, from one of the row
// groups, all equally likely; `left` says how many rows each has left, at least one. Ends after
// `count` rows, or after the last row of a row group. A row's row group depends on the seed, the
// epoch, the lane, the row's place in the stream and the number of row groups alone, so that a
// stream that is cut anywhere continues as it would have. Pure.
RowMix mix_rows(uint64_t seed, uint64_t epoch, uint64_t lane, uint64_t first, uint64_t count,
                std::span<const uint64_t> left);

}  // namespace headrace
