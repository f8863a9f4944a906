#include "throttle.h"

#include <algorithm>
#include <cmath>

#include "text.h"

namespace faultserver {

Throttle::Rate Throttle::Rate::from(const Json& spec, double now_s) {
  Rate rate{.per_s = spec["requests_per_s"].number(), .filled_at_s = now_s};
  rate.burst = std::max(1.0, spec["burst"].number(std::max(1.0, rate.per_s / 10)));
  rate.tokens = rate.burst;
  return rate;
}

bool Throttle::Rate::has_one(double now_s) {
  if (per_s <= 0) return true;
  tokens = std::min(burst, tokens + (now_s - filled_at_s) * per_s);
  filled_at_s = now_s;
  return tokens >= 1;
}

bool Throttle::PrefixRate::covers(const Route& route) const {
  const std::string& name = route.object.empty() ? route.prefix : route.object;
  return route.bucket == bucket && name.starts_with(prefix);
}

void Throttle::set_limit(const Json& spec, double now_s) {
  rate_ = Rate::from(spec, now_s);
  prefix_rates_.clear();
  for (const Json& each : spec["prefixes"].array()) {
    prefix_rates_.push_back({.bucket = each["bucket"].text(),
                             .prefix = each["prefix"].text(),
                             .rate = Rate::from(each, now_s)});
  }
  bytes_filled_at_s_ = now_s;
  max_in_flight_ = static_cast<uint64_t>(spec["in_flight"].integer());
  status_ = static_cast<int>(spec["status"].integer());
  retry_after_s_.reset();
  if (spec["retry_after"].is_number()) retry_after_s_ = spec["retry_after"].number();
  bytes_per_s_ = spec["bytes_per_s"].number();
  byte_tokens_ = 0;
}

void Throttle::set_latency(const Json& spec) {
  first_byte_s_ = spec["first_byte_ms"].number() / 1000;
  tail_fraction_ = spec["tail_fraction"].number();
  tail_s_ = spec["tail_ms"].number() / 1000;
  seed_ = static_cast<uint64_t>(spec["seed"].integer(1));
  delays_ = 0;
}

Json Throttle::to_json() const {
  return Json::Object{{"requests_per_s", rate_.per_s},   {"burst", rate_.burst},
                      {"in_flight", max_in_flight_},     {"status", status_},
                      {"bytes_per_s", bytes_per_s_},     {"first_byte_ms", first_byte_s_ * 1000},
                      {"tail_fraction", tail_fraction_}, {"tail_ms", tail_s_ * 1000}};
}

bool Throttle::admit(double now_s, uint64_t in_flight, const Route& route) {
  if (max_in_flight_ > 0 && in_flight > max_in_flight_) return false;
  // A request that one cap refuses counts against none.
  if (!rate_.has_one(now_s)) return false;
  for (PrefixRate& each : prefix_rates_) {
    if (each.covers(route) && !each.rate.has_one(now_s)) return false;
  }
  rate_.tokens -= 1;
  for (PrefixRate& each : prefix_rates_) {
    if (each.covers(route)) each.rate.tokens -= 1;
  }
  return true;
}

uint64_t Throttle::take_bytes(double now_s, uint64_t wanted_bytes, double& wait_s) {
  wait_s = 0;
  if (bytes_per_s_ <= 0) return wanted_bytes;
  // 10 ms worth of bytes may be saved up, so that the rate holds over any longer time.
  const double most = std::max(1500.0, bytes_per_s_ / 100);
  byte_tokens_ = std::min(most, byte_tokens_ + (now_s - bytes_filled_at_s_) * bytes_per_s_);
  bytes_filled_at_s_ = now_s;
  const double least = std::min<double>(1500.0, static_cast<double>(wanted_bytes));
  if (byte_tokens_ < least) {
    wait_s = (least - byte_tokens_) / bytes_per_s_;
    return 0;
  }
  const auto granted = std::min(wanted_bytes, static_cast<uint64_t>(byte_tokens_));
  byte_tokens_ -= static_cast<double>(granted);
  return granted;
}

double Throttle::next_delay_s() {
  if (tail_fraction_ <= 0) return first_byte_s_;
  const double draw = static_cast<double>(mix(seed_ ^ mix(delays_++)) >> 11) * 0x1p-53;
  return draw < tail_fraction_ ? tail_s_ : first_byte_s_;
}

}  // namespace faultserver
