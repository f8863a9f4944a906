#include "headrace/store/reading/joined_reads.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <span>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/store/reading/joined_groups.h"
#include "headrace/store/reading/joined_sweep.h"
#include "headrace/store/reading/slot_memory.h"
#include "headrace/store/transfer/retry.h"

namespace headrace {
namespace {

using std::chrono::steady_clock;

void append_digits(std::string& to, uint64_t number) {
  for (int shift = 60; shift >= 0; shift -= 4) to += kHexDigits[(number >> shift) & 15];
}

// Half of a name's 32 digits are random; the other half is a counter.
std::string new_name_prefix(const TemporaryNames& temporaries) {
  std::random_device random;
  std::string prefix = cat(temporaries.composites(), kCompositeMark);
  append_digits(prefix, (uint64_t{random()} << 32) | random());
  return prefix;
}

bool may_be_joined(const ReadBatch& batch, const ReadSlot& slot) {
  return slot.whole && slot.name_size > 0 && !batch.generation(slot).empty() &&
         slot.listed_bytes != kUnknownSize && slot.listed_checksum.crc32c() &&
         (!slot.has_into || slot.into.size() == slot.listed_bytes);
}

// The caller's memory for all parts if it is contiguous; otherwise empty.
std::span<std::byte> joined_memory(ReadBatch& batch, const JoinGroup& group) {
  std::byte* begin = nullptr;
  uint64_t size_bytes = 0;
  for (const uint32_t index : group.slots) {
    const ReadSlot& slot = batch.slot(index);
    if (!slot.has_into) return {};
    if (slot.into.empty()) continue;
    if (begin == nullptr) begin = slot.into.data();
    if (slot.into.data() != begin + size_bytes) return {};
    size_bytes += slot.into.size();
  }
  return {begin, size_bytes};
}

// A request that failed this way may have been carried out.
bool may_have_been_done(const Error& error) {
  if (error.attempts() == 0 && error.http_status() == 0) return false;  // it was never sent
  return error.code() == Code::kCorrupt || error.code() == Code::kCancelled ||
         (is_retryable(error) && error.code() != Code::kThrottled);
}

bool looks_compressed(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

}  // namespace

struct JoinedReads::Work {
  const std::shared_ptr<ReadBatch> batch;
  std::vector<std::shared_ptr<ReadBatch>> inner = {};  // under `mutex_`: what reads parts of it
};

struct JoinedReads::Group {
  const std::shared_ptr<Work> work;
  const JoinGroup parts;
  const std::span<std::byte> into;  // see joined_memory()
  const uint64_t parts_need;        // of the memory budget
  std::string name = {}, generation = {};
  std::shared_ptr<ReadBatch> reading = {};
  std::atomic<uint64_t> reserved_bytes = 0;
  // Guarded by `mutex_`. During composing nobody writes to the caller's memory, so cancelling ends
  // the slots at once.
  bool composing = true, given_up = false;
};

JoinedReads::JoinedReads(std::shared_ptr<ObjectStore> store, Bucket bucket, Resources resources,
                         const StoreOptions& options)
    : store_(std::move(store)),
      bucket_(std::move(bucket)),
      resources_(std::move(resources)),
      options_(options.join),
      // For a moment a group is in memory twice, whole and in parts; and there are several groups.
      max_size_bytes_(std::min(options_.max_size_bytes, resources_.pool->budget_bytes() / 8)),
      decompresses_(options.content_encoding == ContentEncoding::kDecompress),
      temporaries_(options.temporary_prefix),
      name_prefix_(new_name_prefix(temporaries_)) {}

JoinedReads::~JoinedReads() = default;

bool JoinedReads::may_join() const {
  return enabled_.load(std::memory_order_relaxed) &&
         steady_clock::now() >= paused_until_.load(std::memory_order_relaxed);
}

uint64_t JoinedReads::useful_in_flight() const {
  const uint64_t alone = store_->useful_in_flight();
  if (!may_join()) return alone;
  return std::max(alone, uint64_t{options_.max_in_flight} * options_.max_objects);
}

// ── Beginning ────────────────────────────────────────────────────────────────────────────────

void JoinedReads::read(std::shared_ptr<ReadBatch> batch) {
  const auto work = std::make_shared<Work>(batch);
  std::vector<std::shared_ptr<Group>> groups;
  if (may_join()) groups = make_groups(work);
  if (groups.empty()) {
    store_->read(std::move(batch));
    return;
  }
  std::vector<bool> is_joined(batch->size());
  for (const std::shared_ptr<Group>& group : groups) {
    for (const uint32_t index : group->parts.slots) is_joined[index] = true;
  }
  std::vector<uint32_t> alone;
  for (uint32_t i = 0; i < batch->size(); ++i) {
    if (!is_joined[i]) alone.push_back(i);
  }
  batch->hand_over([self = shared_from_this(), weak = std::weak_ptr(work)] {
    if (const std::shared_ptr<Work> alive = weak.lock()) self->on_wait_or_cancel(alive);
  });
  bool stopped = false;
  {
    const Lock lock(mutex_);
    stopped = stopping_;
    if (!stopped) queue_.insert(queue_.end(), groups.begin(), groups.end());
  }
  if (stopped) {
    for (const std::shared_ptr<Group>& group : groups) give_up(*group, "the engine was stopped");
  }
  if (!alone.empty()) read_alone(work, std::move(alone));
  pump();
}

std::vector<std::shared_ptr<JoinedReads::Group>> JoinedReads::make_groups(
    const std::shared_ptr<Work>& work) {
  ReadBatch& batch = *work->batch;
  std::vector<std::optional<uint64_t>> sizes_bytes(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    const ReadSlot& slot = batch.slot(i);
    if (may_be_joined(batch, slot)) sizes_bytes[i] = slot.listed_bytes;
  }
  std::vector<std::shared_ptr<Group>> groups;
  for (JoinGroup& parts : plan_groups(sizes_bytes, max_size_bytes_, options_.max_objects)) {
    const std::span<std::byte> into = joined_memory(batch, parts);
    uint64_t parts_need = 0;
    for (const uint32_t index : parts.slots) {
      const ReadSlot& slot = batch.slot(index);
      if (!slot.has_into) parts_need += BlockPool::charged_bytes(slot.listed_bytes);
    }
    groups.push_back(std::make_shared<Group>(work, std::move(parts), into, parts_need));
  }
  return groups;
}

// The batch is waited for now, or cancelled.
void JoinedReads::on_wait_or_cancel(const std::shared_ptr<Work>& work) {
  const bool cancelled = work->batch->cancelled();
  std::vector<std::shared_ptr<ReadBatch>> inner;
  std::vector<std::shared_ptr<Group>> given_up;
  {
    const Lock lock(mutex_);
    inner = work->inner;
    if (cancelled) {
      std::erase_if(queue_, [&](const std::shared_ptr<Group>& group) {
        if (group->work != work) return false;
        given_up.push_back(group);
        return true;
      });
      for (const std::shared_ptr<Group>& group : active_) {
        if (group->work != work || !group->composing || group->given_up) continue;
        group->given_up = true;
        given_up.push_back(group);
      }
    }
  }
  for (const std::shared_ptr<ReadBatch>& each : inner) cancelled ? each->cancel() : each->want();
  for (const std::shared_ptr<Group>& group : given_up) give_up(*group, "the read was cancelled");
  pump();
}

void JoinedReads::pump() {
  while (const std::shared_ptr<Group> group = next()) begin(group);
}

// The next group that may start, or none. Groups wait for memory in order, but one that somebody
// waits for is always admitted.
std::shared_ptr<JoinedReads::Group> JoinedReads::next() {
  const Lock lock(mutex_);
  // As many as the host tolerates: throttling lowers that number.
  const uint64_t most =
      std::min<uint64_t>(options_.max_in_flight, std::max<uint64_t>(1, store_->useful_in_flight()));
  if (stopping_ || active_.size() >= most) return nullptr;
  bool is_full = false;
  for (auto at = queue_.begin(); at != queue_.end(); ++at) {
    if (is_full && !(*at)->work->batch->waited_for()) continue;
    if (!reserve(**at)) {
      is_full = true;
      continue;
    }
    std::shared_ptr<Group> group = std::move(*at);
    queue_.erase(at);
    active_.insert(group);
    return group;
  }
  return nullptr;
}

// Room for the whole and its parts. The room for the whole is released just before the read, which
// reserves its own.
bool JoinedReads::reserve(Group& group) {
  const uint64_t whole = group.into.empty() ? BlockPool::charged_bytes(group.parts.size_bytes) : 0;
  const uint64_t need = whole + group.parts_need;
  if (group.work->batch->waited_for()) {
    resources_.pool->reserve(need);
  } else if (need > 0) {
    BlockPool& pool = *resources_.pool;
    if (!try_or_ask_for_room(pool, [&] { return pool.try_reserve(need); })) return false;
  }
  group.reserved_bytes = need;
  return true;
}

void JoinedReads::release(Group& group) {
  const uint64_t reserved_bytes = group.reserved_bytes.exchange(0);
  if (reserved_bytes > 0) resources_.pool->unreserve(reserved_bytes);
}

void JoinedReads::begin(const std::shared_ptr<Group>& group) {
  bool joins = may_join(), given_up = false, sweeps = false;
  {
    const Lock lock(mutex_);
    given_up = group->given_up;
    joins = joins && !given_up;
    group->composing = joins;
    if (joins) {
      group->name = name_prefix_;
      append_digits(group->name, ++last_number_);
      sweeps = !std::exchange(swept_, true);
    }
  }
  if (!joins) {
    release(*group);
    if (!given_up) read_alone(group->work, group->parts.slots);
    retire(group);
    return;
  }
  const ReadBatch& batch = *group->work->batch;
  ComposeRequest request{
      .name = group->name, .precondition = {.generation = ""}, .give_up_when_busy = true};
  for (const uint32_t index : group->parts.slots) {
    const ReadSlot& slot = group->work->batch->slot(index);
    request.sources.push_back({.name = bucket_.root.full_name(batch.name(slot)),
                               .generation = std::string(batch.generation(slot)),
                               .size_bytes = slot.listed_bytes,
                               .crc32c = *slot.listed_checksum.crc32c()});
  }
  bucket_.store->compose(std::move(request))
      ->then([self = shared_from_this(), group](Result<ObjectInfo> result) {
        self->composed(group, std::move(result));
      });
  if (sweeps) {
    sweep_composites(bucket_.store, temporaries_, name_prefix_,
                     std::chrono::system_clock::now() - options_.sweep_age);
  }
}

// ── Reading and splitting ────────────────────────────────────────────────────────────────────

void JoinedReads::composed(const std::shared_ptr<Group>& group, Result<ObjectInfo> result) {
  std::optional<Error> refusal;
  bool is_there = true;
  if (!result) {
    refusal = result.error();
    is_there = may_have_been_done(*refusal);
  } else {
    group->generation = result->generation;
    // Sources may be composed themselves. If the server reports no count, there is nothing to
    // check.
    const uint32_t count = result->component_count;
    if (count != 0 && count < group->parts.slots.size()) {
      refusal = Error(Code::kCorrupt, cat("it is composed of ", count, " components instead of ",
                                          group->parts.slots.size()));
    }
  }
  if (refusal) note_refusal(*refusal);
  bool given_up = false;
  {
    const Lock lock(mutex_);
    given_up = group->given_up;
    group->composing = false;
  }
  if (!refusal && !given_up) {
    read_whole(group, *result);
    return;
  }
  release(*group);
  if (!given_up) {
    if (refusal->code() == Code::kCancelled) {
      give_up(*group, refusal->message());
    } else {
      read_alone(group->work, group->parts.slots);
    }
  }
  if (is_there) {
    remove_composite(group);
  } else {
    retire(group);
  }
}

void JoinedReads::read_whole(const std::shared_ptr<Group>& group, const ObjectInfo& composite) {
  const std::shared_ptr<ReadBatch> inner = ReadBatch::create(1, 128);
  inner->add({.name = composite.name,
              .generation = composite.generation,
              .size_bytes = composite.size_bytes,
              .checksum = composite.checksum,
              .into = group->into,
              .has_into = !group->into.empty()});
  inner->then([self = shared_from_this(), group](ReadBatch&) { self->arrived(group); });
  bool stopping = false;
  {
    const Lock lock(mutex_);
    group->reading = inner;
    stopping = stopping_;
  }
  if (stopping) inner->cancel();
  const uint64_t reserved_bytes = group->reserved_bytes.exchange(group->parts_need);
  resources_.pool->unreserve(reserved_bytes - group->parts_need);
  start(*bucket_.store, group->work, inner);
}

void JoinedReads::arrived(const std::shared_ptr<Group>& group) {
  const ReadSlot& whole = group->reading->slot(0);
  if (!whole.error) {
    // On an I/O thread it would delay other reads.
    const bool posted =
        resources_.compute([self = shared_from_this(), group] { self->split(group); });
    if (!posted) split(group);
    return;
  }
  release(*group);
  if (whole.error->code() == Code::kCancelled) {
    give_up(*group, whole.error->message());
  } else {
    read_alone(group->work, group->parts.slots);
  }
  remove_composite(group);
}

void JoinedReads::split(const std::shared_ptr<Group>& group) {
  ReadBatch& batch = *group->work->batch;
  ReadSlot& whole = group->reading->slot(0);
  std::vector<uint32_t> done, again;
  uint64_t begin = 0;
  for (const uint32_t index : group->parts.slots) {
    ReadSlot& slot = batch.slot(index);
    const std::span<const std::byte> part = whole.into.subspan(begin, slot.listed_bytes);
    begin += slot.listed_bytes;
    // Only the answer to a read of the part itself tells whether it has Content-Encoding: gzip.
    if (Crc32c().extended(part) != *slot.listed_checksum.crc32c() ||
        (decompresses_ && looks_compressed(part))) {
      again.push_back(index);
      continue;
    }
    done.push_back(index);
    if (!slot.has_into && !part.empty()) {
      slot.block = resources_.pool->allocate(part.size());
      slot.into = slot.block.bytes();
      if (slot.block.data() == nullptr) {
        batch.set_error(slot, Error(Code::kExhausted,
                                    cat("the system has no memory for ", part.size(), " bytes"))
                                  .with_url(url_of(batch.name(slot))));
        continue;
      }
    }
    if (group->into.empty() && !part.empty()) {
      std::memcpy(slot.into.data(), part.data(), part.size());
    }
    slot.found_generation.assign(batch.generation(slot));
  }
  whole.block.release();
  release(*group);
  // The whole has already been counted as one object.
  count(resources_.metrics->objects_read_total, done.size() - std::min<size_t>(done.size(), 1));
  count(resources_.metrics->checksums_verified_total, done.size());
  for (size_t i = 0; i < done.size(); ++i) batch.slot_done();
  if (!again.empty()) read_alone(group->work, std::move(again));
  remove_composite(group);
}

// The slots end with kCancelled.
void JoinedReads::give_up(const Group& group, const std::string& why) {
  ReadBatch& batch = *group.work->batch;
  for (const uint32_t index : group.parts.slots) {
    ReadSlot& slot = batch.slot(index);
    batch.set_error(slot, Error(Code::kCancelled, why).with_url(url_of(batch.name(slot))));
    batch.slot_done();
  }
}

// ── Deleting ─────────────────────────────────────────────────────────────────────────────────

void JoinedReads::remove_composite(const std::shared_ptr<Group>& group) {
  Precondition precondition;
  if (!group->generation.empty()) precondition.generation = group->generation;
  bucket_.store->remove(group->name, std::move(precondition))
      ->then([self = shared_from_this(), group](Result<bool> removed) {
        const Code code = removed ? Code::kNotFound : removed.error().code();
        // When the engine stops, whoever waits for the deletions reports what is left.
        const bool is_left = code != Code::kNotFound && code != Code::kCancelled;
        if (is_left) {
          if (code == Code::kPermissionDenied) self->enabled_ = false;
          self->warn_once(
              Notice::kNotDeleted,
              cat("a temporary object could not be deleted: ", removed.error().to_string(),
                  code == Code::kPermissionDenied ? ". No more objects are joined" : "",
                  ". `headrace clean ", self->bucket_.store->url_of(""),
                  "` removes what was left behind; it needs ",
                  "the permission storage.objects.delete"));
        }
        self->retire(group);
        self->pump();
      });
}

void JoinedReads::retire(const std::shared_ptr<Group>& group) {
  const Lock lock(mutex_);
  active_.erase(group);
  group->reading.reset();
  changed_.notify_all();
}

void JoinedReads::stop() {
  std::vector<std::shared_ptr<Group>> given_up;
  std::vector<std::shared_ptr<ReadBatch>> reading;
  {
    const Lock lock(mutex_);
    stopping_ = true;
    given_up.assign(queue_.begin(), queue_.end());
    queue_.clear();
    for (const std::shared_ptr<Group>& group : active_) {
      if (group->composing && !std::exchange(group->given_up, true)) given_up.push_back(group);
      if (group->reading) reading.push_back(group->reading);
    }
  }
  for (const std::shared_ptr<ReadBatch>& each : reading) each->cancel();
  for (const std::shared_ptr<Group>& group : given_up) give_up(*group, "the engine was stopped");
}

bool JoinedReads::wait_deleted(steady_clock::time_point until, MayBlock) {
  size_t left = 0;
  {
    const Lock lock(mutex_);
    while (!active_.empty()) {
      if (changed_.wait_until(mutex_, until) == std::cv_status::timeout) break;
    }
    left = active_.size();
  }
  if (left == 0) return true;
  warn_once(Notice::kNotDeleted,
            cat(left, left == 1 ? " temporary object" : " temporary objects",
                " could not be deleted before the end. The next process that joins objects there, ",
                "or `headrace clean ", bucket_.store->url_of(""), "`, removes them"));
  return false;
}

// ── One by one ───────────────────────────────────────────────────────────────────────────────

void JoinedReads::read_alone(const std::shared_ptr<Work>& work, std::vector<uint32_t> slots) {
  ReadBatch& batch = *work->batch;
  const std::shared_ptr<ReadBatch> inner = ReadBatch::create(slots.size(), slots.size() * 64);
  for (const uint32_t index : slots) inner->add(batch.target(index));
  inner->then([work, slots = std::move(slots)](ReadBatch& from) {
    for (size_t i = 0; i < slots.size(); ++i) work->batch->take_outcome(slots[i], from.slot(i));
  });
  start(*store_, work, inner);
}

// Starts a batch that reads part of another: being waited for or cancelled passes on to it.
void JoinedReads::start(ObjectStore& store, const std::shared_ptr<Work>& work,
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

// ── What the service refuses ─────────────────────────────────────────────────────────────────

void JoinedReads::note_refusal(const Error& error) {
  switch (error.code()) {
    case Code::kCancelled:
    case Code::kNotFound:            // a source is gone, ...
    case Code::kPreconditionFailed:  // ... or has changed, ...
    case Code::kCorrupt:             // ... or that went unnoticed: reading one by one tells which
      return;
    case Code::kPermissionDenied:
      enabled_ = false;
      warn_once(Notice::kNoPermission,
                cat("objects of ", url_of(""), " are read one by one, not joined: ",
                    error.to_string(), ". Joining needs the permissions storage.objects.create, ",
                    "storage.objects.get and storage.objects.delete"));
      return;
    case Code::kThrottled:
    case Code::kUnavailable:
    case Code::kTimedOut: break;
    case Code::kInvalidArgument:
    case Code::kExhausted:
    case Code::kInternal:
      warn_once(Notice::kRefused, cat("objects of ", url_of(""),
                                      " are read one by one, not joined: ", error.to_string()));
      break;
  }
  const auto asked = error.retry_after().value_or(std::chrono::milliseconds(0));
  paused_until_ = steady_clock::now() + std::max(asked, options_.pause);
}

void JoinedReads::warn_once(Notice notice, const std::string& text) {
  const auto bit = static_cast<uint8_t>(1u << static_cast<uint8_t>(notice));
  if ((warned_.fetch_or(bit) & bit) == 0) resources_.warnings->add(text);
}

}  // namespace headrace
