#include "headrace/store/join_ranges.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "headrace/store/inner_reads.h"

namespace headrace {
namespace {

// The kind of the sum that has to be computed for a range while it arrives; none if there are two,
// or one that cannot be.
std::optional<ChecksumKind> sum_kind(const ReadSlot& slot, Verify verify) {
  const ChecksumKind told = slot.listed_sum.kind();
  const ChecksumKind compared = compares(verify, told) ? told : ChecksumKind::kNone;
  const ChecksumKind wanted = slot.wanted_sum;
  if (compared != ChecksumKind::kNone && wanted != ChecksumKind::kNone && compared != wanted) {
    return std::nullopt;
  }
  const ChecksumKind kind = compared != ChecksumKind::kNone ? compared : wanted;
  return kind == ChecksumKind::kNone || can_join(kind) ? std::optional(kind) : std::nullopt;
}

bool may_join(const ReadSlot& slot, const JoinRules& rules) {
  if (!slot.is_range() || slot.into.scatter() || slot.has_member() || slot.name.empty())
    return false;
  const ByteRange& asked = *slot.asked;
  if (asked.begin >= asked.end || asked.size_bytes() > rules.max_joined_bytes) return false;
  if (slot.object_bytes != kUnknownSize && asked.end > slot.object_bytes) return false;
  if (slot.into.is_callers() && slot.into.size() != asked.size_bytes()) return false;
  return sum_kind(slot, rules.verify).has_value();
}

// Of what one request could read.
auto object_of(const ReadBatch& batch, const ReadSlot& slot) {
  return std::tuple(batch.name(slot), batch.generation(slot), slot.listed_bytes,
                    slot.into.is_callers());
}

// Extends the run by a slot, which begins behind its others, if the rules allow that.
bool extend(JoinPlan::Run& run, const ReadSlot& slot, const JoinRules& rules) {
  const std::optional<ByteRange> both =
      joined(run.range, *slot.asked, *rules.max_gap_bytes, rules.max_joined_bytes);
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

std::span<const uint32_t> slots_of(const JoinPlan& plan, const JoinPlan::Run& run) {
  return std::span(plan.slots).subspan(run.first, run.count);
}

// Gives the parts of a run that was read to their slots; those that have another sum than they
// should go to `alone`.
void take_parts(ReadBatch& outer, std::span<const uint32_t> slots, ReadSlot& from,
                std::vector<uint32_t>& alone) {
  const std::vector<size_t>& mismatched = from.into.scatter()->mismatched;
  auto next = mismatched.begin();
  for (size_t part = 0; part < slots.size(); ++part) {
    if (next != mismatched.end() && *next == part) {
      alone.push_back(slots[part]);
      ++next;
    } else {
      outer.take_part(slots[part], from, part);
    }
  }
}

void take_runs(const JoinPlan& plan, const std::shared_ptr<ObjectStore>& store, ReadBatch& outer,
               ReadBatch& inner) {
  std::vector<uint32_t> alone;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const std::span<const uint32_t> slots = slots_of(plan, plan.runs[i]);
    ReadSlot& slot = inner.slot(i);
    if (slots.size() == 1) {
      outer.take_outcome(slots.front(), slot);
    } else if (slot.error && may_be_of_one(*slot.error)) {
      alone.insert(alone.end(), slots.begin(), slots.end());
    } else if (slot.error) {
      for (const uint32_t each : slots) {
        outer.set_error(outer.slot(each), *slot.error);
        outer.slot_done();
      }
    } else {
      take_parts(outer, slots, slot, alone);
    }
  }
  if (alone.empty()) return;
  add_read(outer.shared_from_this(),
           read_slots(outer, std::move(alone), store, ReadBatch::Planned::kRanges));
}

// One slot of it for each run.
InnerRead read_runs(const ReadBatch& outer, std::shared_ptr<ObjectStore> store, JoinPlan plan,
                    Verify verify) {
  std::shared_ptr<ReadBatch> inner = ReadBatch::create(plan.runs.size(), plan.runs.size() * 64);
  inner->planned = ReadBatch::Planned::kRanges;
  std::vector<JoinedPart> parts;
  for (const JoinPlan::Run& run : plan.runs) {
    const std::span<const uint32_t> slots = slots_of(plan, run);
    ReadTarget target = outer.target(slots.front());
    if (run.count > 1) {
      parts.clear();
      for (const uint32_t each : slots) {
        const ReadSlot& slot = outer.slot(each);
        const bool is_compared = compares(verify, slot.listed_sum.kind());
        parts.push_back({.range = *slot.asked,
                         .into = slot.into,
                         .expected = is_compared ? slot.listed_sum : Checksum()});
      }
      target.range = run.range;
      target.range_checksum = {};
      target.into = {};
      target.parts = parts;
      target.wanted_sum = run.sum_kind;
    }
    inner->add(target);
  }
  return {.store = store,
          .batch = std::move(inner),
          .give_back = [store, plan = std::move(plan)](ReadBatch& to, ReadBatch& from) {
            take_runs(plan, store, to, from);
          }};
}

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
    return std::tuple_cat(object_of(batch, slot),
                          std::tuple(slot.asked->begin, slot.asked->end, i));
  };
  std::ranges::sort(plan.slots, {}, key);
  for (size_t at = 0; at < plan.slots.size(); ++at) {
    const ReadSlot& slot = batch.slot(plan.slots[at]);
    const bool is_same =
        at > 0 && object_of(batch, batch.slot(plan.slots[at - 1])) == object_of(batch, slot);
    if (is_same && extend(plan.runs.back(), slot, rules)) continue;
    plan.runs.push_back(
        {.first = at, .range = *slot.asked, .sum_kind = *sum_kind(slot, rules.verify)});
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

bool join_ranges(const std::shared_ptr<ReadBatch>& batch, const std::shared_ptr<ObjectStore>& store,
                 const JoinRules& rules) {
  if (batch->planned >= ReadBatch::Planned::kRanges) return false;
  JoinPlan joins = plan_joins(*batch, rules);
  if (!joins.joins()) return false;
  std::vector<InnerRead> plan;
  plan.push_back(read_runs(*batch, store, std::move(joins), rules.verify));
  carry_out(batch, std::move(plan));
  return true;
}

}  // namespace headrace
