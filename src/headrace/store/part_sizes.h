// How large the parts of an upload are.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/store/upload.h"

namespace headrace {

// At least `least_bytes`, and enough that an object of this size has at most `max_parts`.
uint64_t equal_part_bytes(uint64_t size_bytes, uint64_t least_bytes, uint32_t max_parts);

// Where a service limits the number of parts, their size decides how large an object can become. It
// is, in this order:
//   - the size that the caller asks for;
//   - if the object's size is known, one size by which the object fits. Should the object become
//     larger than that, more parts follow as for an unknown size;
//   - if the service wants equal parts, the largest size that lets memory hold all parts in flight;
//   - sizes that double after each tenth of the parts, up to that largest one.
// Thread: any (immutable).
class PartSizes {
 public:
  struct Wanted {
    uint64_t part_bytes = 0;                           // 0: chosen here
    std::optional<uint64_t> expected_size_bytes = {};  // of the object
    uint32_t max_parts_in_flight = 1;
    uint64_t budget_bytes = 0;  // of memory
  };

  // Parts have this size if the number of parts is not limited, or less if the budget is small.
  static constexpr uint64_t kUsualBytes = 16 * kMiB;
  static constexpr uint32_t kSteps = 10;  // in which parts grow

  // Errors: kInvalidArgument for what cannot work, or if the expected size cannot be reached.
  static Result<PartSizes> choose(const Upload::Limits& limits, const Wanted& wanted);

  uint64_t of(uint32_t part_number) const;
  // The largest object that parts of these sizes can make.
  uint64_t reach_bytes() const { return reach_bytes_; }
  // Whether an object may have this size. Errors: kInvalidArgument, which names the option to set.
  Result<void> check(uint64_t size_bytes) const;
  // For the log.
  std::string to_string() const;

 private:
  PartSizes(const Upload::Limits& limits, const Wanted& wanted)
      : limits_(limits), wanted_(wanted) {}
  Result<void> check_wanted() const;
  bool is_bounded() const { return limits_.max_parts != std::numeric_limits<uint32_t>::max(); }
  void choose_sizes();
  uint64_t sum_of_parts() const;

  Upload::Limits limits_;
  Wanted wanted_;
  uint64_t first_bytes_ = 0, most_bytes_ = 0;
  uint32_t equal_count_ = 0;  // parts before the first that may be larger
  uint32_t step_parts_ = 0;   // 0: all parts are equal
  uint64_t reach_bytes_ = 0;
};

}  // namespace headrace
