#include "headrace/store/transfer/hedge_rules.h"

#include <algorithm>

namespace headrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Few enough that a reader in order does not wait for a late answer among the first it asks for.
constexpr uint32_t kLeastAnswers = 16;
constexpr uint32_t kMostAnswers = 1024;
constexpr uint32_t kRefreshEvery = 32;
constexpr std::chrono::seconds kForgetAnswersAfter{10};  // half of it
constexpr double kLateShare = 0.975;
// What takes half as long again as the median is late where answers hardly differ, but never what
// is only a few milliseconds behind: those are the machine's, on either side.
constexpr double kLateMedians = 1.5;
constexpr milliseconds kLateAtLeast{20};
// Earned and not spent: enough for a host that pauses, too little to make an outage worse.
constexpr double kMostRequests = 10;
constexpr double kMostBytes = 64.0 * kMiB;
// Of the limit of requests in flight: what hedges add to it, and drained answers. Of these there
// are as many as are late, times how much later they are; where that is very much, closing
// connections costs less.
constexpr uint32_t kHedgesShare = 20;
constexpr uint32_t kDrainedShare = 3;
// Of an unknown size: little, or small objects would never earn a hedge. The share of requests
// bounds what these cost, and those that turn out to be large are cut.
constexpr uint64_t kGuessedBytes = 4 * kKiB;

}  // namespace

ExpectedAnswer ExpectedAnswer::of_bytes(uint64_t bytes) {
  if (bytes == kUnknownSize) return {.bytes = kGuessedBytes};
  const AnswerKind kind = bytes <= 64 * kKiB   ? AnswerKind::kUpTo64KiB
                          : bytes <= 1 * kMiB  ? AnswerKind::kUpTo1MiB
                          : bytes <= 16 * kMiB ? AnswerKind::kUpTo16MiB
                                               : AnswerKind::kLarger;
  return {.kind = kind, .bytes = bytes};
}

void HedgeRules::took(AnswerKind kind, nanoseconds latency, TimePoint now) {
  OfKind& own = kinds_[static_cast<size_t>(kind)];
  own.latencies.add(latency);
  if (--own.to_refresh == 0) refresh(own, now);
}

void HedgeRules::refresh(OfKind& kind, TimePoint now) {
  const bool is_old = now - kind.halved_at >= kForgetAnswersAfter;
  if (is_old || kind.latencies.total() >= kMostAnswers) {
    const bool is_begun = kind.halved_at != TimePoint();
    if (is_begun && kind.latencies.total() >= 4 * kLeastAnswers) kind.latencies.halve();
    kind.halved_at = now;
  }
  const uint32_t known = kind.latencies.total();
  kind.to_refresh = known < kLeastAnswers ? kLeastAnswers - known : kRefreshEvery;
  if (known < kLeastAnswers) return;
  const nanoseconds median = kind.latencies.quantile(0.5);
  const auto half_as_long_again = duration_cast<nanoseconds>(kLateMedians * median);
  kind.late_after =
      std::max({kind.latencies.quantile(kLateShare), half_as_long_again, median + kLateAtLeast});
}

void HedgeRules::earn(uint64_t bytes) {
  requests_ = std::min(requests_ + kShare, kMostRequests);
  bytes_ = std::min(bytes_ + kShare * static_cast<double>(bytes), kMostBytes);
}

std::optional<nanoseconds> HedgeRules::late_after(AnswerKind kind) const {
  const nanoseconds after = kinds_[static_cast<size_t>(kind)].late_after;
  return after.count() == 0 ? std::nullopt : std::optional(after);
}

bool HedgeRules::begin(const ExpectedAnswer& expected, uint32_t limit, bool has_free_permit) {
  const auto cost = static_cast<double>(std::min(expected.bytes, kMostDrainedBytes));
  if (requests_ < 1 || bytes_ < cost) return false;
  if (running_ >= limit / kHedgesShare && !has_free_permit) return false;
  requests_ -= 1;
  bytes_ -= cost;
  ++running_;
  return true;
}

bool HedgeRules::pay_for_rest() {
  if (requests_ < 1) return false;
  requests_ -= 1;
  return true;
}

bool HedgeRules::begin_draining(uint32_t limit) {
  if (draining_ >= limit / kDrainedShare) return false;
  ++draining_;
  return true;
}

uint32_t HedgeRules::permits_taken(uint32_t limit) const {
  const uint32_t beyond = limit / kHedgesShare;
  return running_ > beyond ? running_ - beyond : 0;
}

}  // namespace headrace
