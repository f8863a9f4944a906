// Objects of a batch that are fetched together.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/base/mutex.h"
#include "headrace/store/object_store.h"
#include "headrace/store/reading/fetcher.h"

namespace headrace {

// Cuts batches into groups for a fetcher. It keeps what all fetchers need: memory for the groups
// before they begin, their order, cancelling, and the end. Whatever goes wrong with a group, its
// objects are read one by one, and the caller gets those results, including errors.
//
// A group waits in one queue, whatever for: memory, its turn among those in progress, or the
// fetcher, which may hold read-ahead back. Its way is chosen when it leaves the queue. None is held
// back while no other is in progress, and each that ends lets the next ones begin; so none is
// forgotten.
// Thread: any. Owns the fetcher; keeps itself and the groups' store alive while one is in progress.
class GroupedReads final : public std::enable_shared_from_this<GroupedReads> {
 public:
  // `host_limit`: how many requests the host takes now.
  GroupedReads(std::unique_ptr<Fetcher> fetcher, std::shared_ptr<BlockPool> pool,
               std::function<uint64_t()> host_limit);
  ~GroupedReads();

  // Reads the batch, the objects of `store`: in groups, and what the fetcher does not take from the
  // store. False: none of it comes in groups, and nothing was done.
  bool read(const std::shared_ptr<ReadBatch>& batch, const std::shared_ptr<ObjectStore>& store);
  // How many objects should be in flight.
  uint64_t useful_in_flight() const;

  // Starts the groups for which there is room now.
  void pump();
  // Starts no more groups, and interrupts those in progress.
  void stop();
  // After stop(): true once all groups are retired.
  bool wait_retired(std::chrono::steady_clock::time_point until, MayBlock);

  // For the fetcher -------------------------------------------------------------------------
  // From now on the fetcher writes to the slots' memory, or ends slots. Until then cancelling ends
  // them at once. False if that has happened.
  bool touch(FetchGroup& group);
  // Gives back all but this much of what was reserved for the group.
  void keep_reserved(FetchGroup& group, uint64_t bytes);
  void release(FetchGroup& group) { keep_reserved(group, 0); }
  // How to end what is in progress. Called at once if that is wanted already.
  void set_interrupt(FetchGroup& group, std::function<void()> interrupt);
  // The slots end with kCancelled.
  static void give_up(const FetchGroup& group, std::span<const uint32_t> slots,
                      const std::string& why);
  // Has slots of the group read one by one.
  static void read_alone(const FetchGroup& group, std::vector<uint32_t> slots);
  // The same for the last slots of a group, which is retired with them.
  void end_alone(const std::shared_ptr<FetchGroup>& group, std::vector<uint32_t> slots);
  // Nothing of the group is in progress any more. pump() has to follow.
  void retire(const std::shared_ptr<FetchGroup>& group);

 private:
  struct Next {
    std::shared_ptr<FetchGroup> group;
    FetchWay way = FetchWay::kAlone;
  };

  void enqueue(const std::shared_ptr<ReadBatch>& batch,
               std::vector<std::shared_ptr<FetchGroup>> groups);
  void on_wait_or_cancel(const std::shared_ptr<ReadBatch>& batch);
  std::vector<std::shared_ptr<FetchGroup>> make_groups(const std::shared_ptr<ReadBatch>& batch,
                                                       const std::shared_ptr<ObjectStore>& store);
  std::optional<Next> next();
  bool reserve(FetchGroup& group) HEADRACE_REQUIRES(mutex_);
  void begin(const Next& next);

  const std::unique_ptr<Fetcher> fetcher_;
  const std::shared_ptr<BlockPool> pool_;
  const std::function<uint64_t()> host_limit_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::deque<std::shared_ptr<FetchGroup>> queue_ HEADRACE_GUARDED_BY(mutex_);
  // Groups that have begun and are not retired.
  std::unordered_set<std::shared_ptr<FetchGroup>> active_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
