// Batches of samples whose cost is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace headrace {

// What a sample takes of the limits of its batch. Neither negative, infinite nor NaN. Sums are
// exact for whole numbers up to 2^53.
struct Weight {
  double cost = 0, bytes = 0;
  bool operator==(const Weight&) const = default;
};

struct BatchEntry {
  uint64_t position = 0;  // of the sample, in the order
  Weight weight;
  bool operator==(const BatchEntry&) const = default;
};

// How to treat a sample that exceeds a limit alone.
enum class Oversized {
  kEndsBatch,  // it ends the batch that it would have joined, and is a batch of its own
  kOvertakes,  // it is a batch of its own before the one that is being filled
  kLeftOut,
};

struct BatchRules {
  double max_cost = std::numeric_limits<double>::infinity();
  double max_bytes = std::numeric_limits<double>::infinity();
  uint64_t max_samples = UINT64_MAX;  // at least 1
  Oversized oversized = Oversized::kEndsBatch;
  // Ascending costs: samples between the same two of them are batched together.
  std::vector<double> boundaries = {};

  bool is_oversized(const Weight& weight) const {
    return weight.cost > max_cost || weight.bytes > max_bytes;
  }
};

// What is in a batch that is being filled.
class OpenBatch {
 public:
  std::span<const BatchEntry> entries() const { return entries_; }
  const Weight& total() const { return total_; }
  double largest_cost() const { return largest_cost_; }

  void add(const BatchEntry& entry);
  std::vector<BatchEntry> take();

 private:
  std::vector<BatchEntry> entries_;
  Weight total_;
  double largest_cost_ = 0;
};

struct MadeBatch {
  std::vector<BatchEntry> entries;
  // Later batches are made of what lies at this position of the order or behind it, and of earlier
  // entries that were in open batches.
  uint64_t end = 0;
};

// Fills batches with the samples that come, in their order. A batch is full when it has reached a
// limit, or when the next sample would exceed it.
//
// What it does from any moment on depends only on the entries of its open batches: another
// maker that is given these in the order of their positions goes on in the same way.
// Thread: confined.
class BatchMaker {
 public:
  explicit BatchMaker(BatchRules rules);

  const BatchRules& rules() const { return rules_; }
  // The batch that a sample of this weight would join.
  const OpenBatch& open_for(const Weight& weight) const { return open_[band_of(weight)]; }
  // Whether it can join that batch within the limits.
  bool has_room_for(const Weight& weight) const;

  // Adds a sample. With `joins` false it does not join the batch that is open for it but ends that.
  // Appends the batches that are full now. Their `end` is `before` if the sample ended them without
  // joining, else `after`. Returns false if the sample is left out.
  bool add(const BatchEntry& entry, bool joins, uint64_t before, uint64_t after,
           std::vector<MadeBatch>& made);

  // Ends the open batches that are filled to more than this share of a limit.
  void flush(double more_than, uint64_t end, std::vector<MadeBatch>& made);

  std::span<const OpenBatch> open() const { return open_; }
  uint64_t open_count() const { return open_count_; }  // of samples in open batches

 private:
  size_t band_of(const Weight& weight) const;
  bool is_full(const OpenBatch& batch) const;
  double filled(const OpenBatch& batch) const;
  void end(OpenBatch& batch, uint64_t end, std::vector<MadeBatch>& made);

  const BatchRules rules_;
  std::vector<OpenBatch> open_;  // one for each band
  uint64_t open_count_ = 0;
};

}  // namespace headrace
