#include "headrace/store/reading/batch_get_fetcher.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/store/slot_memory.h"

namespace headrace {
namespace {

using std::chrono::steady_clock;

// The range is asked for as it is within the object, whose size is known.
void prepare(ReadSlot& slot) {
  ReadPiece& piece = slot.first_piece;
  piece.range = slot.range;
  if (slot.running_kind == ChecksumKind::kNone && !slot.into.scatter() &&
      slot.range.size_bytes() > kSumAtOnceBytes && compares(Verify::kCrcs, slot.expected.kind())) {
    slot.running_kind = slot.expected.kind();
  }
  piece.reset(slot.running_kind);
}

}  // namespace

BatchGetFetcher::BatchGetFetcher(Service service, Resources resources, const StoreOptions& options)
    : service_(std::move(service)),
      resources_(std::move(resources)),
      options_(options.get_batch),
      verify_(options.verify),
      // So that several groups have room.
      max_size_bytes_(std::min(options_.max_size_bytes, resources_.pool->budget_bytes() / 4)) {}

bool BatchGetFetcher::is_ready() const {
  return is_allowed_.load(std::memory_order_relaxed) &&
         service_.record->taken.at(steady_clock::now()) != Learned::Treatment::kRefused &&
         !service_.record->is_paused(steady_clock::now());
}

Fetcher::Limits BatchGetFetcher::limits() const {
  // Until the first answer tells whether there are such requests, the others wait for it.
  const bool known = service_.record->taken.at(steady_clock::now()) == Learned::Treatment::kTaken;
  return {.max_size_bytes = max_size_bytes_,
          .max_objects = options_.max_objects,
          .max_in_flight = known ? options_.max_in_flight : 1};
}

bool BatchGetFetcher::takes(const ReadBatch& batch, const ReadSlot& slot) const {
  if (slot.name.empty() || slot.object_bytes == kUnknownSize || !slot.check_destination()) {
    return false;
  }
  const ByteRange& range = slot.range;
  if (range.begin > range.end || range.end > slot.object_bytes) return false;
  if (slot.is_range() && (range.size_bytes() == 0 || !service_.record->takes_ranges()))
    return false;
  // Digests take longer than an I/O thread may take; and nothing else proves a generation.
  const ChecksumKind kind = slot.expected.kind();
  const bool must_compare = compares(verify_, kind) || !batch.generation(slot).empty();
  if (must_compare && !compares(Verify::kCrcs, kind)) return false;
  return service_.gets->can_name({.name = batch.name(slot), .member = batch.member(slot)});
}

bool BatchGetFetcher::reads_alone(ReadBatch& batch, uint64_t object_count, uint64_t bytes) {
  if (options_.mode != GetBatchMode::kAuto) return options_.mode == GetBatchMode::kNever;
  BatchGetRecord* record = service_.record;
  const std::optional<FetchChoice::Ticket> ticket =
      record->begin_alone({.object_count = object_count, .size_bytes = bytes}, steady_clock::now());
  if (!ticket) return false;
  batch.then([record, ticket](ReadBatch& done) {
    bool failed = done.cancelled();
    for (size_t i = 0; i < done.size() && !failed; ++i) failed = done.slot(i).error.has_value();
    record->end(*ticket, failed, steady_clock::now());
  });
  return true;
}

struct BatchGetFetcher::Group final : FetchGroup {
  using FetchGroup::FetchGroup;

  FetchChoice::Load load() const {
    return {.object_count = parts.slots.size(), .size_bytes = parts.size_bytes};
  }

