#include "headrace/dataset/mixture_order.h"

#include "headrace/base/split_mix.h"

namespace headrace {
namespace {

// Positions of the endless sequence: an epoch is any 64-bit number, and so is its length.
__extension__ using Wide = unsigned __int128;

constexpr uint64_t kMixturePurpose = 0x6D697874757265;  // "mixture"

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
    out.sources_.push_back(
        {.begin = begin,
         .count = counts[i],
         .seed = split_mix((split_mix(seed ^ kMixturePurpose) ^ i) + kSplitMixStep)});
    begin += counts[i];
  }
  out.schedule_ = std::move(schedule);
  out.count_ = count;
  out.epoch_ = epoch;
  out.shuffle_ = shuffle;
  return out;
}

uint64_t MixtureOrder::Reader::index(uint64_t position) {
  const MixtureSchedule& schedule = *order_.schedule_;
  const Wide at = Wide{order_.epoch_} * order_.count_ + position;
  const MixtureSchedule::Draw draw = schedule.at(static_cast<uint64_t>(at % schedule.period()));
  const Source& source = order_.sources_[draw.source];
  const Wide number = at / schedule.period() * schedule.parts()[draw.source] + draw.number;
  const auto pass = static_cast<uint64_t>(number / source.count);
  std::optional<Pass>& latest = passes_[draw.source];
  if (!latest || latest->number != pass) {
    latest.emplace(
        Pass{.number = pass, .order = Order(source.count, source.seed, pass, order_.shuffle_)});
  }
  return source.begin + latest->order.index(static_cast<uint64_t>(number % source.count));
}

void MixtureOrder::indices(uint64_t begin, std::span<int64_t> out) const {
  Reader reader(*this);
  for (int64_t& index : out) index = static_cast<int64_t>(reader.index(begin++));
}

}  // namespace headrace
