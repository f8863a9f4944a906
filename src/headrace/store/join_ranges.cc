#include "headrace/store/join_ranges.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "headrace/base/mutex.h"

namespace headrace {
namespace {

// The kind of the sum that has to be computed for a range while it arrives; none if there are two,
// or one that cannot be.
std::optional<ChecksumKind> sum_kind(const ReadSlot& slot, Verify verify) {
  const ChecksumKind told = slot.range_checksum.kind();
  const ChecksumKind compared = compares(verify, told) ? told : ChecksumKind::kNone;
  const ChecksumKind wanted = slot.wanted_sum;
  if (compared != ChecksumKind::kNone && wanted != ChecksumKind::kNone && compared != wanted) {
    return std::nullopt;
  }
  const ChecksumKind kind = compared != ChecksumKind::kNone ? compared : wanted;
  return kind == ChecksumKind::kNone || can_join(kind) ? std::optional(kind) : std::nullopt;
}

bool may_join(const ReadSlot& slot, const JoinRules& rules) {
  if (slot.whole || slot.scatter || slot.member_size > 0 || slot.name_size == 0) return false;
  const ByteRange& asked = slot.asked;
  if (asked.begin >= asked.end || asked.size_bytes() > rules.max_joined_bytes) return false;
  if (slot.object_bytes != kUnknownSize && asked.end > slot.object_bytes) return false;
  if (slot.has_into && slot.into.size() != asked.size_bytes()) return false;
  return sum_kind(slot, rules.verify).has_value();
}

// Of what one request could read.
auto object_of(const ReadBatch& batch, const ReadSlot& slot) {
  return std::tuple(batch.name(slot), batch.generation(slot), slot.listed_bytes, slot.has_into);
}

// Extends the run by a slot, which begins behind its others, if the rules allow that.
bool extend(JoinPlan::Run& run, const ReadSlot& slot, const JoinRules& rules) {
  const std::optional<ByteRange> both =
      joined(run.range, slot.asked, *rules.max_gap_bytes, rules.max_joined_bytes);
  if (!both) return false;
  const ChecksumKind kind = *sum_kind(slot, rules.verify);
  if (kind != ChecksumKind::kNone) {
    if (run.sum_kind != ChecksumKind::kNone && run.sum_kind != kind) return false;
    run.sum_kind = kind;
  }
  run.range = *both;
  ++run.count;
  return true;
}

// Whether each of several ranges may fare otherwise than all of them together: where the object
// ends, what fits into the budget, and what the answer to one request has.
bool may_be_of_one(const Error& error) {
  return error.code() == Code::kInvalidArgument || error.code() == Code::kExhausted ||
         error.code() == Code::kCorrupt;
}

// A batch, and what reads it. The inner batches keep it alive, and it passes on to them that it is
// waited for or cancelled.
// Thread: any.
class JoinedRead : public std::enable_shared_from_this<JoinedRead> {
 public:
  JoinedRead(std::shared_ptr<ReadBatch> batch, std::shared_ptr<ObjectStore> store, JoinPlan plan)
      : batch_(std::move(batch)), store_(std::move(store)), plan_(std::move(plan)) {}

  std::shared_ptr<ReadBatch> begin(Verify verify) {
    std::shared_ptr<ReadBatch> inner = new_batch(plan_.runs.size());
    std::vector<JoinedPart> parts;
    for (const JoinPlan::Run& run : plan_.runs) {
      const std::span<const uint32_t> slots = slots_of(run);
      ReadTarget target = batch_->target(slots.front());
      if (run.count > 1) {
        parts.clear();
        for (const uint32_t each : slots) {
          const ReadSlot& slot = batch_->slot(each);
          const bool is_compared = compares(verify, slot.range_checksum.kind());
          parts.push_back({.range = slot.asked,
                           .into = slot.into,
                           .expected = is_compared ? slot.range_checksum : Checksum()});
        }
        target.range = run.range;
        target.range_checksum = {};
        target.into = {};
        target.parts = parts;
        target.wanted_sum = run.sum_kind;
      }
      inner->add(target);
    }
    inner->then([self = shared_from_this()](ReadBatch& from) { self->ended(from); });
    keep(inner);
    batch_->hand_over([weak = weak_from_this()] {
      if (const std::shared_ptr<JoinedRead> alive = weak.lock()) alive->on_wait_or_cancel();
    });
    return inner;
  }

 private:
  static std::shared_ptr<ReadBatch> new_batch(size_t slot_count) {
    std::shared_ptr<ReadBatch> inner = ReadBatch::create(slot_count, slot_count * 64);
    inner->may_join = false;
    return inner;
  }
  std::span<const uint32_t> slots_of(const JoinPlan::Run& run) const {
    return std::span(plan_.slots).subspan(run.first, run.count);
  }

  void keep(const std::shared_ptr<ReadBatch>& inner) {
    const Lock lock(mutex_);
    inner_.push_back(inner);
  }
  void on_wait_or_cancel() {
    std::vector<std::shared_ptr<ReadBatch>> inner;
    {
      const Lock lock(mutex_);
      inner = inner_;
    }
    for (const std::shared_ptr<ReadBatch>& each : inner) pass_on(*each);
  }
  void pass_on(ReadBatch& inner) const {
    if (batch_->cancelled()) {
      inner.cancel();
    } else if (batch_->waited_for()) {
      inner.want();
    }
  }

