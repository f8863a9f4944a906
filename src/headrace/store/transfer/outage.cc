#include "headrace/store/transfer/outage.h"

#include <algorithm>
#include <random>
#include <utility>

namespace headrace {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::steady_clock;

constexpr double kProbeShare = 0.25;  // of the outage so far
// Clients that lost a service at the same time do not ask for it at the same time.
constexpr double kSpread = 0.25;

}  // namespace

std::optional<Outage::TimePoint> Outage::next_probe() const {
  if (!is_certain() || is_over_.load(std::memory_order_relaxed)) return std::nullopt;
  const Lock lock(mutex_);
  return next_probe_;
}

bool Outage::take_probe(TimePoint now, Rng& rng) {
  const Lock lock(mutex_);
  if (now < next_probe_) return false;
  plan_probe(now, rng);
  return true;
}

void Outage::failed(TimePoint now, Rng& rng) {
  const Lock lock(mutex_);
  if (++failures_ >= kCertain && now - since_ >= least_) {
    is_certain_.store(true, std::memory_order_relaxed);
  }
  plan_probe(now, rng);
}

void Outage::plan_probe(TimePoint now, Rng& rng) {
  const auto gap = std::max<duration<double>>(kLeastProbe, (now - since_) * kProbeShare);
  std::uniform_real_distribution<> spread(1 - kSpread, 1 + kSpread);
  next_probe_ = now + duration_cast<steady_clock::duration>(gap * spread(rng));
}

std::shared_ptr<Outage> OutageWatch::failed(TimePoint now, Rng& rng) {
  const Lock lock(mutex_);
  if (!outage_) outage_ = std::make_shared<Outage>(now, least_);
  failing_.store(true, std::memory_order_relaxed);
  outage_->failed(now, rng);
  return outage_;
}

bool OutageWatch::end() {
  const Lock lock(mutex_);
  if (!outage_) return false;
  const std::shared_ptr<Outage> ended = std::exchange(outage_, nullptr);
  failing_.store(false, std::memory_order_relaxed);
  ended->is_over_.store(true, std::memory_order_relaxed);
  return ended->is_over();
}

}  // namespace headrace
