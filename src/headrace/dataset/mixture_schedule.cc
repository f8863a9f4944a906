#include "headrace/dataset/mixture_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

namespace headrace {
namespace {

// More steps than this would take longer than a trainer should wait: 0.1 s.
constexpr uint64_t kMaxSteps = uint64_t{1} << 26;

// A fraction with a denominator of at most `most` that is as good as equal to `value` (by continued
// fractions); its denominator is returned.
std::optional<uint64_t> denominator_of(double value, uint64_t most) {
  uint64_t before = 0, denominator = 1;
  double rest = value;
  for (;;) {
    const double scaled = value * static_cast<double>(denominator);
    // A fraction within a few units in the last place is what the user has written.
    if (std::abs(scaled - std::round(scaled)) <=
        4 * std::numeric_limits<double>::epsilon() * std::max(scaled, 1.0)) {
      return denominator;
    }
    const double fraction = rest - std::floor(rest);
    if (fraction == 0) return std::nullopt;
    rest = 1 / fraction;
    if (rest > static_cast<double>(most)) return std::nullopt;
    const uint64_t next = static_cast<uint64_t>(rest) * denominator + before;
    if (next > most) return std::nullopt;
    before = std::exchange(denominator, next);
  }
}

// Whole numbers in the ratio of the weights, if their sum is `most` or less.
std::optional<std::vector<uint64_t>> exact_parts(std::span<const double> weights, uint64_t most) {
  const double largest = *std::ranges::max_element(weights);
  uint64_t denominator = 1;
  for (const double weight : weights) {
    const std::optional<uint64_t> each = denominator_of(weight / largest, most);
    if (!each) return std::nullopt;
    denominator = std::lcm(denominator, *each);
    if (denominator > most) return std::nullopt;
  }
  std::vector<uint64_t> parts;
  parts.reserve(weights.size());
  uint64_t sum = 0;
  for (const double weight : weights) {
    const double part = std::round(weight / largest * static_cast<double>(denominator));
    if (part < 1) return std::nullopt;
    parts.push_back(static_cast<uint64_t>(part));
    sum += parts.back();
  }
  return sum <= most ? std::optional(std::move(parts)) : std::nullopt;
}

// The nearest parts of `period`, at least one for each (largest remainders).
std::vector<uint64_t> rounded_parts(std::span<const double> weights, uint64_t period) {
  const double largest = *std::ranges::max_element(weights);
  double sum = 0;
  for (const double weight : weights) sum += weight / largest;
  const uint64_t shared = period - weights.size();  // beside the one that each has
  std::vector<uint64_t> parts(weights.size());
  std::vector<std::pair<double, size_t>> remainders;
  uint64_t given = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double ideal =
        std::max(weights[i] / largest / sum * static_cast<double>(period) - 1, 0.0);
    const double whole = std::floor(ideal);
    parts[i] = 1 + static_cast<uint64_t>(whole);
    given += static_cast<uint64_t>(whole);
    remainders.emplace_back(ideal - whole, i);
  }
  std::ranges::sort(remainders, std::greater<>());
  // Weights below one part have taken more than their share; the largest sources pay for them.
  for (; given > shared; --given) --*std::ranges::max_element(parts);
  for (size_t i = 0; given < shared; ++given, ++i)
    ++parts[remainders[i % remainders.size()].second];
  return parts;
}

}  // namespace

Result<MixtureSchedule> MixtureSchedule::create(std::span<const double> weights) {
  if (weights.empty() || weights.size() > kMaxSources) {
    return fail(Code::kInvalidArgument, "a mixture has 1 to ", kMaxSources, " sources, not ",
                weights.size());
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] <= 0) {
      return fail(Code::kInvalidArgument, "weight ", i, " is ", weights[i],
                  "; a weight is above 0 and finite");
    }
  }
  const uint64_t most = std::min(kMaxPeriod, kMaxSteps / weights.size());
  std::optional<std::vector<uint64_t>> parts = exact_parts(weights, most);
  return MixtureSchedule(parts ? std::move(*parts) : rounded_parts(weights, most));
}

MixtureSchedule::MixtureSchedule(std::vector<uint64_t> parts) : parts_(std::move(parts)) {
  const auto count = static_cast<int64_t>(parts_.size());
  const auto period =
      static_cast<int64_t>(std::accumulate(parts_.begin(), parts_.end(), uint64_t{0}));
  schedule_.reserve(static_cast<size_t>(period));
  if (count == 1) {
    schedule_.assign(static_cast<size_t>(period), 0);
    drawn_.push_back(0);
    return;
  }
  // What each source is behind its share, times the period. Before a draw they add up to one
  // period, so that at least one source reaches the least that may be drawn.
  std::vector<int64_t> behind(parts_.size(), 0);
  std::vector<uint32_t> drawn(parts_.size(), 0);
  const int64_t twice = 2 * count - 2;
  for (int64_t t = 0; t < period; ++t) {
    if (t % int64_t{kGroup} == 0) drawn_.insert(drawn_.end(), drawn.begin(), drawn.end());
    size_t chosen = 0;
    int64_t chosen_slack = 0, chosen_part = 0;  // its deadline is slack / part
    for (size_t k = 0; k < parts_.size(); ++k) {
      const auto part = static_cast<int64_t>(parts_[k]);
      behind[k] += part;
      if (twice * behind[k] < period) continue;
      const int64_t slack = (twice - 1) * period - twice * behind[k];
      // Both sides stay below 2^13 * 2^20 * 2^20.
      if (chosen_part == 0 || slack * chosen_part < chosen_slack * part) {
        chosen = k;
        chosen_slack = slack;
        chosen_part = part;
      }
    }
    behind[chosen] -= period;
    ++drawn[chosen];
    schedule_.push_back(static_cast<uint16_t>(chosen));
  }
}

MixtureSchedule::Draw MixtureSchedule::at(uint64_t position) const {
  const size_t source = schedule_[position];
  const uint64_t group = position / kGroup;
  uint64_t number = drawn_[group * parts_.size() + source];
  for (uint64_t i = group * kGroup; i < position; ++i) number += schedule_[i] == source;
  return {.source = source, .number = number};
}

}  // namespace headrace
