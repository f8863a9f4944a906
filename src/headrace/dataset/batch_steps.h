// How batches are dealt to ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "headrace/dataset/batch_maker.h"

namespace headrace {

struct StepRules {
  uint64_t world_size = 1;
  // Whether to leave out, at the end of the order, batches that are filled to no more than
  // `saturation` of a limit, and those that make no step of all ranks.
  bool drop_last = false;
  double saturation = 1;
};

struct BatchStep {
  std::vector<std::vector<BatchEntry>> batches;  // one for each rank
  // The steps after this one are made of `waiting` and of what begins at `position` in the order.
  uint64_t position = 0;
  std::vector<uint64_t> waiting;  // below `position`, in no batch yet; in any order
};

// Cuts what is left of an order of `count` samples into batches (`BatchMaker`), and deals these to
// the ranks in rounds: a step takes the next `world_size` batches.
//
// Each rank takes as many steps. At the end of the order, batches are halved until each rank has
// one; if fewer samples than ranks would be left for the last step, the step before it leaves as
// many as there are ranks. Fewer samples than ranks are left out.
//
// The steps from a place (position and waiting samples) on depend on nothing before it, and the
// place may be one that other limits or other ranks have left.
// Thread: confined.
class BatchSteps {
 public:
  BatchSteps(BatchRules rules, StepRules steps, uint64_t count, uint64_t position);

  // Samples come in this order: those that wait, by their positions; then those of the order from
  // `position` on. Returns false if one is left out, as the rules for oversized ones say.
  bool add_waiting(const BatchEntry& entry, bool joins = true);
  bool add(const Weight& weight, bool joins = true);

  // The position of the next sample to add.
  uint64_t position() const { return position_; }
  uint64_t count() const { return count_; }
  // Whether enough samples were added to know the next step. Add more until then.
  bool is_ready() const;
  // The next step; none at the end.
  std::optional<BatchStep> next();

  const BatchMaker& maker() const { return maker_; }

 private:
  void add_all(std::vector<MadeBatch> made);
  uint64_t left_count() const { return made_count_ + maker_.open_count(); }
  std::optional<BatchStep> last_steps();
  BatchStep take_step();
  BatchStep cut(std::vector<std::vector<BatchEntry>> batches) const;
  std::vector<BatchEntry> take_all();

  const StepRules steps_;
  const uint64_t count_;
  const uint64_t begin_;
  BatchMaker maker_;
  std::deque<MadeBatch> made_;
  uint64_t made_count_ = 0;  // of the samples in these
  uint64_t position_;
};

}  // namespace headrace
