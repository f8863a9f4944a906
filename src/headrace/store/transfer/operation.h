// One request with everything that can happen to it: admission, attempts, back-off, completion.
// Written once; reads, lists, writes and deletes supply an Attempt.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "headrace/base/gate.h"
#include "headrace/http/connection.h"
#include "headrace/http/message.h"
#include "headrace/store/options.h"
#include "headrace/store/transfer/attempt.h"
#include "headrace/store/transfer/cluster_route.h"
#include "headrace/store/transfer/credentials.h"
#include "headrace/store/transfer/host.h"
#include "headrace/store/transfer/lanes_elsewhere.h"
#include "headrace/store/transfer/race.h"
#include "headrace/store/transfer/retry.h"

namespace headrace {

// What operations of one store have in common on one I/O thread.
struct StoreContext {
  const RetryOptions retry;
  const TimeoutOptions timeout;
  const std::shared_ptr<Credentials> credentials;  // null: anonymous
  std::unique_ptr<Signer> signer;                  // null: anonymous
  LanesElsewhere elsewhere;
  // Of the store's root, wherever the bucket is.
  const std::shared_ptr<Pace> pace;
  // What is known of the bucket.
  const std::shared_ptr<LearnedOfBucket> learned = std::make_shared<LearnedOfBucket>();
  // Where the bucket has moved to, and the lane there.
  std::shared_ptr<const Endpoint> moved_to = nullptr;
  std::shared_ptr<HostLane> moved_lane = nullptr;
  std::unique_ptr<ClusterLanes> cluster = nullptr;  // null: the service is no cluster
  // Whether requests that are late are sent once more, and what keeps the engine from stopping
  // before these have ended.
  const bool hedge = false;
  const std::shared_ptr<Gate> gate = nullptr;
  // How far the service's clock is ahead of ours, as far as it was told.
  std::chrono::system_clock::duration clock_offset{0};
  // The credential in use, kept so that a read takes no lock. Confined to the I/O thread.
  std::shared_ptr<const Credential> credential = nullptr;
  uint64_t credential_version = 0;
  std::chrono::steady_clock::time_point credential_fresh_until = {};
};

// Waits until `store`, which has credentials, has one that is valid.
// Errors: those of making the credential; those of `waiting`.
awaitable<Result<void>> authorize(Activity& waiting, StoreContext& store);

// A request that is sent elsewhere, for good or alone, keeps the permit of the operation's own
// host, whose limit learns from the answer, and the pace of its root. Connections, TLS and log are
// the other host's.
// Thread: I/O. Lives in a coroutine's frame; borrows everything.
class Operation final : public Activity {
 public:
  Operation(Permit& permit, StoreContext& store, const void* owner);
  ~Operation();

  // Errors: those of the attempt and of the connection, with URL and attempts; kTimedOut when the
  // deadline passes (the text tells the last failure); kCancelled when stopped.
  awaitable<Result<void>> run(Attempt& attempt, HttpRequest& request);

 private:
  using Remedy = RetryState::Remedy;
  void interrupt(const Error& why) override;
  void sweep(std::chrono::steady_clock::time_point now) override;
  void note_outcome(const RetryState::Outcome& outcome, std::chrono::steady_clock::time_point now);
  awaitable<void> back_off(std::chrono::steady_clock::time_point until);
  Result<void> choose_lane(const Protocol& protocol, HttpRequest& request);
  bool goes_direct() const { return cluster_ && cluster_->is_direct(); }
  awaitable<bool> may_come_back(const Attempt& attempt, const RetryState::Outcome& outcome);
  void record_answer(const RetryState::Outcome& outcome, uint64_t bytes);
  void note(const HttpRequest& request, const std::optional<Error>& error,
            std::chrono::steady_clock::time_point last_byte);
  void apply(Remedy remedy, Attempt& attempt, const HttpRequest& request,
             std::optional<Error> error);
  awaitable<bool> wait_for_turn();
  awaitable<void> settle_race(Result<void>& exchanged);
  void hedge_if_late(std::chrono::steady_clock::time_point now);
  void replace_if_slow(std::chrono::steady_clock::time_point now);
  void count_in_flight(bool in_flight);
  // Of the request, in the timeline: its attempts have the same.
  uint32_t number();
  void leave_out_headers(const Protocol& protocol, HttpRequest& request,
                         std::chrono::steady_clock::time_point now);
  void end_header_trial();
  void judge_wait(const Attempt& attempt, RetryState::Outcome& outcome);
  void judge_headers(Attempt& attempt, const HttpRequest& request, RetryState::Outcome& outcome);
  RetryState::Outcome end_attempt(Attempt& attempt, const HttpRequest& request,
                                  Result<void> exchanged);
  Error finished(const Attempt& attempt, Error error) const;

  // The lane that the present attempt goes through.
  HostLane& via() const { return other_lane_ ? *other_lane_ : permit_.lane(); }

  Permit& permit_;
  std::shared_ptr<HostLane> other_lane_;  // see via(); null: the permit's
  std::optional<ClusterRoute> cluster_;   // none: the service is no cluster
  StoreContext& store_;
  Attempt* attempt_ = nullptr;
  std::optional<std::chrono::steady_clock::time_point> linger_until_;  // set once it is stopped
  std::unique_ptr<Transport> connection_;
  RetryState retries_;
  // Operations are part of the frames of reads, which are recycled up to 1 KiB: what is rare lies
  // elsewhere.
  struct Rare {
    std::shared_ptr<const Elsewhere> elsewhere = nullptr;  // where the next attempt alone goes
    std::optional<Error> last = {};                        // of the attempt before
    // While a connection is being opened.
    std::optional<std::chrono::steady_clock::time_point> opening_since = {};
    HeaderGroups without = 0;  // is tried without these, since they may be why it was refused:
    HeaderGroups named = 0;    // those that refusals name
    HeaderGroups guessed = 0;  // the others that it was tried without, one at a time
    std::optional<Error> with_headers = {};
    uint8_t header_trials = 0;             // so far
    bool had_credentials = false;          // new ones were tried first
    std::shared_ptr<Race> race = nullptr;  // once the present attempt has been late
    uint8_t replaced_bodies = 0;
    bool is_replaced = false;                  // the present attempt has been ended for another one
    std::shared_ptr<Outage> outage = nullptr;  // amid which the last attempt failed
    // When the present attempt was to be sent, if it was sent before its time.
    std::chrono::steady_clock::time_point due_at = {};
  };
  Rare& rare();
  Race* race() const { return rare_ ? rare_->race.get() : nullptr; }
  const Elsewhere* elsewhere() const { return rare_ ? rare_->elsewhere.get() : nullptr; }
  const Error* last() const { return rare_ && rare_->last ? &*rare_->last : nullptr; }
  std::unique_ptr<Rare> rare_;
  uint64_t credential_version_ = 0;  // that this attempt carries; the thread's may change
  bool reached_server_ = false;      // the present attempt may have been sent
  bool told_slow_ = false;
  bool in_flight_ = false;  // as counted: not while it waits for a turn
  uint32_t number_ = 0;     // see number(); 0: none yet
};

}  // namespace headrace
