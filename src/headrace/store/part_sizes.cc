#include "headrace/store/part_sizes.h"

#include <algorithm>

namespace headrace {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

uint64_t product(uint64_t a, uint64_t b) { return a != 0 && b > kMost / a ? kMost : a * b; }

std::unexpected<Error> refused(std::string text) {
  return std::unexpected(Error(Code::kInvalidArgument, std::move(text)));
}

}  // namespace

uint64_t equal_part_bytes(uint64_t size_bytes, uint64_t least_bytes, uint32_t max_parts) {
  const uint64_t count = std::max(max_parts, 1u);
  const uint64_t needed = size_bytes / count + (size_bytes % count != 0 ? 1 : 0);
  return needed <= least_bytes ? least_bytes : (needed + kMiB - 1) / kMiB * kMiB;
}

Result<PartSizes> PartSizes::choose(const Upload::Limits& limits, const Wanted& wanted) {
  PartSizes sizes(limits, wanted);
  if (Result<void> good = sizes.check_wanted(); !good) return std::unexpected(good.error());
  sizes.choose_sizes();
  sizes.reach_bytes_ = std::min(sizes.sum_of_parts(), limits.max_object_bytes);
  const std::optional<uint64_t>& expected = wanted.expected_size_bytes;
  if (expected) {
    if (Result<void> fits = sizes.check(*expected); !fits) {
      return refused(cat("it is expected to have ", *expected, " bytes: ", fits.error().message()));
    }
  }
  return sizes;
}

Result<void> PartSizes::check_wanted() const {
  if (wanted_.max_parts_in_flight == 0) return refused("max_parts_in_flight must be positive");
  if (wanted_.part_bytes == 0) return {};
  const std::string given =
      cat("part_bytes is ", wanted_.part_bytes, "; for this kind of upload it must be ");
  if (wanted_.part_bytes < limits_.min_part_bytes || wanted_.part_bytes > limits_.max_part_bytes) {
    return refused(cat(given, "from ", limits_.min_part_bytes, " to ", limits_.max_part_bytes));
  }
  if (wanted_.part_bytes % limits_.part_unit_bytes != 0) {
    return refused(cat(given, "a multiple of ", limits_.part_unit_bytes));
  }
  return {};
}

void PartSizes::choose_sizes() {
  if (wanted_.part_bytes != 0) {
    first_bytes_ = most_bytes_ = wanted_.part_bytes;
    return;
  }
  const auto possible = [this](uint64_t bytes) {
    const uint64_t whole_mib = std::max(bytes / kMiB * kMiB, kMiB);
    return std::min(std::max(whole_mib, limits_.min_part_bytes), limits_.max_part_bytes);
  };
  // One more is filled while the others are in flight, and a process may have several writers.
  const uint64_t share_bytes = wanted_.budget_bytes / wanted_.max_parts_in_flight;
  first_bytes_ = most_bytes_ = possible(std::min(kUsualBytes, share_bytes / 4));
  if (!is_bounded()) return;
  most_bytes_ = possible(share_bytes);
  if (wanted_.expected_size_bytes) {
    // A file may grow while it is sent.
    const uint64_t aim_bytes = *wanted_.expected_size_bytes / 64 * 65;
    first_bytes_ = possible(equal_part_bytes(aim_bytes, first_bytes_, limits_.max_parts));
    const uint64_t count = aim_bytes / first_bytes_ + 1;
    equal_count_ = static_cast<uint32_t>(std::min<uint64_t>(count, limits_.max_parts));
  } else if (limits_.equal_parts) {
    first_bytes_ = std::max(first_bytes_, most_bytes_);
  }
  most_bytes_ = std::max(first_bytes_, most_bytes_);
  if (!limits_.equal_parts) step_parts_ = std::max(1u, limits_.max_parts / kSteps);
}

uint64_t PartSizes::of(uint32_t part_number) const {
  if (step_parts_ == 0 || part_number <= equal_count_) return first_bytes_;
  const uint32_t doublings = std::min((part_number - equal_count_ - 1) / step_parts_, 32u);
  return std::min(product(first_bytes_, uint64_t{1} << doublings), most_bytes_);
}

uint64_t PartSizes::sum_of_parts() const {
  if (step_parts_ == 0) return product(first_bytes_, limits_.max_parts);
  uint64_t sum = product(first_bytes_, equal_count_);
  for (uint64_t begin = equal_count_; begin < limits_.max_parts; begin += step_parts_) {
    const uint64_t count = std::min<uint64_t>(step_parts_, limits_.max_parts - begin);
    const uint64_t bytes = product(of(static_cast<uint32_t>(begin + 1)), count);
    sum = bytes > kMost - sum ? kMost : sum + bytes;
  }
  return sum;
}

Result<void> PartSizes::check(uint64_t size_bytes) const {
  if (size_bytes <= reach_bytes_) return {};
  if (size_bytes > limits_.max_object_bytes) {
    return refused(
        cat("the store takes no object of more than ", limits_.max_object_bytes, " bytes"));
  }
  const std::string most = cat("an upload of this kind has at most ", limits_.max_parts, " parts");
  if (wanted_.part_bytes != 0) {
    return refused(cat(most, ", and with part_bytes ", wanted_.part_bytes, " it would have more (",
                       reach_bytes_, " bytes fit): larger parts are needed"));
  }
  if (first_bytes_ == limits_.max_part_bytes) {
    return refused(cat(most, " of ", limits_.max_part_bytes, " bytes each, which are ",
                       reach_bytes_, " together"));
  }
  if (wanted_.expected_size_bytes) {
    return refused(cat(most, ", which were sized for expected_size_bytes ",
                       *wanted_.expected_size_bytes, " and are ", reach_bytes_,
                       " bytes together: a larger expected_size_bytes is needed"));
  }
  return refused(cat(most, ", which were sized for an object of unknown size and are ",
                     reach_bytes_, " bytes together: pass its size as expected_size_bytes, or ",
                     "larger part_bytes"));
}

std::string PartSizes::to_string() const {
  const std::string grow =
      first_bytes_ == most_bytes_ ? "" : cat(" that grow to ", most_bytes_, " bytes");
  const std::string reach =
      is_bounded() ? cat(", for an object of at most ", reach_bytes_, " bytes") : "";
  return cat("parts of ", first_bytes_, " bytes", grow, reach);
}

}  // namespace headrace
