// One request for many targets of a batch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/store/batch_gets.h"
#include "headrace/store/options.h"
#include "headrace/store/protocol.h"
#include "headrace/store/read_batch.h"
#include "headrace/store/transfer/batch_get_record.h"

namespace headrace {

// Slots that one request reads, each into its memory, which it must have. Nobody else touches them
// until the request has ended.
struct BatchGet {
  struct Slot {
    uint32_t index = 0;  // in the batch
    bool came = false;   // with bytes that were compared as far as they can be
  };

  std::shared_ptr<ReadBatch> batch;
  std::vector<Slot> slots;
  Verify verify = Verify::kCrcs;
  BatchGetRecord* record = nullptr;

  BatchGetEntry entry(const ReadSlot& slot) const {
    return {.name = batch->name(slot),
            .member = batch->member(slot),
            .range = slot.is_range() ? std::optional(slot.range) : std::nullopt};
  }
  // Whether the sum of the bytes is compared: as for any read, and wherever a generation was asked
  // for, which only the sum can prove.
  static bool compares_sum(Verify verify, const ReadBatch& batch, const ReadSlot& slot) {
    const ChecksumKind kind = slot.expected.kind();
    return compares(verify, kind) ||
           (!batch.generation(slot).empty() && compares(Verify::kCrcs, kind));
  }
};

}  // namespace headrace
