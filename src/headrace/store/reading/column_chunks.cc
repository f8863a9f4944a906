#include "headrace/store/reading/column_chunks.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "headrace/store/join_ranges.h"

namespace headrace {

Result<ColumnChunkPlan> plan_column_chunks(std::span<const ByteRange> chunks, uint64_t end,
                                           const ColumnChunkRules& rules) {
  for (const ByteRange& chunk : chunks) {
    if (chunk.begin >= chunk.end || chunk.end > end) {
      return corrupt("a column chunk is to be the bytes [", chunk.begin, ", ", chunk.end,
                     "), and the file's footer begins at ", end);
    }
  }
  std::vector<size_t> order(chunks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [chunks](size_t i) { return chunks[i].begin; });
  ColumnChunkPlan plan;
  plan.locations.resize(chunks.size());
  for (const size_t i : order) {
    const std::optional<ByteRange> both =
        plan.requests.empty()
            ? std::nullopt
            : joined(plan.requests.back(), chunks[i], rules.max_gap_bytes, rules.max_request_bytes);
    if (both) {
      plan.requests.back() = *both;
    } else {
      plan.requests.push_back(chunks[i]);
    }
    plan.locations[i] = {.request = plan.requests.size() - 1,
                         .offset_bytes = chunks[i].begin - plan.requests.back().begin};
  }
  return plan;
}

}  // namespace headrace
