// One request for many targets of a batch, and what is known of the hosts that have such requests.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/store/learned.h"
#include "headrace/store/options.h"
#include "headrace/store/protocol.h"
#include "headrace/store/read_batch.h"
#include "headrace/store/reading/fetch_choice.h"

namespace headrace {

// What this process has found out about one host's requests for many objects.
// Thread: any.
class BatchGetRecord {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Learned taken;  // the first request tells

  // Whether what is asked for by range comes as a range.
  bool takes_ranges() const { return takes_ranges_.load(std::memory_order_relaxed); }
  void ignores_ranges() { takes_ranges_.store(false, std::memory_order_relaxed); }

  bool is_paused(TimePoint now) const {
    return now < paused_until_.load(std::memory_order_relaxed);
  }
  // It takes more than twice as long each time in a row, up to 64 times.
  void failed(TimePoint now, std::chrono::milliseconds pause) {
    const uint32_t doublings = std::min(failures_.fetch_add(1, std::memory_order_relaxed), 6u);
    paused_until_.store(now + pause * (1 << doublings), std::memory_order_relaxed);
  }
  void worked() { failures_.store(0, std::memory_order_relaxed); }

  // None: `again` is called when it is worth to try again.
  std::optional<FetchChoice::Ticket> begin(const FetchChoice::Load& load, TimePoint now,
                                           std::function<void()> again) {
    const Lock lock(mutex_);
    std::optional<FetchChoice::Ticket> ticket = choice_.begin(load, now);
    if (!ticket) waiting_.push_back(std::move(again));
    return ticket;
  }
  void end(const FetchChoice::Ticket& ticket, bool failed, TimePoint now) {
    std::vector<std::function<void()>> waiting;
    {
      const Lock lock(mutex_);
      choice_.end(ticket, failed, now);
      waiting.swap(waiting_);
    }
    for (const std::function<void()>& again : waiting) again();
  }

 private:
  std::atomic<bool> takes_ranges_ = true;
  std::atomic<uint32_t> failures_ = 0;  // in a row
  std::atomic<TimePoint> paused_until_ = TimePoint::min();
  Mutex mutex_;
  FetchChoice choice_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> waiting_ HEADRACE_GUARDED_BY(mutex_);
};

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
            .range = slot.whole ? std::nullopt : std::optional(slot.range)};
  }
  // Whether the sum of the bytes is compared: as for any read, and wherever a generation was asked
  // for, which only the sum can prove.
  static bool compares_sum(Verify verify, const ReadBatch& batch, const ReadSlot& slot) {
    const ChecksumKind kind = slot.expected_sum().kind();
    return compares(verify, kind) ||
           (!batch.generation(slot).empty() && compares(Verify::kCrcs, kind));
  }
};

}  // namespace headrace
