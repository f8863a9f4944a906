// Ways to read several objects of a batch together.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "headrace/store/object_store.h"
#include "headrace/store/read_batch.h"
#include "headrace/store/reading/fetch_groups.h"
#include "headrace/store/transfer/fetch_choice.h"

namespace headrace {

class GroupedReads;

// Slots of one batch that are fetched together: the unit of a fetcher's work. Fetchers derive their
// own from it.
struct FetchGroup {
  FetchGroup(std::shared_ptr<ReadBatch> its_batch, std::shared_ptr<ObjectStore> its_store,
             PlannedGroup its_parts)
      : batch(std::move(its_batch)), store(std::move(its_store)), parts(std::move(its_parts)) {}
  virtual ~FetchGroup() = default;
  FetchGroup(const FetchGroup&) = delete;
  FetchGroup& operator=(const FetchGroup&) = delete;

  const std::shared_ptr<ReadBatch> batch;
  const std::shared_ptr<ObjectStore> store;  // whose objects they are
  const PlannedGroup parts;
  uint64_t need_bytes = 0;  // of the memory budget, before it may begin
  std::atomic<uint64_t> reserved_bytes = 0;
  bool failed = false;  // some of its slots have ended without bytes; before retire()
  // Of the GroupedReads:
  bool is_touched = false;               // see GroupedReads::touch()
  bool is_given_up = false;              // its slots have ended
  std::function<void()> interrupt = {};  // ends what is in progress
};

// One way to fetch groups. It takes a group from begin() to GroupedReads::retire(), and ends every
// slot of it once: with its bytes, or by having it read alone.
// Thread: any.
class Fetcher {
 public:
  struct Limits {
    uint64_t max_size_bytes = 0;  // of a group
    uint32_t max_objects = 0;
    uint32_t max_in_flight = 0;  // groups
  };

  virtual ~Fetcher() = default;

  // Whether groups may begin now. If not, everything is read alone.
  virtual bool is_ready() const = 0;
  virtual Limits limits() const = 0;
  virtual bool takes(const ReadBatch& batch, const ReadSlot& slot) const = 0;
  // Whether this batch, which was not handed over, is read object by object, although
  // `object_count` objects of it could come in groups.
  virtual bool reads_alone(ReadBatch& /*batch*/, uint64_t /*object_count*/, uint64_t /*bytes*/) {
    return false;
  }
  virtual std::shared_ptr<FetchGroup> make_group(std::shared_ptr<ReadBatch> batch,
                                                 std::shared_ptr<ObjectStore> store,
                                                 PlannedGroup parts) const = 0;
  // Whether a group that nobody waits for yet should begin later: when another one has ended.
  virtual bool holds_back(const FetchGroup& /*group*/) const { return false; }
  // The way of a group that begins now. Without blocking, and without a call of the GroupedReads.
  virtual FetchWay choose(FetchGroup& /*group*/) { return FetchWay::kTogether; }
  virtual void begin(const std::shared_ptr<GroupedReads>& reads,
                     const std::shared_ptr<FetchGroup>& group) = 0;
  // Nothing of the group is in progress any more, whichever way it went.
  virtual void retired(FetchGroup& /*group*/) {}
  // The engine has stopped before these groups were retired.
  virtual void left_behind(size_t /*group_count*/) {}
};

}  // namespace headrace
