#include "headrace/store/transfer/host_log.h"

#include <algorithm>
#include <utility>

#include "headrace/store/options.h"

namespace headrace {
namespace {

// "0.4 s", "12 s"
std::string seconds_of(HostLog::Duration duration) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count() / 100;
  if (tenths >= 100) return cat(tenths / 10, " s");
  return cat(tenths / 10, ".", tenths % 10, " s");
}

std::string count_of(uint64_t count, const char* what) {
  return cat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

HostLog::HostLog(std::shared_ptr<Log> log, std::string host)
    : log_(log ? std::move(log) : std::make_shared<Log>(LogLevel::kNone)), host_(std::move(host)) {}

bool HostLog::Limit::allows(TimePoint now, Duration between) {
  if (last && now - *last < between) {
    ++withheld;
    return false;
  }
  last = now;
  return true;
}

void HostLog::retrying(const std::string& url, int attempt, const Error& error,
                       std::chrono::milliseconds wait, TimePoint now) {
  if (log_->wants(LogLevel::kDebug)) {
    say(LogLevel::kDebug, cat(url, ": attempt ", attempt, " failed (", error.message(),
                              "), the next one follows in ", wait.count(), " ms"));
  }
  if (!log_->wants(LogLevel::kInfo)) return;
  const Lock lock(mutex_);
  if (!summary_limit_.allows(now, kBetweenSummaries)) return;
  const uint64_t retries = std::exchange(summary_limit_.withheld, 0) + 1;
  say(LogLevel::kInfo, cat(host_, ": ", count_of(retries, "attempt"),
                           retries == 1 ? " is repeated" : " were repeated",
                           "; the last failed: ", error.message()));
}

void HostLog::failed(const Error& error, TimePoint since) {
  const Lock lock(mutex_);
  if (!failing()) {
    failing_since_ = since;
    failures_ = 0;
    told_ = false;
    failing_.store(true, std::memory_order_relaxed);
  }
  ++failures_;
  last_failure_ = error.message();
}

void HostLog::tell_failing(TimePoint until, TimePoint now) {
  if (!log_->wants(LogLevel::kWarning)) return;
  const Lock lock(mutex_);
  if (!failing() || now - failing_since_ < kFailingAfter) return;
  if (failing_limit_.last && now - *failing_limit_.last < kBetweenWarnings) return;
  failing_limit_.last = now;
  told_ = true;
  say(LogLevel::kWarning,
      cat(host_, " has given no good answer for ", seconds_of(now - failing_since_), " (",
          count_of(failures_, "failure"), ", the last: ", last_failure_,
          "); a request gives up after another ",
          seconds_of(std::max(until - now, Duration::zero())), " at the latest"));
}

void HostLog::bypassed(const Error& error, const std::string& other, TimePoint now) {
  if (!log_->wants(LogLevel::kWarning)) return;
  const Lock lock(mutex_);
  told_ = true;
  if (!bypassed_limit_.allows(now, kBetweenWarnings)) return;
  bypassed_limit_.withheld = 0;
  say(LogLevel::kWarning, cat(host_, " cannot be reached (", error.message(),
                              "); requests go by another proxy of the cluster, ", other));
}

void HostLog::recover(TimePoint now) {
  const Lock lock(mutex_);
  if (!failing_.exchange(false, std::memory_order_relaxed) || !told_) return;
  say(LogLevel::kInfo, cat(host_, " answers again, after ", seconds_of(now - failing_since_)));
}

void HostLog::throttled(const std::string& root, double pace_per_s, TimePoint now) {
  if (!log_->wants(LogLevel::kWarning)) return;
  const Lock lock(mutex_);
  if (!throttled_limit_.allows(now, kBetweenWarnings)) return;
  const uint64_t withheld = std::exchange(throttled_limit_.withheld, 0);
  std::string text = cat(host_, " throttles requests (HTTP 429 or 503)");
  if (withheld > 0) text += cat(", ", withheld, " more times since it was told last");
  text += cat("; headrace slows down those to ", root);
  if (pace_per_s > 0)
    text += cat(", to ", static_cast<uint64_t>(pace_per_s), " requests per second");
  say(LogLevel::kWarning, std::move(text));
}

void HostLog::slow(const std::string& url, int attempts, Duration age, TimePoint now) {
  if (!log_->wants(LogLevel::kWarning)) return;
  const Lock lock(mutex_);
  if (!slow_limit_.allows(now, kBetweenWarnings)) return;
  const uint64_t withheld = std::exchange(slow_limit_.withheld, 0);
  std::string text = cat(url, " has taken ", seconds_of(age), " so far (attempt ", attempts, ")");
  if (withheld > 0) text += cat("; ", withheld, " other slow requests were not told");
  say(LogLevel::kWarning, std::move(text));
}

void HostLog::tell_unverified(const std::string& url, ChecksumKind kind) {
  std::string why = "the store tells no checksum of the whole object";
  if (compares(Verify::kCrcs, kind)) {
    why =
        cat("it was read in parts, whose ", label(kind), " cannot be joined to that of the object");
  } else if (kind != ChecksumKind::kNone) {
    why =
        cat("its checksum is of the kind ", label(kind),
            ", which verify=\"all\" compares where an object is read as a whole, and not in parts");
  }
  say(LogLevel::kWarning, cat("the bytes of ", url, " were not compared with a checksum: ", why,
                              ". Other objects of ", host_, " may be like it; this is said once"));
}

void HostLog::headers_left_out(std::span<const OptionalHeaders> groups, HeaderGroups which,
                               const Error& refusal) {
  for (size_t i = 0; i < groups.size(); ++i) {
    if ((which >> i & 1U) == 0) continue;
    say(LogLevel::kWarning, cat(host_, " refuses requests with the header ", groups[i].prefix,
                                "..., and takes them without: it is left out "
                                "for ",
                                Learned::kForgottenAfter.count(), " minutes, and ",
                                groups[i].without, " (", refusal.message(), ")"));
  }
}

void HostLog::weaker_sums(const std::string& bucket_url, SumLevel level) {
  if (level == SumLevel::kCrc32c || told_sums_.exchange(true, std::memory_order_relaxed)) return;
  const bool is_proved = level != SumLevel::kSize;
  say(is_proved ? LogLevel::kInfo : LogLevel::kWarning,
      cat("what is written to ", bucket_url, " is ",
          is_proved ? "proved by " : "not proved, but for ", label(level),
          ": the service takes no stronger sum. Other buckets of ", host_,
          " may be like it; this is said once"));
}

void HostLog::tell_contradicted(const std::string& redirect, const std::string& by_map) {
  say(LogLevel::kWarning,
      cat(host_, " redirects a request to ", redirect, ", where the map of the cluster names ",
          by_map, ", also after it was asked for again. While the two differ, all requests go by ",
          host_,
          ", which is slower. See whether something on the way rewrites redirects (a "
          "gateway), and which addresses the targets tell (host_net.hostname of each node, the "
          "map of the cluster). This is said once"));
}

}  // namespace headrace
