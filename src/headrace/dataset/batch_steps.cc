#include "headrace/dataset/batch_steps.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace headrace {
namespace {

// Where to cut a batch of several samples so that both parts have about the same load.
template <class Load>
size_t middle_of(const std::vector<BatchEntry>& batch, Load load) {
  double sum = 0, before = 0;
  for (const BatchEntry& entry : batch) sum += load(entry);
  for (size_t at = 1; at + 1 < batch.size(); ++at) {
    before += load(batch[at - 1]);
    if (before >= sum / 2) return at;
  }
  return batch.size() - 1;
}

}  // namespace

BatchSteps::BatchSteps(BatchRules rules, StepRules steps, uint64_t count, uint64_t position)
    : steps_(steps),
      count_(count),
      begin_(position),
      maker_(std::move(rules)),
      position_(position) {}

void BatchSteps::add_all(std::vector<MadeBatch> made) {
  for (MadeBatch& batch : made) {
    made_count_ += batch.entries.size();
    made_.push_back(std::move(batch));
  }
}

bool BatchSteps::add_waiting(const BatchEntry& entry, bool joins) {
  std::vector<MadeBatch> made;
  const bool is_in = maker_.add(entry, joins, begin_, begin_, made);
  add_all(std::move(made));
  return is_in;
}

bool BatchSteps::add(const Weight& weight, bool joins) {
  const uint64_t at = position_++;
  std::vector<MadeBatch> made;  // takes no memory while it is empty
  const bool is_in = maker_.add({.position = at, .weight = weight}, joins, at, at + 1, made);
  add_all(std::move(made));
  return is_in;
}

bool BatchSteps::is_ready() const {
  if (position_ >= count_) return true;
  if (made_.size() < steps_.world_size) return false;
  if (steps_.drop_last) return true;
  // Only a step after which enough samples are left for another one cannot be one of the last two.
  uint64_t left = left_count();
  for (uint64_t i = 0; i < steps_.world_size; ++i) left -= made_[i].entries.size();
  return left >= steps_.world_size;
}

std::optional<BatchStep> BatchSteps::next() {
  if (position_ < count_) return take_step();
  std::vector<MadeBatch> made;
  maker_.flush(steps_.drop_last ? steps_.saturation : -1, count_, made);
  add_all(std::move(made));
  if (steps_.drop_last) {
    if (made_.size() < steps_.world_size) return std::nullopt;
    return take_step();
  }
  return last_steps();
}

std::optional<BatchStep> BatchSteps::last_steps() {
  const uint64_t ranks = steps_.world_size, left = left_count();
  if (left < ranks) return std::nullopt;
  if (left == ranks) {
    // Whatever batches these samples would have made, which earlier steps may have changed.
    std::vector<std::vector<BatchEntry>> alone;
    for (const BatchEntry& entry : take_all()) alone.push_back({entry});
    return BatchStep{.batches = std::move(alone), .position = count_, .waiting = {}};
  }
  if (made_.size() <= ranks) {
    std::vector<std::vector<BatchEntry>> batches;
    batches.reserve(made_.size());
    for (MadeBatch& batch : made_) batches.push_back(std::move(batch.entries));
    made_.clear();
    made_count_ = 0;
    BatchStep step = cut(std::move(batches));
    step.position = count_;
    return step;
  }
  uint64_t in_step = 0;
  for (uint64_t i = 0; i < ranks; ++i) in_step += made_[i].entries.size();
  const uint64_t rest = left - in_step;
  if (rest >= ranks || left < 2 * ranks) return take_step();
  // The next step would have fewer samples than ranks: this one leaves it some of its last.
  std::vector<std::vector<BatchEntry>> batches;
  batches.reserve(ranks);
  for (uint64_t i = 0; i < ranks; ++i) batches.push_back(std::move(made_[i].entries));
  made_.erase(made_.begin(), made_.begin() + static_cast<std::ptrdiff_t>(ranks));
  std::vector<BatchEntry> moved;
  while (moved.size() < ranks - rest) {
    moved.push_back(batches.back().back());
    batches.back().pop_back();
    if (batches.back().empty()) batches.pop_back();
  }
  BatchStep step = cut(std::move(batches));
  made_.push_back({.entries = std::move(moved), .end = count_});
  std::vector<BatchEntry> all = take_all();
  step.position = count_;
  for (const BatchEntry& entry : all) step.waiting.push_back(entry.position);
  while (!step.waiting.empty() && step.waiting.back() + 1 == step.position) {
    step.waiting.pop_back();
    --step.position;
  }
  made_count_ = all.size();
  made_.push_back({.entries = std::move(all), .end = count_});
  return step;
}

BatchStep BatchSteps::take_step() {
  BatchStep step;
  for (uint64_t i = 0; i < steps_.world_size; ++i) {
    MadeBatch& batch = made_.front();
    made_count_ -= batch.entries.size();
    step.position = batch.end;
    step.batches.push_back(std::move(batch.entries));
    made_.pop_front();
  }
  step.waiting.reserve(left_count());
  const auto wait = [&step](std::span<const BatchEntry> entries) {
    for (const BatchEntry& entry : entries) {
      if (entry.position >= step.position) break;  // and those after it, in one batch
      step.waiting.push_back(entry.position);
    }
  };
  for (const MadeBatch& batch : made_) wait(batch.entries);
  for (const OpenBatch& batch : maker_.open()) wait(batch.entries());
  return step;
}

// Halves batches, always the one of the largest load, until each rank has one.
BatchStep BatchSteps::cut(std::vector<std::vector<BatchEntry>> batches) const {
  const BatchRules& rules = maker_.rules();
  const auto load = [&rules](const BatchEntry& entry) {
    if (std::isfinite(rules.max_cost)) return entry.weight.cost;
    return std::isfinite(rules.max_bytes) ? entry.weight.bytes : 1.0;
  };
  const auto sum = [&load](const std::vector<BatchEntry>& batch) {
    double all = 0;
    for (const BatchEntry& entry : batch) all += load(entry);
    return all;
  };
  while (batches.size() < steps_.world_size) {
    auto largest = batches.end();
    double largest_sum = 0;
    for (auto it = batches.begin(); it != batches.end(); ++it) {
      if (it->size() < 2) continue;
      const double own = sum(*it);
      if (largest == batches.end() || own > largest_sum ||
          (own == largest_sum && it->size() > largest->size())) {
        largest = it;
        largest_sum = own;
      }
    }
    const auto cut_at = largest->begin() + static_cast<std::ptrdiff_t>(middle_of(*largest, load));
    std::vector<BatchEntry> second(cut_at, largest->end());
    largest->erase(cut_at, largest->end());
    batches.insert(std::next(largest), std::move(second));
  }
  return {.batches = std::move(batches), .position = 0, .waiting = {}};
}

// Everything that is in batches, by position.
std::vector<BatchEntry> BatchSteps::take_all() {
  std::vector<BatchEntry> all;
  for (const MadeBatch& batch : made_) {
    all.insert(all.end(), batch.entries.begin(), batch.entries.end());
  }
  made_.clear();
  made_count_ = 0;
  std::ranges::sort(all, {}, &BatchEntry::position);
  return all;
}

}  // namespace headrace
