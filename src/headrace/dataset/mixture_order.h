// The order in which an epoch visits the samples of a mixture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/dataset/mixture_schedule.h"
#include "headrace/dataset/order.h"

namespace headrace {

// Position in the epoch → index in the sources, laid one after the other. A pure function of its
// arguments, the same on every machine, and nothing is stored for a position.
//
// The epochs are parts of one endless sequence: where an epoch ends, the next one continues, also
// within the sources. Each source goes through its own samples pass after pass, every one once in
// each, and each pass has an order of its own. Thread: any (immutable).
class MixtureOrder {
 public:
  // `counts`: how many samples each source of the schedule has, none of them 0, and together less
  // than 2^63; `count`: how many samples an epoch has.
  static Result<MixtureOrder> create(std::shared_ptr<const MixtureSchedule> schedule,
                                     std::span<const uint64_t> counts, uint64_t count,
                                     uint64_t seed, uint64_t epoch, bool shuffle);

  // Reads positions in any order, faster if those of one pass come together. Thread: confined.
  class Reader {
   public:
    explicit Reader(const MixtureOrder& order) : order_(order), passes_(order.sources_.size()) {}
    uint64_t index(uint64_t position);

   private:
    struct Pass {
      uint64_t number;
      Order order;
    };

    const MixtureOrder& order_;
    std::vector<std::optional<Pass>> passes_;  // the latest of each source
  };

  uint64_t count() const { return count_; }
  // `position` is below count().
  uint64_t index(uint64_t position) const { return Reader(*this).index(position); }
  // The indices of positions [begin, begin + out.size()).
  void indices(uint64_t begin, std::span<int64_t> out) const;

 private:
  struct Source {
    uint64_t begin, count, seed;
  };

  MixtureOrder() = default;

  std::shared_ptr<const MixtureSchedule> schedule_;
  std::vector<Source> sources_;
  uint64_t count_ = 0, epoch_ = 0;
  bool shuffle_ = false;
};

}  // namespace headrace
