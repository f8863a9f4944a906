// Ranges of one object that a batch wants and that lie close together, read by one request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/store/object_store.h"
#include "headrace/store/options.h"
#include "headrace/store/read_batch.h"

namespace headrace {

// What one request brings for several ranges, at most: enough that a request costs little beside
// its bytes, and not so much that one connection has to carry what several could.
inline constexpr uint64_t kMaxJoinedBytes = 1 * kMiB;

struct JoinRules {
  std::optional<uint64_t> max_gap_bytes;  // none: each range is a request of its own
  uint64_t max_joined_bytes = kMaxJoinedBytes;
  Verify verify = Verify::kCrcs;
};

// The requests for a batch.
struct JoinPlan {
  // Positions in the batch, each once: those that one request reads follow each other, in the order
  // in which their ranges begin.
  std::vector<uint32_t> slots;
  struct Run {
    size_t first = 0, count = 1;  // in `slots`
    ByteRange range = {};         // what is read; only if there are several
    ChecksumKind sum_kind = ChecksumKind::kNone;
  };
  std::vector<Run> runs;  // in the order of the batch, by the first slot of each

  bool joins() const { return runs.size() < slots.size(); }
};

// The range of one request that reads `run` and `next`, which begins no earlier; none if it would
// read a gap above max_gap_bytes, or more than max_joined_bytes. Pure.
std::optional<ByteRange> joined(const ByteRange& run, const ByteRange& next, uint64_t max_gap_bytes,
                                uint64_t max_joined_bytes);

// The fewest requests that read no gap above max_gap_bytes and no more than max_joined_bytes for
// several ranges. Whole objects, members of shards, what is read into places, and ranges that lie
// behind the object or are to be compared by a digest are requests of their own. Pure.
JoinPlan plan_joins(const ReadBatch& batch, const JoinRules& rules);

// Reads `batch` on its behalf from `store`, by fewer requests. False: there would not be fewer, and
// nothing was done. Each slot still has memory of its own and its own outcome: where a joined read
// fails for a reason that may be one range's alone, or one range has another sum than it should,
// these ranges are read by themselves. To be called before the batch is handed over.
bool join_ranges(const std::shared_ptr<ReadBatch>& batch, const std::shared_ptr<ObjectStore>& store,
                 const JoinRules& rules);

}  // namespace headrace
