#include "headrace/dataset/mixture_order.h"

#include <optional>

#include "headrace/base/split_mix.h"

namespace headrace {
namespace {

// Positions of the endless sequence: an epoch is any 64-bit number, and so is its length.
__extension__ using Wide = unsigned __int128;

constexpr uint64_t kPurpose = 0x6D697874757265;  // "mixture"

// Where a source is in its passes.
struct Pass {
  uint64_t number;  // the pass itself
  uint64_t at;      // the next sample of it
  Order order;
};

}  // namespace

Result<MixtureOrder> MixtureOrder::create(std::shared_ptr<const MixtureSchedule> schedule,
                                          std::span<const uint64_t> counts, uint64_t count,
                                          uint64_t seed, uint64_t epoch, bool shuffle) {
  if (counts.size() != schedule->source_count()) {
    return fail(Code::kInvalidArgument, "there are ", counts.size(), " sources and ",
                schedule->source_count(), " weights");
  }
  MixtureOrder out;
  uint64_t begin = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) return fail(Code::kInvalidArgument, "source ", i, " has no samples");
    if (counts[i] > uint64_t{INT64_MAX} - begin) {
      return fail(Code::kInvalidArgument, "the sources have 2^63 samples or more");
    }
    out.sources_.push_back({.begin = begin,
                            .count = counts[i],
                            .seed = split_mix((split_mix(seed ^ kPurpose) ^ i) + kSplitMixStep)});
    begin += counts[i];
  }
  out.schedule_ = std::move(schedule);
  out.count_ = count;
  out.epoch_ = epoch;
  out.shuffle_ = shuffle;
  return out;
}

void MixtureOrder::indices(uint64_t begin, std::span<int64_t> out) const {
  const Wide first = Wide{epoch_} * count_ + begin;
  const uint64_t period = schedule_->period();
  Wide round = first / period;
  auto at = static_cast<uint64_t>(first % period);
  std::vector<std::optional<Pass>> passes(sources_.size());
  for (int64_t& index : out) {
    const size_t k = schedule_->source(at);
    const Source& source = sources_[k];
    std::optional<Pass>& pass = passes[k];
    if (!pass) {
      const Wide number = round * schedule_->parts()[k] + schedule_->at(at).number;
      const auto of = static_cast<uint64_t>(number / source.count);
      pass.emplace(Pass{.number = of,
                        .at = static_cast<uint64_t>(number % source.count),
                        .order = Order(source.count, source.seed, of, shuffle_)});
    } else if (pass->at == source.count) {
      const uint64_t of = pass->number + 1;
      pass.emplace(
          Pass{.number = of, .at = 0, .order = Order(source.count, source.seed, of, shuffle_)});
    }
    index = static_cast<int64_t>(source.begin + pass->order.index(pass->at++));
    if (++at == period) {
      at = 0;
      ++round;
    }
  }
}

}  // namespace headrace
