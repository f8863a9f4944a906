#include "headrace/store/transfer/body_rates.h"

#include <algorithm>

namespace headrace {
namespace {

using std::chrono::nanoseconds;

constexpr std::chrono::seconds kAtLeast{1};
constexpr double kTimesSlower = 8;
constexpr uint32_t kLeastBodies = 32;  // for a median that means something
constexpr uint32_t kMostBodies = 256;
constexpr std::chrono::seconds kForgetBodiesAfter{10};  // half of them

nanoseconds of_mebibyte(uint64_t bytes, nanoseconds time) {
  const auto mebibytes = static_cast<double>(std::max<uint64_t>(bytes, 1)) / kMiB;
  const double ns = static_cast<double>(time.count()) / mebibytes;
  return nanoseconds(static_cast<int64_t>(std::min(ns, 1e15)));
}

}  // namespace

void BodyRates::took(uint64_t bytes, nanoseconds time, TimePoint now) {
  if (bytes < kLeastBytes) return;
  if (of_mebibyte_.total() >= kMostBodies || now - halved_at_ >= kForgetBodiesAfter) {
    of_mebibyte_.halve();
    halved_at_ = now;
  }
  of_mebibyte_.add(of_mebibyte(bytes, time));
  ended_[next_] = now;
  next_ = (next_ + 1) % kNeighbours;
}

bool BodyRates::is_slow(uint64_t received, uint64_t missing, TimePoint began, TimePoint now) const {
  const nanoseconds time = now - began;
  if (time < kAtLeast || of_mebibyte_.total() < kLeastBodies) return false;
  if (ended_[next_] < began) return false;  // the oldest of the last eight
  const nanoseconds median = std::max(of_mebibyte_.quantile(0.5), nanoseconds(1));
  if (of_mebibyte(received, time) < kTimesSlower * median) return false;
  // What is nearly there is waited for: at its own rate, the rest takes half as long again.
  const double rest_ns = static_cast<double>(of_mebibyte(received, time).count()) *
                         static_cast<double>(missing) / kMiB;
  return rest_ns >= 0.5 * static_cast<double>(time.count());
}

}  // namespace headrace
