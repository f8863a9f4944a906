// One request with everything that can happen to it: admission, attempts, back-off, completion.
// Written once; reads, lists, writes and deletes supply an Attempt.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/base/gate.h"
#include "headrace/http/connection.h"
#include "headrace/http/message.h"
#include "headrace/store/options.h"
#include "headrace/store/transfer/attempt.h"
#include "headrace/store/transfer/credentials.h"
#include "headrace/store/transfer/host.h"
#include "headrace/store/transfer/race.h"
#include "headrace/store/transfer/retry.h"

namespace headrace {

// What operations of one store have in common on one I/O thread.
struct StoreContext {
  const RetryOptions retry;
  const TimeoutOptions timeout;
  const std::shared_ptr<Credentials> credentials;  // null: anonymous
  std::unique_ptr<Signer> signer;                  // null: anonymous
  // The lane to another endpoint, for this thread. Errors: kCancelled once the engine is stopped.
  const std::function<Result<HostLane*>(const Endpoint&)> reach;
  // Of the store's root, wherever the bucket is.
  const std::shared_ptr<Pace> pace;
  // What is known of the bucket.
  const std::shared_ptr<LearnedOfBucket> learned = std::make_shared<LearnedOfBucket>();
  // Where the bucket has moved to, and the lane there.
  std::shared_ptr<const Endpoint> moved_to = nullptr;
  HostLane* moved_lane = nullptr;
  // Sees to it that the map of the cluster is fetched, and that MapKeeper::fetched() is called.
  const std::function<void()> fetch_map = {};
  // Whether requests that are late are sent once more, and what keeps the engine from stopping
  // before these have ended.
  const bool hedge = false;
  const std::shared_ptr<Gate> gate = nullptr;
  // The map that this thread goes by, and the lanes to its hosts.
  std::shared_ptr<const HostMap> map = nullptr;
  uint64_t map_version = 0;
  std::vector<HostLane*> map_lanes = {};
  // The lanes to which single requests were sent.
  std::map<Endpoint, HostLane*> lanes_elsewhere = {};
  // How far the service's clock is ahead of ours, as far as it was told.
  std::chrono::system_clock::duration clock_offset{0};
  // The credential in use, kept so that a read takes no lock. Confined to the I/O thread.
  std::shared_ptr<const Credential> credential = nullptr;
  uint64_t credential_version = 0;
  std::chrono::steady_clock::time_point credential_fresh_until = {};
};

// Waits until `store`, which has credentials, has one that is valid.
// Errors: that of whoever makes them; those of `waiting`.
awaitable<Result<void>> authorize(Activity& waiting, StoreContext& store);

// A request that is sent elsewhere, for good or alone, keeps the slot of the operation's own host,
// whose limit learns from the answer, and the pace of its root. Connections, TLS and log are the
// other host's.
// Thread: I/O. Lives in a coroutine's frame; borrows everything.
class Operation final : public Activity {
 public:
  Operation(Slot& slot, StoreContext& store, const void* owner);
  ~Operation();

  // Errors: those of the attempt and of the connection, with URL and attempts; kTimedOut when the
  // deadline passes (the text tells the last failure); kCancelled when stopped.
  awaitable<Result<void>> run(Attempt& attempt, HttpRequest& request);

 private:
  void interrupt(const Error& why) override;
  void sweep(std::chrono::steady_clock::time_point now) override;
  void note_outcome(const RetryState::Outcome& outcome, std::chrono::steady_clock::time_point now);
  awaitable<void> back_off(std::chrono::steady_clock::time_point until);
  Result<void> choose_lane(const Protocol& protocol, HttpRequest& request);
  const HostMap* newest_map();
  Result<HostLane*> lane_elsewhere(const Endpoint& endpoint);
  HostLane* next_entrance();
  void judge_entrance(bool exchanged, RetryState::Outcome& outcome);
  Result<HostLane*> direct_lane(const Placement& placement, HttpRequest& request);
  void compare_with_map(const Placement& placement, const HttpRequest& request);
  void judge_direct(const Attempt& attempt, bool exchanged, RetryState::Outcome& outcome);
  awaitable<bool> may_come_back();
  void record_answer(const RetryState::Outcome& outcome, uint64_t bytes);
  void note(const HttpRequest& request, const std::optional<Error>& error,
            std::chrono::steady_clock::time_point last_byte);
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

  Slot& slot_;
  HostLane* via_ = &slot_.lane();               // the lane that the next attempt goes through
  HostLane* entrance_ = nullptr;                // of the cluster; null: the store's endpoint
  std::shared_ptr<const Elsewhere> elsewhere_;  // where the next attempt alone goes
  StoreContext& store_;
  Attempt* attempt_ = nullptr;
  std::optional<std::chrono::steady_clock::time_point> linger_until_;  // set once it is stopped
  std::unique_ptr<Transport> connection_;
  std::optional<Error> last_;  // of the attempt before
  RetryState retries_;
  // While a connection is being opened.
  std::optional<std::chrono::steady_clock::time_point> opening_since_;
  // Operations are part of the frames of reads, which are recycled up to 1 KiB: what is rare lies
  // elsewhere.
  struct DirectRefusal {
    int status = 0;  // 404 also for an object that is not the one asked for
    uint64_t credential_version = 0;
  };
  struct Rare {
    HeaderGroups without = 0;  // is tried without these, since they may be why it was refused:
    HeaderGroups named = 0;    // those that refusals name
    HeaderGroups guessed = 0;  // the others that it was tried without, one at a time
    std::optional<Error> with_headers = {};
    uint8_t header_trials = 0;                         // so far
    bool had_credentials = false;                      // new ones were tried first
    std::optional<DirectRefusal> direct_refusal = {};  // until the store's endpoint has judged
    std::shared_ptr<Race> race = nullptr;              // once the present attempt has been late
    uint8_t replaced_bodies = 0;
    bool is_replaced = false;                  // the present attempt has been ended for another one
    std::shared_ptr<Outage> outage = nullptr;  // amid which the last attempt failed
    // When the present attempt was to be sent, if it was sent before its time.
    std::chrono::steady_clock::time_point due_at = {};
  };
  Rare& rare();
  Race* race() const { return rare_ ? rare_->race.get() : nullptr; }
  std::unique_ptr<Rare> rare_;
  uint64_t credential_version_ = 0;  // that this attempt carries; the thread's may change
  bool reached_server_ = false;      // the present attempt may have been sent
  bool direct_ = false;              // the present attempt goes to a host of the map
  bool direct_failed_ = false;       // an attempt did, in vain: the others do not
  bool entering_ = false;            // it goes to a cluster's endpoint, or to another entrance
  bool endpoint_failed_ = false;     // since an entrance was reached; `last_` says how
  bool none_reached_ = false;        // of all entrances, by the attempt before
  uint16_t passed_over_ = 0;         // of the map's entrances, since one was reached
  bool told_slow_ = false;
  bool in_flight_ = false;  // as counted: not while it waits for a turn
  uint32_t number_ = 0;     // see number(); 0: none yet
};

}  // namespace headrace
