#include "headrace/store/reading/compose_fetcher.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "headrace/base/ascii.h"
#include "headrace/base/random.h"
#include "headrace/store/inner_reads.h"
#include "headrace/store/reading/compose_sweep.h"
#include "headrace/store/transfer/retry.h"

namespace headrace {
namespace {

using std::chrono::steady_clock;

void append_digits(std::string& to, uint64_t number) {
  for (int shift = 60; shift >= 0; shift -= 4) to += kHexDigits[(number >> shift) & 15];
}

// Half of a name's 32 digits are random; the other half is a counter.
std::string new_name_prefix(const TemporaryNames& temporaries) {
  std::string prefix = cat(temporaries.composites(), kCompositeMark);
  append_digits(prefix, random_number());
  return prefix;
}

// The caller's memory for all parts if it is contiguous; otherwise empty.
std::span<std::byte> joined_memory(ReadBatch& batch, const PlannedGroup& group) {
  std::byte* begin = nullptr;
  uint64_t size_bytes = 0;
  for (const uint32_t index : group.slots) {
    const ReadSlot& slot = batch.slot(index);
    if (!slot.into.is_callers()) return {};
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

struct ComposeFetcher::Group final : FetchGroup {
  Group(std::shared_ptr<ReadBatch> its_batch, std::shared_ptr<ObjectStore> its_store,
        PlannedGroup its_parts)
      : FetchGroup(std::move(its_batch), std::move(its_store), std::move(its_parts)),
        into(joined_memory(*batch, parts)) {
    for (const uint32_t index : parts.slots) {
      const ReadSlot& slot = batch->slot(index);
      if (!slot.into.is_callers()) parts_need += BlockPool::charged_bytes(slot.listed_bytes);
    }
    // Room for the whole and its parts. The room for the whole is released just before the read,
    // which reserves its own.
    need_bytes = parts_need + (into.empty() ? BlockPool::charged_bytes(parts.size_bytes) : 0);
  }

  const std::span<std::byte> into;  // see joined_memory()
  uint64_t parts_need = 0;          // of the memory budget
  std::string name = {}, generation = {};
  std::shared_ptr<ReadBatch> reading = {};
};

ComposeFetcher::ComposeFetcher(Bucket bucket, Resources resources, const StoreOptions& options)
    : bucket_(std::move(bucket)),
      resources_(std::move(resources)),
      options_(options.compose),
      // For a moment a group is in memory twice, whole and in parts; and there are several groups.
      max_size_bytes_(std::min(options_.max_size_bytes, resources_.pool->budget_bytes() / 8)),
      decompresses_(options.content_encoding == ContentEncoding::kDecompress),
      temporaries_(options.temporary_prefix),
      name_prefix_(new_name_prefix(temporaries_)) {}

bool ComposeFetcher::is_ready() const {
  return enabled_.load(std::memory_order_relaxed) &&
         steady_clock::now() >= paused_until_.load(std::memory_order_relaxed);
}

bool ComposeFetcher::takes(const ReadBatch& batch, const ReadSlot& slot) const {
  return !slot.is_range() && !slot.has_member() && !slot.name.empty() &&
         !batch.generation(slot).empty() && slot.listed_bytes != kUnknownSize &&
         slot.listed_sum.crc32c() &&
         (!slot.into.is_callers() || slot.into.size() == slot.listed_bytes);
}

std::shared_ptr<FetchGroup> ComposeFetcher::make_group(std::shared_ptr<ReadBatch> batch,
                                                       std::shared_ptr<ObjectStore> store,
                                                       PlannedGroup parts) const {
  return std::make_shared<Group>(std::move(batch), std::move(store), std::move(parts));
}

void ComposeFetcher::begin(const Reads& reads, const std::shared_ptr<FetchGroup>& fetch_group) {
  const auto group = std::static_pointer_cast<Group>(fetch_group);
  group->name = name_prefix_;
  append_digits(group->name, last_number_.fetch_add(1, std::memory_order_relaxed) + 1);
  const ReadBatch& batch = *group->batch;
  ComposeRequest request{
      .name = group->name, .precondition = {.generation = ""}, .give_up_when_busy = true};
  for (const uint32_t index : group->parts.slots) {
    const ReadSlot& slot = batch.slot(index);
    request.sources.push_back({.name = bucket_.root.full_name(batch.name(slot)),
                               .generation = std::string(batch.generation(slot)),
                               .size_bytes = slot.listed_bytes,
                               .crc32c = *slot.listed_sum.crc32c()});
  }
  // Nobody writes to the caller's memory until it is composed.
  bucket_.store->compose(std::move(request))->then([this, reads, group](Result<ObjectInfo> result) {
    composed(reads, group, std::move(result));
  });
  if (!swept_.exchange(true)) {
    sweep_composites(bucket_.store, temporaries_, name_prefix_,
                     std::chrono::system_clock::now() - options_.sweep_age);
  }
}

// ── Reading and splitting ────────────────────────────────────────────────────────────────────

void ComposeFetcher::composed(const Reads& reads, const std::shared_ptr<Group>& group,
                              Result<ObjectInfo> result) {
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
  const bool wanted = reads->touch(*group);
  if (!refusal && wanted) {
    read_whole(reads, group, *result);
    return;
  }
  reads->release(*group);
  if (wanted) {
    end_alone(*group, *refusal);
  }
  if (is_there) {
    remove_composite(reads, group);
  } else {
    reads->retire(group);
    reads->pump();
  }
}

void ComposeFetcher::read_whole(const Reads& reads, const std::shared_ptr<Group>& group,
                                const ObjectInfo& composite) {
  const std::shared_ptr<ReadBatch> inner = ReadBatch::create(1, 128);
  inner->add({.name = composite.name,
              .generation = composite.generation,
              .size_bytes = composite.size_bytes,
              .checksum = composite.checksum,
              .into = group->into,
              .has_into = !group->into.empty()});
  group->reading = inner;
  reads->keep_reserved(*group, group->parts_need);
  add_read(group->batch,
           {.store = bucket_.store,
            .batch = inner,
            .give_back = [this, reads, group](ReadBatch&, ReadBatch&) { arrived(reads, group); }});
  reads->set_interrupt(*group, [inner] { inner->cancel(); });
}

// Its objects are read one by one, unless it was cancelled.
void ComposeFetcher::end_alone(const Group& group, const Error& why) {
  if (why.code() == Code::kCancelled) {
    GroupedReads::give_up(group, group.parts.slots, why.message());
  } else {
    GroupedReads::read_alone(group, group.parts.slots);
  }
}

void ComposeFetcher::arrived(const Reads& reads, const std::shared_ptr<Group>& group) {
  const ReadSlot& whole = group->reading->slot(0);
  if (!whole.error) {
    // On an I/O thread it would delay other reads.
    const bool posted = resources_.compute([this, reads, group] { split(reads, group); });
    if (!posted) split(reads, group);
    return;
  }
  reads->release(*group);
  end_alone(*group, *whole.error);
  remove_composite(reads, group);
}

void ComposeFetcher::split(const Reads& reads, const std::shared_ptr<Group>& group) {
  ReadBatch& batch = *group->batch;
  ReadSlot& whole = group->reading->slot(0);
  std::vector<uint32_t> done, again;
  uint64_t begin = 0;
  for (const uint32_t index : group->parts.slots) {
    ReadSlot& slot = batch.slot(index);
    const std::span<const std::byte> part = whole.into.bytes().subspan(begin, slot.listed_bytes);
    begin += slot.listed_bytes;
    // Only the answer to a read of the part itself tells whether it has Content-Encoding: gzip.
    if (Crc32c().extended(part) != *slot.listed_sum.crc32c() ||
        (decompresses_ && looks_compressed(part))) {
      again.push_back(index);
      continue;
    }
    done.push_back(index);
    if (!slot.into.is_callers() && !part.empty()) {
      slot.into = ReadMemory(resources_.pool->allocate(part.size()));
      if (slot.into.data() == nullptr) {
        batch.set_error(slot, Error(Code::kExhausted,
                                    cat("the system has no memory for ", part.size(), " bytes"))
                                  .with_url(group->store->url_of(batch.name(slot))));
        continue;
      }
    }
    if (group->into.empty() && !part.empty()) {
      std::memcpy(slot.into.data(), part.data(), part.size());
    }
    slot.found_generation.assign(batch.generation(slot));
  }
  whole.into.release();
  reads->release(*group);
  // The whole has already been counted as one object.
  count(resources_.metrics->objects_read_total, done.size() - std::min<size_t>(done.size(), 1));
  count(resources_.metrics->checksums_verified_total, done.size());
  for (size_t i = 0; i < done.size(); ++i) batch.slot_done();
  if (!again.empty()) GroupedReads::read_alone(*group, std::move(again));
  remove_composite(reads, group);
}

// ── Deleting ─────────────────────────────────────────────────────────────────────────────────

void ComposeFetcher::remove_composite(const Reads& reads, const std::shared_ptr<Group>& group) {
  Precondition precondition;
  if (!group->generation.empty()) precondition.generation = group->generation;
  bucket_.store->remove(group->name, std::move(precondition))
      ->then([this, reads, group](Result<bool> removed) {
        const Code code = removed ? Code::kNotFound : removed.error().code();
        // When the engine stops, left_behind() reports the rest.
        const bool is_left = code != Code::kNotFound && code != Code::kCancelled;
        if (is_left) {
          if (code == Code::kPermissionDenied) enabled_ = false;
          warn_once(Notice::kNotDeleted,
                    cat("a temporary object could not be deleted: ", removed.error().to_string(),
                        code == Code::kPermissionDenied ? ". No more objects are composed" : "",
                        ". `headrace clean ", bucket_.store->url_of(""),
                        "` removes what was left behind; it needs ",
                        "the permission storage.objects.delete"));
        }
        reads->retire(group);
        reads->pump();
      });
}

void ComposeFetcher::left_behind(size_t group_count) {
  warn_once(
      Notice::kNotDeleted,
      cat(group_count, group_count == 1 ? " temporary object" : " temporary objects",
          " could not be deleted before the end. The next process that composes objects there, ",
          "or `headrace clean ", bucket_.store->url_of(""), "`, removes them"));
}

// ── What the service refuses ─────────────────────────────────────────────────────────────────

void ComposeFetcher::note_refusal(const Error& error) {
  switch (error.code()) {
    case Code::kCancelled:
    case Code::kNotFound:            // a source is gone, ...
    case Code::kPreconditionFailed:  // ... or has changed, ...
    case Code::kCorrupt:             // ... or that went unnoticed: reading one by one tells which
      return;
    case Code::kPermissionDenied:
      enabled_ = false;
      warn_once(Notice::kNoPermission,
                cat("objects of ", bucket_.store->url_of(bucket_.root.text()),
                    " are read one by one, not composed: ", error.to_string(),
                    ". Composing needs the permissions storage.objects.create, ",
                    "storage.objects.get and storage.objects.delete"));
      return;
    case Code::kThrottled:
    case Code::kUnavailable:
    case Code::kTimedOut: break;
    case Code::kInvalidArgument:
    case Code::kExhausted:
    case Code::kInternal:
      warn_once(Notice::kRefused, cat("objects of ", bucket_.store->url_of(bucket_.root.text()),
                                      " are read one by one, not composed: ", error.to_string()));
      break;
  }
  const auto asked = error.retry_after().value_or(std::chrono::milliseconds(0));
  paused_until_ = steady_clock::now() + std::max(asked, options_.pause);
}

void ComposeFetcher::warn_once(Notice notice, const std::string& text) {
  const auto bit = static_cast<uint8_t>(1u << static_cast<uint8_t>(notice));
  if ((warned_.fetch_or(bit) & bit) == 0) resources_.warnings->add(text);
}

}  // namespace headrace
