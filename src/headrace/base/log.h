// What the engine reports while it works: retries, slow hosts, throttling.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"

namespace headrace {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kNone };

struct LogRecord {
  LogLevel level = LogLevel::kInfo;
  std::string text;  // one line; no tokens, no queries
};

// The engine prints nothing. A record goes to the sink if there is one; otherwise it is kept until
// somebody takes it, and beyond kKept records the oldest are dropped. Callers limit their own rate
// (store/host_log). Thread: any.
class Log {
 public:
  static constexpr size_t kKept = 256;
  // Called on engine threads, one call at a time; it must not block.
  using Sink = std::function<void(const LogRecord&)>;

  explicit Log(LogLevel least = LogLevel::kWarning, Sink sink = nullptr)
      : least_(least), sink_(std::move(sink)) {}

  // Check before building a text, so that a silent log costs nothing.
  bool wants(LogLevel level) const { return level >= least_.load(std::memory_order_relaxed); }
  void set_least(LogLevel least) { least_.store(least, std::memory_order_relaxed); }

  void add(LogLevel level, std::string text) {
    if (!wants(level)) return;
    LogRecord record{.level = level, .text = std::move(text)};
    const Lock lock(mutex_);
    if (sink_) {
      sink_(record);
      return;
    }
    if (records_.size() == kKept) records_.pop_front();
    records_.push_back(std::move(record));
    any_.store(true, std::memory_order_release);
  }

  bool any() const { return any_.load(std::memory_order_relaxed); }
  std::vector<LogRecord> take() {
    if (!any()) return {};
    const Lock lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    std::vector<LogRecord> taken(std::make_move_iterator(records_.begin()),
                                 std::make_move_iterator(records_.end()));
    records_.clear();
    return taken;
  }

 private:
  std::atomic<LogLevel> least_;
  std::atomic<bool> any_ = false;
  Mutex mutex_;
  const Sink sink_;
  std::deque<LogRecord> records_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