  std::optional<FetchChoice::Ticket> ticket = {};  // if its way was chosen
};

std::shared_ptr<FetchGroup> BatchGetFetcher::make_group(std::shared_ptr<ReadBatch> batch,
                                                        std::shared_ptr<ObjectStore> store,
                                                        PlannedGroup parts) const {
  auto group = std::make_shared<Group>(std::move(batch), std::move(store), std::move(parts));
  for (const uint32_t index : group->parts.slots) {
    const ReadSlot& slot = group->batch->slot(index);
    if (!slot.into.is_callers())
      group->need_bytes += BlockPool::charged_bytes(slot.range.size_bytes());
  }
  return group;
}

bool BatchGetFetcher::holds_back(const FetchGroup& group) const {
  return options_.mode == GetBatchMode::kAuto &&
         service_.record->holds_back(static_cast<const Group&>(group).load());
}

FetchWay BatchGetFetcher::choose(FetchGroup& group) {
  if (options_.mode != GetBatchMode::kAuto) return FetchWay::kTogether;
  auto& its = static_cast<Group&>(group);
  its.ticket = service_.record->begin(its.load(), steady_clock::now());
  return its.ticket->way;
}

void BatchGetFetcher::retired(FetchGroup& group) {
  const std::optional<FetchChoice::Ticket> ticket =
      std::exchange(static_cast<Group&>(group).ticket, {});
  if (ticket) service_.record->end(*ticket, group.failed, steady_clock::now());
}

void BatchGetFetcher::begin(const std::shared_ptr<GroupedReads>& reads,
                            const std::shared_ptr<FetchGroup>& group) {
  if (!reads->touch(*group)) {
    reads->release(*group);
    reads->retire(group);
    return;
  }
  ReadBatch& batch = *group->batch;
  const auto get = std::make_shared<BatchGet>();
  get->batch = group->batch;
  get->verify = verify_;
  get->record = service_.record;
  std::vector<uint32_t> alone;
  for (const uint32_t index : group->parts.slots) {
    ReadSlot& slot = batch.slot(index);
    prepare(slot);
    const Result<void> room =
        make_room_for_arrived(*resources_.pool, slot, slot.range.size_bytes());
    if (room) {
      get->slots.push_back({.index = index});
    } else {
      alone.push_back(index);
    }
  }
  reads->release(*group);
  if (!alone.empty()) GroupedReads::read_alone(*group, std::move(alone));
  if (get->slots.empty()) {
    reads->retire(group);
    return;
  }
  const std::shared_ptr<Pending<bool>> pending = service_.send(get);
  reads->set_interrupt(*group, [pending] { pending->cancel(); });
  pending->then(
      [this, reads, group, get](Result<bool> result) { ended(reads, group, *get, result); });
}

void BatchGetFetcher::ended(const std::shared_ptr<GroupedReads>& reads,
                            const std::shared_ptr<FetchGroup>& group, BatchGet& get,
                            const Result<bool>& result) {
  ReadBatch& batch = *get.batch;
  std::vector<uint32_t> rest;
  uint64_t came = 0, compared = 0, came_bytes = 0;
  for (const BatchGet::Slot& each : get.slots) {
    ReadSlot& slot = batch.slot(each.index);
    if (!each.came) {
      rest.push_back(each.index);
      give_memory_back(*resources_.pool, slot);
      continue;
    }
    ++came;
    came_bytes += slot.range.size_bytes();
    if (BatchGet::compares_sum(verify_, batch, slot)) {
      ++compared;
    } else if (!slot.is_range() && slot.range.size_bytes() > 0 && verify_ != Verify::kNone) {
      group->store->not_compared(batch.name(slot), slot.expected.kind());
    }
    end_flight(*resources_.pool, slot);
  }
  judge(*group->store, result, came, get.slots.size());
  count(resources_.metrics->objects_read_total, came);
  count(resources_.metrics->bytes_read_total, came_bytes);
  count(resources_.metrics->checksums_verified_total, compared);
  const bool is_cancelled = !result && result.error().code() == Code::kCancelled;
  group->failed = is_cancelled;
  // Before the batch may be done, after which its slots are the caller's.
  if (rest.empty() || is_cancelled) {
    reads->retire(group);
    if (is_cancelled) GroupedReads::give_up(*group, rest, result.error().message());
  } else {
    reads->end_alone(group, std::move(rest));
  }
  for (uint64_t i = 0; i < came; ++i) batch.slot_done();
  reads->pump();
}

// What an answer, or its absence, means for the requests that follow.
void BatchGetFetcher::judge(const ObjectStore& store, const Result<bool>& result, size_t came,
                            size_t asked) {
  BatchGetRecord& record = *service_.record;
  if (result) {
    // Where nothing comes that was asked for, something is wrong with the whole.
    if (came > 0) {
      record.worked();
    } else {
      record.failed(steady_clock::now(), options_.pause);
    }
    return;
  }
  const Error& error = result.error();
  if (error.code() == Code::kCancelled) return;
  if (service_.gets->is_absent(error)) {
    record.taken.note(Learned::Treatment::kRefused, steady_clock::now());
    if (options_.mode == GetBatchMode::kAlways) {
      warn_once(cat("objects of ", store.url_of(""), " are read one by one: the service has no ",
                    "requests for many objects: ", error.to_string()));
    }
    return;
  }
  if (error.code() == Code::kPermissionDenied) {
    is_allowed_ = false;
    warn_once(cat("objects of ", store.url_of(""), " are read one by one: requests for many ",
                  "objects are not allowed: ", error.to_string()));
    return;
  }
  // A stream that broke off late has saved more than it has cost.
  if (2 * came >= asked) return;
  const auto asked_pause = error.retry_after().value_or(std::chrono::milliseconds(0));
  record.failed(steady_clock::now(), std::max(asked_pause, options_.pause));
}

void BatchGetFetcher::warn_once(const std::string& text) {
  if (!warned_.exchange(true)) resources_.warnings->add(text);
}

}  // namespace headrace
