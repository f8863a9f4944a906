// Several attempts at one request: the first to be answered wins.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/base/gate.h"
#include "headrace/http/io_thread.h"
#include "headrace/http/message.h"
#include "headrace/http/transport.h"
#include "headrace/store/transfer/attempt.h"
#include "headrace/store/transfer/hedge_rules.h"

namespace headrace {

class HostLane;
struct Host;

// One request that only reads, sent over several connections. The first attempt is the operation's
// own exchange; later ones (hedges) run in coroutines of their own, on the same thread.
//
// Who brings the first head has won, and from then on is the only one that the Attempt, and with it
// the caller's memory, hears of: the head is asked for here (admit(), or claims()) before anything
// is done with it. All others have written nothing, since only a body is written. Their answers are
// read to their end and dropped, if they are small, or their connections are closed. A head that
// says "later" (429, 5xx) loses as long as there are others.
//
// A loser may outlive the operation. It keeps this object alive, and a pass, so that the engine
// does not stop before it.
//
// Thread: I/O. Borrows the lane, whose host it holds; the attempt until settle() or abandon().
class Race final : public HeadGate, public std::enable_shared_from_this<Race> {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `first` is the transport of the operation, which waits for its answer. `limit`: of requests in
  // flight, in the lane.
  Race(HostLane& lane, Attempt& attempt, Transport& first, const ExpectedAnswer& expected,
       std::shared_ptr<Gate::Pass> pass, TimePoint deadline);
  ~Race();

  // The request's, in the timeline.
  void set_number(uint32_t number) { number_ = number; }
  // Sends the request once more. HedgeRules::begin() has allowed it.
  void add(const HttpRequest& request);
  uint32_t hedge_count() const { return hedge_count_; }
  // When the newest attempt was sent, or its connection was asked for.
  TimePoint newest_began() const { return newest_began_; }
  bool is_decided() const { return decision_ != Decision::kOpen || is_over_; }
  bool hedge_has_won() const { return decision_ == Decision::kHedge; }

  // The operation's exchange over `first` has ended, with `exchanged`. Waits for the hedges if one
  // of them has won, or still may because this one has failed. Returns the transport of the one
  // that counts, and its outcome in `exchanged`.
  awaitable<std::unique_ptr<Transport>> settle(std::unique_ptr<Transport> first,
                                               Result<void>& exchanged);
  // When the first attempt did what.
  TimePoint first_begun() const { return first_begun_; }
  TimePoint first_opened() const { return first_opened_; }
  TimePoint first_sent() const { return first_sent_; }
  // How long the head that counts was waited for, from when the first attempt was sent.
  std::chrono::nanoseconds waited() const { return answered_at_ - first_sent_; }
  // The operation was stopped: a hedge that has won is aborted (settle() waits for its end), all
  // others have lost.
  void stop(const Error& why);
  // The attempt is about to be destroyed.
  void abandon();

  Result<void> admit(const ResponseHead& head) override;

 private:
  class Contender;
  enum class Decision : uint8_t { kOpen, kFirst, kHedge };

  static awaitable<void> run(std::shared_ptr<Race> race, std::unique_ptr<Transport> connection,
                             HttpRequest request, bool is_first);
  bool claims(Contender& contender, const ResponseHead& head);
  bool is_refused_for_now(const ResponseHead& head);
  void decide(Decision decision);
  void drop_first(std::unique_ptr<Transport> first);
  void note(const Contender& contender, const HttpRequest& request, const Result<void>& exchanged);
  void ended(Contender& contender, Result<void> exchanged);

  const std::shared_ptr<Host> host_;
  HostLane& lane_;
  Attempt& attempt_;  // not once it is over
  Transport* first_;  // while its head is waited for
  const ExpectedAnswer expected_;
  const std::shared_ptr<Gate::Pass> pass_;
  const TimePoint deadline_;
  const TimePoint first_begun_, first_opened_, first_sent_;
  TimePoint newest_began_, answered_at_{};
  std::string_view method_ = "GET";
  uint32_t hedge_count_ = 0;
  uint32_t number_ = 0;
  uint32_t contending_ = 0;              // hedges that may still win
  Decision decision_ = Decision::kOpen;  // who has won
  bool is_over_ = false;                 // nobody may touch the attempt any more
  Contender* winner_ = nullptr;          // the hedge that has won, until it ends
  std::vector<Contender*> contenders_;   // that are running
  std::optional<Result<void>> outcome_;  // of the hedge that has won, once it has ended ...
  std::unique_ptr<Transport> winner_connection_;  // ... and its connection
  Timer changed_;                                 // cancelled to wake settle()
};

}  // namespace headrace
