// The hidden caps on rate, and added latency.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "json.h"
#include "route.h"

namespace faultserver {

// Thread: confined (the server's lock guards it). Times are seconds since the server's start.
class Throttle {
 public:
  void set_limit(const Json& spec, double now_s);
  void set_latency(const Json& spec);
  Json to_json() const;

  // Whether a request may be served now; counts it when it may.
  bool admit(double now_s, uint64_t in_flight, const Route& route);
  int status() const { return status_; }  // 0: the dialect's own.
  std::optional<double> retry_after_s() const { return retry_after_s_; }

  bool shapes_bytes() const { return bytes_per_s_ > 0; }
  // How many of `wanted_bytes` may be sent now; 0 with the time to wait in `wait_s`.
  uint64_t take_bytes(double now_s, uint64_t wanted_bytes, double& wait_s);

  // The delay before the first byte of the next answer.
  double next_delay_s();

 private:
  // Requests per second, with what may be saved up.
  struct Rate {
    double per_s = 0, burst = 0, tokens = 0, filled_at_s = 0;  // per_s 0: no cap.
    static Rate from(const Json& spec, double now_s);
    bool has_one(double now_s);  // Fills up first.
  };
  struct PrefixRate {
    std::string bucket, prefix;
    Rate rate;
    bool covers(const Route& route) const;
  };

  Rate rate_;
  std::vector<PrefixRate> prefix_rates_;
  uint64_t max_in_flight_ = 0;  // 0: no cap.
  int status_ = 0;
  std::optional<double> retry_after_s_;
  double bytes_per_s_ = 0, byte_tokens_ = 0, bytes_filled_at_s_ = 0;
  double first_byte_s_ = 0, tail_fraction_ = 0, tail_s_ = 0;
  uint64_t seed_ = 1, delays_ = 0;
};

}  // namespace faultserver
