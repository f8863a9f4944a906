#include "headrace/store/listing/listing.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

// Pages ahead of the caller for each that was asked for, from the second on.
constexpr uint64_t kAheadPerPage = 8;

constexpr uint64_t kShareOfBudget = 4;  // a quarter: for pages that wait to be taken

}  // namespace

Listing::Listing(std::shared_ptr<ObjectStore> store, ListRequest request,
                 const ListingOptions& options)
    : store_(std::move(store)),
      request_(std::move(request)),
      options_(options),
      max_in_flight_(store_->useful_pages_in_flight() == 1 ? 1 : options.max_pages_in_flight),
      pool_(store_->pool()),
      ranges_(request_.prefix, request_.start_offset, request_.end_offset,
              /*cutting=*/max_in_flight_ != 1) {}

Listing::~Listing() = default;

std::shared_ptr<Listing> Listing::start(std::shared_ptr<ObjectStore> store, ListRequest request,
                                        const ListingOptions& options) {
  const std::shared_ptr<Listing> listing(
      new Listing(std::move(store), std::move(request), options));
  Requests requests;
  {
    const Lock lock(listing->mutex_);
    requests = listing->plan();
  }
  listing->send(requests);
  return listing;
}

Listing::Requests Listing::plan() {
  if (error_) return {};
  uint64_t wanted = max_in_flight_ > 0 ? max_in_flight_ : store_->useful_pages_in_flight();
  if (!options_.eager) {
    const uint64_t ahead = asked_pages_ <= 1 ? 1 : kAheadPerPage * asked_pages_;
    wanted = std::min(wanted, ahead - std::min(ahead, waiting_pages_));
  }
  const uint64_t most_bytes = pool_->budget_bytes() / kShareOfBudget;
  const uint64_t room = (most_bytes - std::min(most_bytes, waiting_bytes_)) / largest_page_bytes_;
  short_of_memory_ = wanted > room;
  wanted = std::min(wanted, room);
  // The caller waits for the first range, whatever has arrived of others.
  if (ranges_.first_is_idle() && (stretches_.empty() || stretches_.front().pages.empty())) {
    wanted = std::max<uint64_t>(wanted, planned_ + 1);
  }
  if (wanted <= planned_) return {};
  Requests requests = ranges_.plan(wanted - planned_);
  for (const KeyRanges::Request& request : requests) {
    if (by_range_.contains(request.range)) continue;
    const auto before =
        request.follows == 0 ? stretches_.begin() : std::next(by_range_.at(request.follows));
    by_range_[request.range] = stretches_.insert(before, Stretch{.range = request.range});
  }
  planned_ += requests.size();
  progress_.requests += requests.size();
  return requests;
}

// Without the lock: a store that was stopped completes at once.
void Listing::send(const Requests& requests) {
  for (const KeyRanges::Request& each : requests) {
    ListRequest request = request_;
    request.start_offset = each.start_offset;
    request.end_offset = each.end_offset;
    request.page_token = each.page_token;
    const std::shared_ptr<Pending<ColumnPage>> pending = store_->list(std::move(request));
    bool ended = false;
    {
      const Lock lock(mutex_);
      in_flight_[each.range] = pending;
      ended = error_.has_value();
    }
    pending->then([self = shared_from_this(), range = each.range](Result<ColumnPage> page) {
      self->answered(range, std::move(page));
    });
    if (ended) pending->cancel();
  }
}

void Listing::answered(uint64_t range, Result<ColumnPage> page) {
  Requests requests;
  std::optional<Error> error;
  {
    const Lock lock(mutex_);
    in_flight_.erase(range);
    --planned_;
    if (error_) return;
    if (page) {
      if (Result<void> kept = keep(range, std::move(*page)); !kept) {
        error = std::move(kept.error()).with_url(store_->url_of(request_.prefix));
      }
    } else {
      error = std::move(page.error());
    }
    if (!error) requests = plan();
    if (ready()) changed_.notify_all();
  }
  if (error) end(std::move(*error));
  send(requests);
}

Result<void> Listing::keep(uint64_t range, ColumnPage page) {
  names_.clear();
  for (size_t i = 0; i < page.size(); ++i) names_.push_back(page.name(i));
  const Result<KeyRanges::Kept> kept = ranges_.answered(range, names_, page.next_page_token);
  if (!kept) return std::unexpected(kept.error());
  progress_.placeholders += page.placeholders;
  Stretch& stretch = *by_range_.at(range);
  stretch.complete = kept->complete;
  if (kept->end > kept->begin) {
    progress_.names += kept->end - kept->begin;
    if (kept->end - kept->begin < page.size()) page.keep(kept->begin, kept->end);
    const uint64_t bytes = page.memory_bytes();
    stretch.pages.push_back({.page = std::move(page), .charge = Charge(pool_, bytes)});
    ++waiting_pages_;
    waiting_bytes_ += bytes;
    largest_page_bytes_ = std::max(largest_page_bytes_, bytes);
  }
  progress_.complete = ranges_.complete();
  drop_taken();
  return {};
}

// Drops stretches from the front as long as all of their entries were taken.
void Listing::drop_taken() {
  while (!stretches_.empty() && stretches_.front().complete && stretches_.front().pages.empty()) {
    by_range_.erase(stretches_.front().range);
    stretches_.pop_front();
  }
}

bool Listing::ready() const {
  return error_ || stretches_.empty() || !stretches_.front().pages.empty();
}

// The caller has come for another page.
void Listing::ask() {
  Requests requests;
  {
    const Lock lock(mutex_);
    if (std::exchange(asking_, true)) return;
    ++asked_pages_;
    if (options_.eager && !short_of_memory_) return;
    requests = plan();
  }
  send(requests);
}

bool Listing::wait_until(std::chrono::steady_clock::time_point until, MayBlock) {
  ask();
  const Lock lock(mutex_);
  while (!ready()) {
    if (changed_.wait_until(mutex_, until) == std::cv_status::timeout) break;
  }
  return ready();
}

Result<std::optional<ColumnPage>> Listing::take(MayBlock) {
  ask();
  const Lock lock(mutex_);
  while (!ready()) changed_.wait(mutex_);
  if (error_) return std::unexpected(*error_);
  asking_ = false;
  if (stretches_.empty()) return std::nullopt;
  std::list<Waiting>& pages = stretches_.front().pages;
  waiting_bytes_ -= pages.front().page.memory_bytes();
  --waiting_pages_;
  std::optional<ColumnPage> page(std::move(pages.front().page));
  pages.pop_front();
  drop_taken();
  return page;
}

void Listing::cancel() { end(Error(Code::kCancelled, "the listing was cancelled")); }

void Listing::end(Error error) {
  std::vector<std::shared_ptr<Pending<ColumnPage>>> pending;
  {
    const Lock lock(mutex_);
    if (error_) return;
    if (error.url().empty()) error = std::move(error).with_url(store_->url_of(request_.prefix));
    error_.emplace(std::move(error));
    for (const auto& [range, each] : in_flight_) pending.push_back(each);
    stretches_.clear();
    by_range_.clear();
    waiting_pages_ = waiting_bytes_ = 0;
    changed_.notify_all();
  }
  for (const std::shared_ptr<Pending<ColumnPage>>& each : pending) each->cancel();
}

ListingProgress Listing::progress() const {
  const Lock lock(mutex_);
  return progress_;
}

}  // namespace headrace
