// All pages of one listing, several of them asked for at a time, handed out in order.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/base/may_block.h"
#include "headrace/base/mutex.h"
#include "headrace/base/pending.h"
#include "headrace/base/result.h"
#include "headrace/store/key_ranges.h"
#include "headrace/store/object_store.h"

namespace headrace {

struct ListingOptions {
  // Pages under way at once, at most; 0: what the store says is useful, as it finds out. 1: page
  // after page, each with the token of the one before.
  uint32_t max_pages_in_flight = 0;
  // Asks for all pages at once, for a caller who will want them all. Otherwise the listing runs
  // ahead of its caller by a multiple of what was taken, so that who stops early costs little.
  bool eager = false;
};

// How far a listing has come.
struct ListingProgress {
  uint64_t names = 0;     // that have arrived
  uint64_t requests = 0;  // that were sent, without their retries
  bool complete = false;  // everything has arrived
  // Objects with the name of the store's root itself, which have none in a listing: 0 or 1.
  uint64_t placeholders = 0;
};

// Each name that exists throughout is listed exactly once, in UTF-8 byte order; what is added or
// removed meanwhile may be. Pages that have arrived and were not taken count against the store's
// memory budget. Together with those under way they take up to a quarter of it; beyond that, one
// request at a time asks for the page that the caller will take next.
// Thread: any; one caller takes.
class Listing : public std::enable_shared_from_this<Listing> {
 public:
  // `request` has neither delimiter nor page token.
  static std::shared_ptr<Listing> start(std::shared_ptr<ObjectStore> store, ListRequest request,
                                        const ListingOptions& options = {});
  ~Listing();

  // True when take() will not wait.
  bool wait_until(std::chrono::steady_clock::time_point until, MayBlock);
  // The next page in order, never an empty one; none at the end. Waits for it.
  // Errors: those of ObjectStore::list(), as soon as one occurs and for ever after; kCorrupt for a
  // page whose names are out of order or out of place; kCancelled.
  Result<std::optional<ColumnPage>> take(MayBlock);
  // Ends what is under way. What has arrived can not be taken any more.
  void cancel();
  ListingProgress progress() const;

 private:
  struct Waiting {
    ColumnPage page;
    Charge charge;
  };
  // What came of one range; in the order of names, as the ranges.
  struct Stretch {
    uint64_t range = 0;
    std::list<Waiting> pages = {};
    bool complete = false;
  };
  using Stretches = std::list<Stretch>;
  using Requests = std::vector<KeyRanges::Request>;

  Listing(std::shared_ptr<ObjectStore> store, ListRequest request, const ListingOptions& options);
  Requests plan() HEADRACE_REQUIRES(mutex_);
  void send(const Requests& requests);
  void ask();
  void answered(uint64_t range, Result<ColumnPage> page);
  Result<void> keep(uint64_t range, ColumnPage page) HEADRACE_REQUIRES(mutex_);
  void drop_taken() HEADRACE_REQUIRES(mutex_);
  bool ready() const HEADRACE_REQUIRES(mutex_);
  void end(Error error);

  const std::shared_ptr<ObjectStore> store_;
  const ListRequest request_;
  const ListingOptions options_;
  const uint32_t max_in_flight_;  // 0: the store's own
  const std::shared_ptr<BlockPool> pool_;

  mutable Mutex mutex_;
  CondVar changed_;
  KeyRanges ranges_ HEADRACE_GUARDED_BY(mutex_);
  Stretches stretches_ HEADRACE_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, Stretches::iterator> by_range_ HEADRACE_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::shared_ptr<Pending<ColumnPage>>> in_flight_
      HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::string_view> names_ HEADRACE_GUARDED_BY(mutex_);  // of one page, while looked at
  uint64_t asked_pages_ HEADRACE_GUARDED_BY(mutex_) = 0;    // the caller came for so many ...
  bool asking_ HEADRACE_GUARDED_BY(mutex_) = false;         // ... and has not got the last yet
  uint64_t waiting_pages_ HEADRACE_GUARDED_BY(mutex_) = 0;  // arrived and not taken
  uint64_t waiting_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  uint64_t largest_page_bytes_ HEADRACE_GUARDED_BY(mutex_) = 1;
  bool short_of_memory_ HEADRACE_GUARDED_BY(mutex_) = false;  // fewer were asked for than wanted
  size_t planned_ HEADRACE_GUARDED_BY(mutex_) = 0;            // under way, or about to be
  ListingProgress progress_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Error> error_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
