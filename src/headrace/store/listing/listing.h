// All pages of one listing, requested several at a time and handed out in order.
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
#include "headrace/store/listing/key_ranges.h"
#include "headrace/store/object_store.h"

namespace headrace {

struct ListingOptions {
  // The most pages in flight at once. 0: as many as the store currently finds useful. 1: one page
  // after another, each requested with the token of the one before.
  uint32_t max_pages_in_flight = 0;
  // Requests pages as fast as possible, for a caller who will want them all. Otherwise the listing
  // stays ahead of its caller by a multiple of the pages taken, so that stopping early wastes
  // little.
  bool eager = false;
};

// The progress of a listing.
struct ListingProgress {
  uint64_t names = 0;     // that have arrived
  uint64_t requests = 0;  // that were sent, not counting retries
  bool complete = false;  // everything has arrived
  // Objects that have the name of the store's root itself, and so no name below it: 0 or 1.
  uint64_t placeholders = 0;
};

// Every name that exists throughout is listed exactly once, in UTF-8 byte order; names added or
// removed meanwhile may or may not be. Pages that have arrived and were not taken count against the
// store's memory budget. Together with pages in flight they take up to a quarter of it; beyond
// that, only the page that the caller will take next is requested.
// Thread: any; one caller takes.
class Listing : public std::enable_shared_from_this<Listing> {
 public:
  // `request` has neither delimiter nor page token.
  static std::shared_ptr<Listing> start(std::shared_ptr<ObjectStore> store, ListRequest request,
                                        const ListingOptions& options = {});
  ~Listing();

  // True once take() will not wait.
  bool wait_until(std::chrono::steady_clock::time_point until, MayBlock);
  // Waits for the next page in order, which is never empty. None at the end.
  // Errors: those of ObjectStore::list(), as soon as one occurs and from then on; kCorrupt for a
  // page whose names are out of order or out of range; kCancelled.
  Result<std::optional<ColumnPage>> take(MayBlock);
  // Ends the requests in progress. Pages that have arrived can no longer be taken.
  void cancel();
  ListingProgress progress() const;

 private:
  struct Waiting {
    ColumnPage page;
    Charge charge;
  };
  // The pages of one range. Stretches are in the order of names, as ranges are.
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
  std::vector<std::string_view> names_ HEADRACE_GUARDED_BY(mutex_);  // of the page being examined
  uint64_t asked_pages_ HEADRACE_GUARDED_BY(mutex_) = 0;  // how many the caller has come for ...
  bool asking_ HEADRACE_GUARDED_BY(mutex_) = false;  // ... and whether it still waits for the last
  uint64_t waiting_pages_ HEADRACE_GUARDED_BY(mutex_) = 0;  // arrived and not taken
  uint64_t waiting_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  uint64_t largest_page_bytes_ HEADRACE_GUARDED_BY(mutex_) = 1;
  bool short_of_memory_ HEADRACE_GUARDED_BY(mutex_) = false;  // fewer were requested than wanted
  size_t planned_ HEADRACE_GUARDED_BY(mutex_) = 0;            // in flight, or about to be
  ListingProgress progress_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Error> error_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
