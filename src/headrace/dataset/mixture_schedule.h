// Which of several sources each sample of a mixture comes from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/base/result.h"

namespace headrace {

// Sources in fixed shares, as evenly as it can be done: of the first t samples, source k has its
// share times t, off by less than one sample, for every t. This is the rule of Tijdeman 1980, "The
// chairman assignment problem", which keeps n sources within 1 - 1 / (2n - 2).
//
// Shares are whole parts of a period, after which the schedule repeats itself: weights such as 3
// and 1, or 0.7 and 0.3, are met exactly; others are rounded to about a millionth.
// Thread: any (immutable).
class MixtureSchedule {
 public:
  static constexpr size_t kMaxSources = 4096;
  static constexpr uint64_t kMaxPeriod = uint64_t{1} << 20;

  struct Draw {
    size_t source;
    uint64_t number;  // how many samples of this source come before it
    bool operator==(const Draw&) const = default;
  };

  // Weights are finite and above 0; they need not add up to 1.
  static Result<MixtureSchedule> create(std::span<const double> weights);

  size_t source_count() const { return parts_.size(); }
  uint64_t period() const { return schedule_.size(); }
  // Of a period, how many samples are of each source.
  std::span<const uint64_t> parts() const { return parts_; }
  // `position` is within the first period.
  Draw at(uint64_t position) const;
  size_t source(uint64_t position) const { return schedule_[position]; }

 private:
  static constexpr uint64_t kGroup = 256;

  explicit MixtureSchedule(std::vector<uint64_t> parts);

  std::vector<uint64_t> parts_;
  std::vector<uint16_t> schedule_;
  std::vector<uint32_t> drawn_;  // of each source, before each group of positions
};

}  // namespace headrace
