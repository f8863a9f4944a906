#include "headrace/dataset/batch_maker.h"

#include <algorithm>
#include <utility>

namespace headrace {

void OpenBatch::add(const BatchEntry& entry) {
  entries_.push_back(entry);
  total_.cost += entry.weight.cost;
  total_.bytes += entry.weight.bytes;
  largest_cost_ = std::max(largest_cost_, entry.weight.cost);
}

std::vector<BatchEntry> OpenBatch::take() {
  total_ = {};
  largest_cost_ = 0;
  std::vector<BatchEntry> next;
  next.reserve(entries_.size());  // the next batch has about as many
  return std::exchange(entries_, std::move(next));
}

BatchMaker::BatchMaker(BatchRules rules)
    : rules_(std::move(rules)), open_(rules_.boundaries.size() + 1) {}

size_t BatchMaker::band_of(const Weight& weight) const {
  const auto& boundaries = rules_.boundaries;
  return static_cast<size_t>(std::ranges::upper_bound(boundaries, weight.cost) -
                             boundaries.begin());
}

bool BatchMaker::has_room_for(const Weight& weight) const {
  const OpenBatch& batch = open_for(weight);
  return batch.entries().empty() || (batch.total().cost + weight.cost <= rules_.max_cost &&
                                     batch.total().bytes + weight.bytes <= rules_.max_bytes);
}

bool BatchMaker::is_full(const OpenBatch& batch) const {
  return batch.total().cost >= rules_.max_cost || batch.total().bytes >= rules_.max_bytes ||
         batch.entries().size() >= rules_.max_samples;
}

double BatchMaker::filled(const OpenBatch& batch) const {
  return std::max(
      {batch.total().cost / rules_.max_cost, batch.total().bytes / rules_.max_bytes,
       static_cast<double>(batch.entries().size()) / static_cast<double>(rules_.max_samples)});
}

void BatchMaker::end(OpenBatch& batch, uint64_t end, std::vector<MadeBatch>& made) {
  open_count_ -= batch.entries().size();
  made.push_back({.entries = batch.take(), .end = end});
}

bool BatchMaker::add(const BatchEntry& entry, bool joins, uint64_t before, uint64_t after,
                     std::vector<MadeBatch>& made) {
  if (rules_.oversized != Oversized::kEndsBatch && rules_.is_oversized(entry.weight)) {
    if (rules_.oversized == Oversized::kLeftOut) return false;
    made.push_back({.entries = {entry}, .end = after});
    return true;
  }
  OpenBatch& batch = open_[band_of(entry.weight)];
  if (!batch.entries().empty() && !(joins && has_room_for(entry.weight))) end(batch, before, made);
  batch.add(entry);
  ++open_count_;
  if (is_full(batch)) end(batch, after, made);
  return true;
}

void BatchMaker::flush(double more_than, uint64_t end, std::vector<MadeBatch>& made) {
  for (OpenBatch& batch : open_) {
    if (!batch.entries().empty() && filled(batch) > more_than) this->end(batch, end, made);
  }
}

}  // namespace headrace