  void ended(ReadBatch& from) {
    std::vector<uint32_t> alone;
    for (size_t i = 0; i < plan_.runs.size(); ++i) {
      const std::span<const uint32_t> slots = slots_of(plan_.runs[i]);
      ReadSlot& slot = from.slot(i);
      if (slots.size() == 1) {
        batch_->take_outcome(slots.front(), slot);
      } else if (slot.error && may_be_of_one(*slot.error)) {
        alone.insert(alone.end(), slots.begin(), slots.end());
      } else if (slot.error) {
        for (const uint32_t each : slots) {
          batch_->set_error(batch_->slot(each), *slot.error);
          batch_->slot_done();
        }
      } else {
        take_parts(slots, slot, alone);
      }
    }
    if (!alone.empty()) read_alone(std::move(alone));
  }

  void take_parts(std::span<const uint32_t> slots, ReadSlot& from, std::vector<uint32_t>& alone) {
    const std::vector<size_t>& mismatched = from.scatter->mismatched;
    auto next = mismatched.begin();
    for (size_t part = 0; part < slots.size(); ++part) {
      if (next != mismatched.end() && *next == part) {
        alone.push_back(slots[part]);
        ++next;
      } else {
        batch_->take_part(slots[part], from, part);
      }
    }
  }

  void read_alone(std::vector<uint32_t> slots) {
    const std::shared_ptr<ReadBatch> inner = new_batch(slots.size());
    for (const uint32_t each : slots) inner->add(batch_->target(each));
    inner->then([self = shared_from_this(), slots = std::move(slots)](ReadBatch& from) {
      for (size_t i = 0; i < slots.size(); ++i) self->batch_->take_outcome(slots[i], from.slot(i));
    });
    keep(inner);
    store_->read(inner);
    // After it was put where on_wait_or_cancel() finds it.
    pass_on(*inner);
  }

  const std::shared_ptr<ReadBatch> batch_;
  const std::shared_ptr<ObjectStore> store_;
  const JoinPlan plan_;
  Mutex mutex_;
  std::vector<std::shared_ptr<ReadBatch>> inner_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace

std::optional<ByteRange> joined(const ByteRange& run, const ByteRange& next, uint64_t max_gap_bytes,
                                uint64_t max_joined_bytes) {
  // The gap is compared, not `end + max_gap_bytes`, which could wrap around.
  const uint64_t gap_bytes = next.begin > run.end ? next.begin - run.end : 0;
  const ByteRange both = {run.begin, std::max(run.end, next.end)};
  if (gap_bytes > max_gap_bytes || both.size_bytes() > max_joined_bytes) return std::nullopt;
  return both;
}

JoinPlan plan_joins(const ReadBatch& batch, const JoinRules& rules) {
  JoinPlan plan;
  if (!rules.max_gap_bytes) return plan;
  std::vector<uint32_t> alone;
  for (uint32_t i = 0; i < batch.size(); ++i) {
    (may_join(batch.slot(i), rules) ? plan.slots : alone).push_back(i);
  }
  if (plan.slots.size() < 2) return {};
  const auto key = [&batch](uint32_t i) {
    const ReadSlot& slot = batch.slot(i);
    return std::tuple_cat(object_of(batch, slot), std::tuple(slot.asked.begin, slot.asked.end, i));
  };
  std::ranges::sort(plan.slots, {}, key);
  for (size_t at = 0; at < plan.slots.size(); ++at) {
    const ReadSlot& slot = batch.slot(plan.slots[at]);
    const bool is_same =
        at > 0 && object_of(batch, batch.slot(plan.slots[at - 1])) == object_of(batch, slot);
    if (is_same && extend(plan.runs.back(), slot, rules)) continue;
    plan.runs.push_back(
        {.first = at, .range = slot.asked, .sum_kind = *sum_kind(slot, rules.verify)});
  }
  if (!plan.joins()) return {};
  for (const uint32_t i : alone) {
    plan.runs.push_back({.first = plan.slots.size()});
    plan.slots.push_back(i);
  }
  std::ranges::sort(plan.runs, {}, [&plan](const JoinPlan::Run& run) {
    return *std::min_element(plan.slots.begin() + static_cast<ptrdiff_t>(run.first),
                             plan.slots.begin() + static_cast<ptrdiff_t>(run.first + run.count));
  });
  return plan;
}

std::shared_ptr<ReadBatch> join_ranges(std::shared_ptr<ReadBatch> batch,
                                       std::shared_ptr<ObjectStore> store, const JoinRules& rules) {
  if (!batch->may_join) return batch;
  JoinPlan plan = plan_joins(*batch, rules);
  if (!plan.joins()) return batch;
  return std::make_shared<JoinedRead>(std::move(batch), std::move(store), std::move(plan))
      ->begin(rules.verify);
}

}  // namespace headrace
