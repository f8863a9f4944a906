// What the log says about one host: rarely enough to be read, early enough to be useful.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "headrace/base/log.h"
#include "headrace/base/mutex.h"
#include "headrace/base/result.h"
#include "headrace/format/checksum.h"
#include "headrace/store/optional_headers.h"
#include "headrace/store/upload_sums.h"

namespace headrace {

// DEBUG: every retry. INFO: the number of retries, every ten seconds; that a host answers again.
// WARNING, each at most every thirty seconds: a host that has done nothing but fail for a
// second, while retries continue; one that cannot be reached, so that requests go by another; a
// host that throttles; a request that takes long.
// Time is an argument. Thread: any. A request that succeeds takes no lock and writes nothing.
class HostLog {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  static constexpr std::chrono::milliseconds kFailingAfter{1'000};
  static constexpr std::chrono::milliseconds kConnectingAfter{1'500};
  static constexpr std::chrono::seconds kSlowAfter{15};
  static constexpr std::chrono::seconds kBetweenWarnings{30};
  static constexpr std::chrono::seconds kBetweenSummaries{10};

  // `log` may be null. `host`: "http://127.0.0.1:9", as a user would write it.
  HostLog(std::shared_ptr<Log> log, std::string host);

  // An attempt failed and will be repeated.
  void retrying(const std::string& url, int attempt, const Error& error,
                std::chrono::milliseconds wait, TimePoint now);
  // The host has been failing since `since`: an attempt has failed, or is still waiting for a sign
  // of life.
  void failed(const Error& error, TimePoint since);
  // It has answered.
  void answered(TimePoint now) {
    if (failing()) recover(now);
  }
  bool failing() const { return failing_.load(std::memory_order_relaxed); }
  // Called on every sweep by requests in progress while failing(). `until`: when this one gives up.
  void tell_failing(TimePoint until, TimePoint now);
  const std::string& host() const { return host_; }
  // It cannot be reached, so requests go by another host.
  void bypassed(const Error& error, const std::string& other, TimePoint now);
  void throttled(const std::string& root, double pace_per_s, TimePoint now);
  void slow(const std::string& url, int attempts, Duration age, TimePoint now);
  // An object was read whole, and not compared, since the store has no checksum that is: it has one
  // of `kind`. Said once.
  template <class Url>
  void unverified(const Url& url, ChecksumKind kind) {
    if (told_unverified_.load(std::memory_order_relaxed)) return;
    if (!told_unverified_.exchange(true, std::memory_order_relaxed)) tell_unverified(url(), kind);
  }
  // It has refused a request with these headers as `refusal` says, and carried it out without.
  void headers_left_out(std::span<const OptionalHeaders> groups, HeaderGroups which,
                        const Error& refusal);
  // The service has shown that this is what proves the bytes that are written to this bucket. Said
  // once, unless it is the best.
  void weaker_sums(const std::string& bucket_url, SumLevel level);
  // The host, which is the proxy of a cluster, sends requests to other targets than the map of the
  // cluster says, however often that is asked for. Said once.
  template <class Redirect, class ByMap>
  void contradicted(const Redirect& redirect, const ByMap& by_map) {
    if (told_contradicted_.load(std::memory_order_relaxed)) return;
    if (!told_contradicted_.exchange(true, std::memory_order_relaxed)) {
      tell_contradicted(redirect(), by_map());
    }
  }

 private:
  // Allows at most one message per `between`, and counts the others.
  struct Limit {
    std::optional<TimePoint> last = {};
    uint64_t withheld = 0;
    bool allows(TimePoint now, Duration between);
  };
  void recover(TimePoint now);
  void tell_unverified(const std::string& url, ChecksumKind kind);
  void tell_contradicted(const std::string& redirect, const std::string& by_map);
  void say(LogLevel level, std::string text) { log_->add(level, std::move(text)); }

  const std::shared_ptr<Log> log_;
  const std::string host_;
  std::atomic<bool> failing_ = false;
  std::atomic<bool> told_unverified_ = false, told_contradicted_ = false, told_sums_ = false;
  Mutex mutex_;
  TimePoint failing_since_ HEADRACE_GUARDED_BY(mutex_);
  uint64_t failures_ HEADRACE_GUARDED_BY(mutex_) = 0;  // since then
  std::string last_failure_ HEADRACE_GUARDED_BY(mutex_);
  bool told_ HEADRACE_GUARDED_BY(mutex_) = false;  // that it fails
  Limit failing_limit_ HEADRACE_GUARDED_BY(mutex_), throttled_limit_ HEADRACE_GUARDED_BY(mutex_);
  Limit slow_limit_ HEADRACE_GUARDED_BY(mutex_), summary_limit_ HEADRACE_GUARDED_BY(mutex_);
  Limit bypassed_limit_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
