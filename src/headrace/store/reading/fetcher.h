// Ways to read several objects of a batch together.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "headrace/store/read_batch.h"
#include "headrace/store/reading/fetch_groups.h"

namespace headrace {

class GroupedReads;

// One batch, of which groups are fetched. `inner`, of the GroupedReads: what reads parts of it.
struct FetchWork {
  const std::shared_ptr<ReadBatch> batch;
  std::vector<std::shared_ptr<ReadBatch>> inner = {};
};

// Slots of one batch that are fetched together: the unit of a fetcher's work. Fetchers derive their
// own from it.
struct FetchGroup {
  FetchGroup(std::shared_ptr<FetchWork> its_work, PlannedGroup its_parts)
      : work(std::move(its_work)), parts(std::move(its_parts)) {}
  virtual ~FetchGroup() = default;
  FetchGroup(const FetchGroup&) = delete;
  FetchGroup& operator=(const FetchGroup&) = delete;

  ReadBatch& batch() const { return *work->batch; }

  const std::shared_ptr<FetchWork> work;
  const PlannedGroup parts;
  uint64_t need_bytes = 0;  // of the memory budget, before it may begin
  std::atomic<uint64_t> reserved_bytes = 0;
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
  enum class Choice : uint8_t {
    kAlone,
    kTogether,
    kLater,  // it is to wait: `again` is called when it is worth to ask again
  };
  // Whether this batch, which is not done, is to be fetched this way. So many objects of it could
  // be.
  virtual Choice choose(ReadBatch& /*batch*/, uint64_t /*object_count*/, uint64_t /*bytes*/,
                        std::function<void()> /*again*/) {
    return Choice::kTogether;
  }
  virtual std::shared_ptr<FetchGroup> make_group(std::shared_ptr<FetchWork> work,
                                                 PlannedGroup parts) const = 0;
  virtual void begin(const std::shared_ptr<GroupedReads>& reads,
                     const std::shared_ptr<FetchGroup>& group) = 0;
  // The engine has stopped, and so many groups have not been retired.
  virtual void left_behind(size_t /*group_count*/) {}
};

}  // namespace headrace
