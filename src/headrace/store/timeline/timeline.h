// When each attempt of each request did what. Recorded only while somebody has asked for it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"

namespace headrace {

// How an attempt ended.
enum class AttemptEnd : uint8_t {
  kDone,
  kFailed,  // also if it is repeated, or if the answer says where to send it instead
  kLost,    // a hedge: another attempt was answered first
};
std::string_view to_string(AttemptEnd end);

// The beginning or the end of a text, as far as there is room: without an allocation.
template <size_t Size>
class ShortText {
 public:
  void keep_front(std::string_view text) { keep(text.substr(0, Size)); }
  void keep_back(std::string_view text) {
    keep(text.substr(text.size() - std::min(text.size(), Size)));
  }
  std::string_view view() const { return {text_.data(), size_}; }

 private:
  static_assert(Size < 256);
  void keep(std::string_view text) {
    size_ = static_cast<uint8_t>(text.size());
    std::ranges::copy(text, text_.begin());
  }
  std::array<char, Size> text_;
  uint8_t size_ = 0;
};

// One attempt: a request that was sent once, or could not be sent. Times that it did not come to
// are zero; the others are in this order.
struct AttemptRecord {
  using TimePoint = std::chrono::steady_clock::time_point;

  TimePoint queued{};      // the caller asked for it; known of reads, for their first attempt
  TimePoint begun{};       // admitted: it has a slot, and its turn
  TimePoint connected{};   // the connection was open, if it had to be opened
  TimePoint sent{};        // all of it
  TimePoint first_byte{};  // of the answer
  TimePoint last_byte{};
  TimePoint ended{};     // what it brought was checked, or parsed
  uint64_t bytes = 0;    // of an accepted body, or of the body that was sent
  uint32_t number = 0;   // of the request, from 1: its attempts have the same
  uint32_t thread = 0;   // index of the I/O thread
  uint16_t attempt = 0;  // from 1
  uint16_t status = 0;   // 0: no answer
  AttemptEnd end = AttemptEnd::kDone;
  Code code = Code::kInternal;  // of the error, if it has failed
  bool is_hedge = false;        // sent beside an attempt that was late
  bool was_hedged = false;      // an attempt beside which others were sent
  ShortText<7> method;
  ShortText<31> host;
  ShortText<71> target;  // the end of its path, percent-encoded, without the query
  // Without the query, which may hold a signature.
  void set_target(std::string_view path_and_query) {
    target.keep_back(path_and_query.substr(0, path_and_query.find('?')));
  }
};

struct Timeline {
  std::vector<AttemptRecord> attempts;  // by thread, and by when they ended
  uint64_t dropped = 0;                 // older ones, for which there was no room
};

namespace timeline_state {
extern constinit std::atomic<bool> is_on;
}

// Whether attempts are noted. Thread: any.
inline bool timeline_is_on() { return timeline_state::is_on.load(std::memory_order_relaxed); }

// Notes attempts from now on, on each thread the last `attempts_per_thread`, at least 1. What was
// noted before and not taken is dropped. There is one timeline per process; a forked child begins
// without one. Thread: any.
void begin_timeline(size_t attempts_per_thread);
// Notes no more, and returns what was noted. Attempts that have not ended are not among it.
// Thread: any.
Timeline end_timeline();
// Call only if timeline_is_on(). Thread: any.
void note_attempt(const AttemptRecord& attempt);
// A number for another request. Thread: any.
uint32_t next_request_number();

}  // namespace headrace
