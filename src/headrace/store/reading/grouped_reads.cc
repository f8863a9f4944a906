#include "headrace/store/reading/grouped_reads.h"

#include <algorithm>

#include "headrace/store/inner_reads.h"
#include "headrace/store/slot_memory.h"

namespace headrace {
namespace {

using std::chrono::steady_clock;

constexpr const char* kCancelled = "the read was cancelled";
constexpr const char* kStopped = "the engine was stopped";

// The slots of the batch that are in no group.
std::vector<uint32_t> slots_outside(const ReadBatch& batch,
                                    std::span<const std::shared_ptr<FetchGroup>> groups) {
  std::vector<bool> is_grouped(batch.size());
  for (const std::shared_ptr<FetchGroup>& group : groups) {
    for (const uint32_t index : group->parts.slots) is_grouped[index] = true;
  }
  std::vector<uint32_t> outside;
  for (uint32_t i = 0; i < batch.size(); ++i) {
    if (!is_grouped[i]) outside.push_back(i);
  }
  return outside;
}

}  // namespace

GroupedReads::GroupedReads(std::unique_ptr<Fetcher> fetcher, std::shared_ptr<BlockPool> pool,
                           std::function<uint64_t()> host_limit)
    : fetcher_(std::move(fetcher)), pool_(std::move(pool)), host_limit_(std::move(host_limit)) {}

GroupedReads::~GroupedReads() = default;

uint64_t GroupedReads::useful_in_flight() const {
  const uint64_t alone = host_limit_();
  if (!fetcher_->is_ready()) return alone;
  const Fetcher::Limits limits = fetcher_->limits();
  return std::max(alone, uint64_t{limits.max_in_flight} * limits.max_objects);
}

// ── Beginning ────────────────────────────────────────────────────────────────────────────────

bool GroupedReads::read(const std::shared_ptr<ReadBatch>& batch,
                        const std::shared_ptr<ObjectStore>& store) {
  if (batch->planned >= ReadBatch::Planned::kGroups || !fetcher_->is_ready()) return false;
  std::vector<std::shared_ptr<FetchGroup>> groups = make_groups(batch, store);
  uint64_t object_count = 0, size_bytes = 0;
  for (const std::shared_ptr<FetchGroup>& group : groups) {
    object_count += group->parts.slots.size();
    size_bytes += group->parts.size_bytes;
  }
  if (groups.empty() || fetcher_->reads_alone(*batch, object_count, size_bytes)) return false;
  std::vector<uint32_t> alone = slots_outside(*batch, groups);
  batch->hand_over(pool_, [self = shared_from_this(), weak = std::weak_ptr(batch)] {
    if (const std::shared_ptr<ReadBatch> alive = weak.lock()) self->on_wait_or_cancel(alive);
  });
  enqueue(batch, std::move(groups));
  if (!alone.empty()) {
    add_read(batch, read_slots(*batch, std::move(alone), store, ReadBatch::Planned::kGroups));
  }
  pump();
  return true;
}

void GroupedReads::enqueue(const std::shared_ptr<ReadBatch>& batch,
                           std::vector<std::shared_ptr<FetchGroup>> groups) {
  bool stopped = false;
  {
    const Lock lock(mutex_);
    stopped = stopping_;
    if (!stopped) queue_.insert(queue_.end(), groups.begin(), groups.end());
  }
  if (!stopped) {
    // It may have been cancelled before its groups were in the queue.
    if (batch->cancelled()) on_wait_or_cancel(batch);
    return;
  }
  for (const std::shared_ptr<FetchGroup>& group : groups) {
    give_up(*group, group->parts.slots, kStopped);
  }
}

std::vector<std::shared_ptr<FetchGroup>> GroupedReads::make_groups(
    const std::shared_ptr<ReadBatch>& batch, const std::shared_ptr<ObjectStore>& store) {
  std::vector<std::optional<uint64_t>> sizes_bytes(batch->size());
  for (size_t i = 0; i < batch->size(); ++i) {
    const ReadSlot& slot = batch->slot(i);
    if (fetcher_->takes(*batch, slot)) sizes_bytes[i] = slot.range.size_bytes();
  }
  const Fetcher::Limits limits = fetcher_->limits();
  std::vector<std::shared_ptr<FetchGroup>> groups;
  for (PlannedGroup& parts : plan_groups(sizes_bytes, limits.max_size_bytes, limits.max_objects)) {
    groups.push_back(fetcher_->make_group(batch, store, std::move(parts)));
  }
  return groups;
}

// The batch is waited for now, or cancelled. What is read on its behalf hears of it from the batch.
void GroupedReads::on_wait_or_cancel(const std::shared_ptr<ReadBatch>& batch) {
  std::vector<std::shared_ptr<FetchGroup>> given_up;
  std::vector<std::function<void()>> interrupts;
  if (batch->cancelled()) {
    const Lock lock(mutex_);
    std::erase_if(queue_, [&](const std::shared_ptr<FetchGroup>& group) {
      if (group->batch != batch) return false;
      given_up.push_back(group);
      return true;
    });
    for (const std::shared_ptr<FetchGroup>& group : active_) {
      if (group->batch != batch) continue;
      if (group->interrupt) interrupts.push_back(group->interrupt);
      if (!group->is_touched && !std::exchange(group->is_given_up, true)) {
        given_up.push_back(group);
      }
    }
  }
  for (const std::function<void()>& interrupt : interrupts) interrupt();
  for (const std::shared_ptr<FetchGroup>& group : given_up) {
    give_up(*group, group->parts.slots, kCancelled);
  }
  pump();
}

void GroupedReads::pump() {
  while (const std::optional<Next> each = next()) begin(*each);
}

// The next group that may start, or none. Groups wait in order, but one that somebody waits for
// only until there are fewer in progress.
std::optional<GroupedReads::Next> GroupedReads::next() {
  const Lock lock(mutex_);
  const bool is_ready = fetcher_->is_ready();
  // As many as the host tolerates: throttling lowers that number.
  const uint64_t most =
      std::min<uint64_t>(fetcher_->limits().max_in_flight, std::max<uint64_t>(1, host_limit_()));
  if (stopping_ || (is_ready && active_.size() >= most)) return {};
  bool is_full = false;
  for (auto at = queue_.begin(); at != queue_.end(); ++at) {
    FetchGroup& group = **at;
    const bool is_wanted = group.batch->waited_for();
    if (is_full && !is_wanted) continue;
    Next found;
    if (is_ready) {
      const bool at_once = is_wanted || active_.empty();
      if ((!at_once && fetcher_->holds_back(group)) || !reserve(group)) {
        is_full = true;
        continue;
      }
      found.way = fetcher_->choose(group);
    }
    found.group = std::move(*at);
    queue_.erase(at);
    active_.insert(found.group);
    return found;
  }
  return {};
}

bool GroupedReads::reserve(FetchGroup& group) {
  const uint64_t need = group.need_bytes;
  if (group.batch->waited_for()) {
    pool_->reserve(need);
  } else if (need > 0) {
    if (!try_or_ask_for_room(*pool_, [&] { return pool_->try_reserve(need); })) return false;
  }
  group.reserved_bytes = need;
  return true;
}

void GroupedReads::keep_reserved(FetchGroup& group, uint64_t bytes) {
  const uint64_t reserved_bytes = group.reserved_bytes.exchange(bytes);
  if (reserved_bytes > bytes) pool_->unreserve(reserved_bytes - bytes);
}

void GroupedReads::begin(const Next& next) {
  const std::shared_ptr<FetchGroup>& group = next.group;
  if (next.way == FetchWay::kTogether) {
    fetcher_->begin(shared_from_this(), group);
    return;
  }
  release(*group);
  if (touch(*group)) {
    end_alone(group, group->parts.slots);
  } else {
    retire(group);
  }
}

// ── For the fetcher ──────────────────────────────────────────────────────────────────────────

bool GroupedReads::touch(FetchGroup& group) {
  const Lock lock(mutex_);
  group.is_touched = true;
  if (group.is_given_up) group.failed = true;
  return !group.is_given_up;
}

void GroupedReads::set_interrupt(FetchGroup& group, std::function<void()> interrupt) {
  bool at_once = false;
  {
    const Lock lock(mutex_);
    group.interrupt = interrupt;
    at_once = stopping_ || group.batch->cancelled();
  }
  if (at_once) interrupt();
}

void GroupedReads::give_up(const FetchGroup& group, std::span<const uint32_t> slots,
                           const std::string& why) {
  ReadBatch& batch = *group.batch;
  for (const uint32_t index : slots) {
    ReadSlot& slot = batch.slot(index);
    batch.set_error(slot,
                    Error(Code::kCancelled, why).with_url(group.store->url_of(batch.name(slot))));
    batch.slot_done();
  }
}

void GroupedReads::read_alone(const FetchGroup& group, std::vector<uint32_t> slots) {
  add_read(group.batch,
           read_slots(*group.batch, std::move(slots), group.store, ReadBatch::Planned::kGroups));
}

void GroupedReads::end_alone(const std::shared_ptr<FetchGroup>& group,
                             std::vector<uint32_t> slots) {
  InnerRead read =
      read_slots(*group->batch, std::move(slots), group->store, ReadBatch::Planned::kGroups);
  read.give_back = [self = shared_from_this(), group, give_back = std::move(read.give_back)](
                       ReadBatch& outer, ReadBatch& inner) {
    for (size_t i = 0; i < inner.size(); ++i) group->failed |= inner.slot(i).error.has_value();
    // Before the batch may be done: who reads one after the other is measured so.
    self->retire(group);
    give_back(outer, inner);
    self->pump();
  };
  const std::shared_ptr<ReadBatch> inner = read.batch;
  add_read(group->batch, std::move(read));
  set_interrupt(*group, [inner] { inner->cancel(); });
}

void GroupedReads::retire(const std::shared_ptr<FetchGroup>& group) {
  fetcher_->retired(*group);
  std::function<void()> interrupt;  // destroyed without the lock
  const Lock lock(mutex_);
  active_.erase(group);
  group->interrupt.swap(interrupt);
  changed_.notify_all();
}

// ── The end ──────────────────────────────────────────────────────────────────────────────────

void GroupedReads::stop() {
  std::vector<std::shared_ptr<FetchGroup>> given_up;
  std::vector<std::function<void()>> interrupts;
  {
    const Lock lock(mutex_);
    stopping_ = true;
    given_up.assign(queue_.begin(), queue_.end());
    queue_.clear();
    for (const std::shared_ptr<FetchGroup>& group : active_) {
      if (group->interrupt) interrupts.push_back(group->interrupt);
      if (!group->is_touched && !std::exchange(group->is_given_up, true)) given_up.push_back(group);
    }
  }
  for (const std::function<void()>& interrupt : interrupts) interrupt();
  for (const std::shared_ptr<FetchGroup>& group : given_up) {
    give_up(*group, group->parts.slots, kStopped);
  }
}

bool GroupedReads::wait_retired(steady_clock::time_point until, MayBlock) {
  size_t left = 0;
  {
    const Lock lock(mutex_);
    while (!active_.empty()) {
      if (changed_.wait_until(mutex_, until) == std::cv_status::timeout) break;
    }
    left = active_.size();
  }
  if (left > 0) fetcher_->left_behind(left);
  return left == 0;
}

}  // namespace headrace
