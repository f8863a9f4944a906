// Headers that a request would do without, and what a service makes of them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace headrace {

// A group of them, which a service takes or refuses as one.
struct OptionalHeaders {
  std::string_view prefix;   // of their names, in lower case
  std::string_view without;  // what is lost without them, for the log
};
// Groups, as bits: those of a protocol, in its order.
using HeaderGroups = uint8_t;
constexpr size_t kMostHeaderGroups = 8;

// Which of them are in "Name: value\r\n"...: a header belongs to the first group that its name
// begins like.
HeaderGroups groups_in(std::string_view lines, std::span<const OptionalHeaders> groups);
// Takes out the headers of these groups.
void leave_out(std::string& lines, std::span<const OptionalHeaders> groups, HeaderGroups which);
// The group that a refusal names; 0: none.
HeaderGroups named_group(std::string_view refusal, std::span<const OptionalHeaders> groups);

// What is known of one host. A header is blamed for a refusal only if the same request is then
// carried out without it. That is forgotten after a while: a service may learn, too.
// Time is an argument. Thread: any.
class LearnedHeaders {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::minutes kForgottenAfter{10};

  // Those that are refused, as far as is known now.
  HeaderGroups refused(TimePoint now) const;
  // Those that a request was carried out with.
  HeaderGroups taken() const { return taken_.load(std::memory_order_relaxed); }
  // A request was carried out with these.
  void note_taken(HeaderGroups groups) {
    if ((groups & ~taken()) != 0) taken_.fetch_or(groups, std::memory_order_relaxed);
  }
  // A request was refused with these, and carried out without them.
  void note_refused(HeaderGroups groups, TimePoint now);

 private:
  std::atomic<HeaderGroups> taken_ = 0;
  std::array<std::atomic<TimePoint::rep>, kMostHeaderGroups> refused_until_{};  // 0: not refused
};

}  // namespace headrace
