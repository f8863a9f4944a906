#include "headrace/store/reading/grouped_reads.h"

#include <algorithm>
#include <optional>

#include "headrace/store/slot_memory.h"

namespace headrace {
namespace {

using std::chrono::steady_clock;

constexpr const char* kCancelled = "the read was cancelled";
constexpr const char* kStopped = "the engine was stopped";

}  // namespace

GroupedReads::GroupedReads(std::shared_ptr<ObjectStore> store, std::unique_ptr<Fetcher> fetcher)
    : store_(std::move(store)), fetcher_(std::move(fetcher)), pool_(store_->pool()) {}

GroupedReads::~GroupedReads() = default;

uint64_t GroupedReads::useful_in_flight() const {
  const uint64_t alone = store_->useful_in_flight();
  if (!fetcher_->is_ready()) return alone;
  const Fetcher::Limits limits = fetcher_->limits();
  return std::max(alone, uint64_t{limits.max_in_flight} * limits.max_objects);
}

uint64_t GroupedReads::useful_ahead() const {
  return std::max(store_->useful_ahead(), 2 * useful_in_flight());
}

// ── Beginning ────────────────────────────────────────────────────────────────────────────────

void GroupedReads::read(std::shared_ptr<ReadBatch> batch) {
  Undecided undecided{.work = std::make_shared<FetchWork>(batch), .groups = {}};
  if (fetcher_->is_ready()) undecided.groups = make_groups(undecided.work);
  const Fetcher::Choice choice =
      undecided.groups.empty() ? Fetcher::Choice::kAlone : choose(undecided);
  if (choice == Fetcher::Choice::kAlone) {
    store_->read(std::move(batch));
    return;
  }
  std::vector<bool> is_grouped(batch->size());
  for (const std::shared_ptr<FetchGroup>& group : undecided.groups) {
    for (const uint32_t index : group->parts.slots) is_grouped[index] = true;
  }
  std::vector<uint32_t> alone;
  for (uint32_t i = 0; i < batch->size(); ++i) {
    if (!is_grouped[i]) alone.push_back(i);
  }
  const std::shared_ptr<FetchWork> work = undecided.work;
  batch->hand_over([self = shared_from_this(), weak = std::weak_ptr(work)] {
    if (const std::shared_ptr<FetchWork> alive = weak.lock()) self->on_wait_or_cancel(alive);
  });
  if (choice == Fetcher::Choice::kTogether) {
    enqueue(work, std::move(undecided.groups));
  } else {
    bool stopped = false;
    {
      const Lock lock(mutex_);
      stopped = stopping_;
      if (!stopped) undecided_.push_back(undecided);
    }
    if (stopped) enqueue(work, std::move(undecided.groups));
    // Whoever cancelled it a moment ago did not find it in the list.
    if (work->batch->cancelled()) on_wait_or_cancel(work);
  }
  if (!alone.empty()) read_alone(work, std::move(alone));
  pump();
  // What the choice was to wait for may have happened meanwhile.
  if (choice == Fetcher::Choice::kLater) decide();
}

Fetcher::Choice GroupedReads::choose(const Undecided& undecided) {
  uint64_t object_count = 0, size_bytes = 0;
  for (const std::shared_ptr<FetchGroup>& group : undecided.groups) {
    object_count += group->parts.slots.size();
    size_bytes += group->parts.size_bytes;
  }
  return fetcher_->choose(*undecided.work->batch, object_count, size_bytes,
                          [weak = weak_from_this()] {
                            if (const std::shared_ptr<GroupedReads> alive = weak.lock()) {
                              alive->decide_again();
                            }
                          });
}

void GroupedReads::decide_again() {
  {
    const Lock lock(mutex_);
    ++askings_;
  }
  decide();
}

// Chooses the way of batches that had to wait, as far as that is possible now.
void GroupedReads::decide() {
  while (true) {
    Undecided undecided;
    uint64_t askings = 0;
    {
      const Lock lock(mutex_);
      if (undecided_.empty()) return;
      askings = askings_;
      undecided = std::move(undecided_.front());
      undecided_.pop_front();
    }
    const Fetcher::Choice choice =
        fetcher_->is_ready() ? choose(undecided) : Fetcher::Choice::kAlone;
    if (choice == Fetcher::Choice::kTogether) {
      enqueue(undecided.work, std::move(undecided.groups));
      pump();
      continue;
    }
    if (choice == Fetcher::Choice::kLater) {
      const Lock lock(mutex_);
      // Unless it was cancelled while nobody found it.
      if (!stopping_ && !undecided.work->batch->cancelled()) {
        undecided_.push_front(std::move(undecided));
        // Whoever called `again` while the batch was out of the list did not find it there.
        if (askings != askings_) continue;
        return;
      }
    }
    std::vector<uint32_t> slots;
    for (const std::shared_ptr<FetchGroup>& group : undecided.groups) {
      slots.insert(slots.end(), group->parts.slots.begin(), group->parts.slots.end());
    }
    read_alone(undecided.work, std::move(slots));
  }
}

void GroupedReads::enqueue(const std::shared_ptr<FetchWork>& work,
                           std::vector<std::shared_ptr<FetchGroup>> groups) {
  bool stopped = false;
  {
    const Lock lock(mutex_);
    stopped = stopping_;
    if (!stopped) queue_.insert(queue_.end(), groups.begin(), groups.end());
  }
  if (!stopped) {
    // Whoever cancelled it a moment ago did not find them in the queue.
    if (work->batch->cancelled()) on_wait_or_cancel(work);
    return;
  }
  for (const std::shared_ptr<FetchGroup>& group : groups) {
    give_up(*group, group->parts.slots, kStopped);
  }
}

std::vector<std::shared_ptr<FetchGroup>> GroupedReads::make_groups(
    const std::shared_ptr<FetchWork>& work) {
  ReadBatch& batch = *work->batch;
  std::vector<std::optional<uint64_t>> sizes_bytes(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    const ReadSlot& slot = batch.slot(i);
    if (fetcher_->takes(batch, slot)) sizes_bytes[i] = slot.range.size_bytes();
  }
  const Fetcher::Limits limits = fetcher_->limits();
  std::vector<std::shared_ptr<FetchGroup>> groups;
  for (PlannedGroup& parts : plan_groups(sizes_bytes, limits.max_size_bytes, limits.max_objects)) {
    groups.push_back(fetcher_->make_group(work, std::move(parts)));
  }
  return groups;
}

// The batch is waited for now, or cancelled.
void GroupedReads::on_wait_or_cancel(const std::shared_ptr<FetchWork>& work) {
  const bool cancelled = work->batch->cancelled();
  std::vector<std::shared_ptr<ReadBatch>> inner;
  std::vector<std::shared_ptr<FetchGroup>> given_up;
  std::vector<std::function<void()>> interrupts;
  {
    const Lock lock(mutex_);
    inner = work->inner;
    if (cancelled) {
      std::erase_if(undecided_, [&](const Undecided& undecided) {
        if (undecided.work != work) return false;
        given_up.insert(given_up.end(), undecided.groups.begin(), undecided.groups.end());
        return true;
      });
      std::erase_if(queue_, [&](const std::shared_ptr<FetchGroup>& group) {
        if (group->work != work) return false;
        given_up.push_back(group);
        return true;
      });
      for (const std::shared_ptr<FetchGroup>& group : active_) {
        if (group->work != work) continue;
        if (group->interrupt) interrupts.push_back(group->interrupt);
        if (!group->is_touched && !std::exchange(group->is_given_up, true)) {
          given_up.push_back(group);
        }
      }
    }
  }
  for (const std::shared_ptr<ReadBatch>& each : inner) cancelled ? each->cancel() : each->want();
  for (const std::function<void()>& interrupt : interrupts) interrupt();
  for (const std::shared_ptr<FetchGroup>& group : given_up) {
    give_up(*group, group->parts.slots, kCancelled);
  }
  pump();
}

void GroupedReads::pump() {
  while (const std::shared_ptr<FetchGroup> group = next()) begin(group);
}

// The next group that may start, or none. Groups wait for memory in order, but one that somebody
// waits for is always admitted.
std::shared_ptr<FetchGroup> GroupedReads::next() {
  const Lock lock(mutex_);
  // As many as the host tolerates: throttling lowers that number.
  const uint64_t most = std::min<uint64_t>(fetcher_->limits().max_in_flight,
                                           std::max<uint64_t>(1, store_->useful_in_flight()));
  if (stopping_ || active_.size() >= most) return nullptr;
  bool is_full = false;
  for (auto at = queue_.begin(); at != queue_.end(); ++at) {
    if (is_full && !(*at)->batch().waited_for()) continue;
    if (!reserve(**at)) {
      is_full = true;
      continue;
    }
    std::shared_ptr<FetchGroup> group = std::move(*at);
    queue_.erase(at);
    active_.insert(group);
    return group;
  }
  return nullptr;
}

bool GroupedReads::reserve(FetchGroup& group) {
  const uint64_t need = group.need_bytes;
  if (group.batch().waited_for()) {
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

void GroupedReads::begin(const std::shared_ptr<FetchGroup>& group) {
  if (fetcher_->is_ready()) {
    fetcher_->begin(shared_from_this(), group);
    return;
  }
  release(*group);
  if (touch(*group)) read_alone(group->work, group->parts.slots);
  retire(group);
}

// ── For the fetcher ──────────────────────────────────────────────────────────────────────────

bool GroupedReads::touch(FetchGroup& group) {
  const Lock lock(mutex_);
  group.is_touched = true;
  return !group.is_given_up;
}

void GroupedReads::set_interrupt(FetchGroup& group, std::function<void()> interrupt) {
  bool at_once = false;
  {
    const Lock lock(mutex_);
    group.interrupt = interrupt;
    at_once = stopping_ || group.batch().cancelled();
  }
  if (at_once) interrupt();
}

void GroupedReads::give_up(const FetchGroup& group, std::span<const uint32_t> slots,
                           const std::string& why) {
  ReadBatch& batch = group.batch();
  for (const uint32_t index : slots) {
    ReadSlot& slot = batch.slot(index);
    batch.set_error(slot, Error(Code::kCancelled, why).with_url(url_of(batch.name(slot))));
    batch.slot_done();
  }
}

void GroupedReads::read_alone(const std::shared_ptr<FetchWork>& work, std::vector<uint32_t> slots) {
  ReadBatch& batch = *work->batch;
  const std::shared_ptr<ReadBatch> inner = ReadBatch::create(slots.size(), slots.size() * 64);
  for (const uint32_t index : slots) inner->add(batch.target(index));
  inner->then([work, slots = std::move(slots)](ReadBatch& from) {
    for (size_t i = 0; i < slots.size(); ++i) work->batch->take_outcome(slots[i], from.slot(i));
  });
  start(*store_, work, inner);
}

void GroupedReads::start(ObjectStore& store, const std::shared_ptr<FetchWork>& work,
                         const std::shared_ptr<ReadBatch>& inner) {
  {
    const Lock lock(mutex_);
    work->inner.push_back(inner);
  }
  store.read(inner);
  // Checked after it was put where on_wait_or_cancel() finds it.
  if (work->batch->cancelled()) {
    inner->cancel();
  } else if (work->batch->waited_for()) {
    inner->want();
  }
}

void GroupedReads::retire(const std::shared_ptr<FetchGroup>& group) {
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
    for (const Undecided& undecided : undecided_) {
      given_up.insert(given_up.end(), undecided.groups.begin(), undecided.groups.end());
    }
    undecided_.clear();
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
