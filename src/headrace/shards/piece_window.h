// How much of the shards of one stream is under way at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "headrace/base/may_block.h"
#include "headrace/base/mutex.h"

namespace headrace {

// A number of bytes that readers of shards share. They take turns in the order in which they came:
// a reader begins pieces once all before it have begun their last one. So whatever the window has
// goes to the shard that is needed first, and the next one gets what that does not need any more.
// Thread: any.
class PieceWindow {
 public:
  // A reader's place in the order. Ends it when destroyed, and gives back what it still has.
  class Turn {
   public:
    explicit Turn(std::shared_ptr<PieceWindow> window);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // Whether a piece of `size_bytes` may begin now.
    bool try_take(uint64_t size_bytes);
    // Waits until it may. False: it was cancelled.
    bool take(uint64_t size_bytes, MayBlock may_block);
    void give_back(uint64_t size_bytes);
    // It is the next one's turn. If more pieces are needed after all, they begin one at a time,
    // whether there is room or not: nobody waits for who waits for them.
    void pass();
    // Ends take(), now and later.
    void cancel();

   private:
    bool has_room(uint64_t size_bytes) const HEADRACE_REQUIRES(window_->mutex_);

    const std::shared_ptr<PieceWindow> window_;
    // All guarded by the window's mutex.
    uint64_t number_ = 0;
    uint64_t taken_bytes_ = 0;
    bool passed_ = false, cancelled_ = false;
  };

  explicit PieceWindow(uint64_t max_bytes) : max_bytes_(max_bytes) {}

 private:
  const uint64_t max_bytes_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t under_way_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  uint64_t next_number_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> beginning_ HEADRACE_GUARDED_BY(mutex_);  // who still begins pieces
};

}  // namespace headrace
