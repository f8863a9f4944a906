// A bucket, or a folder of it, that is reached over HTTP: where a request finds its way.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "headrace/base/gate.h"
#include "headrace/base/pending.h"
#include "headrace/http/completion.h"
#include "headrace/store/options.h"
#include "headrace/store/protocol.h"
#include "headrace/store/temporary_names.h"
#include "headrace/store/transfer/engine_resources.h"
#include "headrace/store/transfer/host.h"
#include "headrace/store/transfer/operation.h"
#include "headrace/store/upload_sums.h"

namespace headrace {

// What a write by one request goes by.
struct WriteFacts {
  WriteConditions& conditions;
  std::shared_ptr<SumLadder> sums;
};

// Runs attempts, each as one operation on one of the I/O threads, and knows what they need: the
// protocol, the host, and what this process has learned of the bucket.
// Thread: any. Lives as long as anything that it runs.
class RemoteRoot final : public std::enable_shared_from_this<RemoteRoot> {
 public:
  // The host of another endpoint, with these options.
  using Reach = std::function<Result<std::shared_ptr<Host>>(const Endpoint&)>;

  // `bucket`: null if this is the bucket itself, and reads what is stored.
  RemoteRoot(std::shared_ptr<const EngineResources> engine, std::shared_ptr<Host> host,
             std::shared_ptr<Pace> pace, std::unique_ptr<const Protocol> protocol,
             const StoreOptions& options, const Reach& reach, std::shared_ptr<RemoteRoot> bucket);

  // Runs an attempt of this type, made with the protocol and `arguments`. It ends with what the
  // attempt has as its result.
  // Errors: those of the operation; kCancelled once the engine is stopped.
  template <class AttemptType, class... Arguments>
  auto run(Arguments&&... arguments) {
    using T = typename decltype(AttemptType::result)::value_type;
    auto attempt = std::make_shared<AttemptType>(*protocol_, std::forward<Arguments>(arguments)...);
    std::string url = attempt->url();
    return spawn<T>(std::move(url),
                    [attempt = std::move(attempt)](std::shared_ptr<RemoteRoot> self, HostLane& lane,
                                                   std::shared_ptr<Pending<T>> pending,
                                                   std::shared_ptr<Gate::Pass> pass) mutable {
                      return run_operation<T>(std::move(self), lane, std::move(attempt),
                                              std::move(pending), std::move(pass));
                    });
  }
  // Runs `work`, a coroutine function (self, lane, pending, pass), on one of the I/O threads. It
  // completes `pending`, and keeps `self` and `pass`. `url`: what an error is about.
  template <class T, class Work>
  std::shared_ptr<Pending<T>> spawn(std::string url, Work work);

  // The same bucket by full names, for temporary objects, which lie outside the root, and for what
  // is read to be written elsewhere: it reads what is stored, and transforms nothing.
  std::shared_ptr<RemoteRoot> bucket() { return bucket_ ? bucket_ : shared_from_this(); }
  const EngineResources& engine() const { return *engine_; }
  Host& host() const { return *host_; }
  const std::shared_ptr<Pace>& pace() const { return pace_; }
  const Protocol& protocol() const { return *protocol_; }
  // That of what is stored.
  const Protocol& stored_protocol() const { return bucket_ ? *bucket_->protocol_ : *protocol_; }
  LearnedOfBucket& learned() const { return *learned_; }
  std::shared_ptr<const LearnedOfBucket> shared_learned() const { return learned_; }
  const Root& root() const { return protocol_->root(); }
  std::string url_of(std::string_view name) const { return protocol_->url_of(name); }
  const TemporaryNames& temporaries() const { return temporaries_; }
  const WriteLimits& write_limits() const { return write_limits_; }
  bool has_credentials() const { return contexts_.front()->credentials != nullptr; }
  // Of the lane's thread.
  StoreContext& context(HostLane& lane) const { return *contexts_[lane.thread().index()]; }
  // The lane for what comes next, in turn: requests and batches of reads share the turns.
  size_t next_lane_index() {
    return next_lane_.fetch_add(1, std::memory_order_relaxed) % host_->lanes.size();
  }
  HostLane& next_lane() { return *host_->lanes[next_lane_index()]; }
  // The sums of a new upload, and what a write by one request goes by, from what is known of the
  // bucket.
  std::shared_ptr<SumLadder> part_sums() { return sums_from(learned_->part_sums); }
  WriteFacts write_facts() {
    return {.conditions = learned_->conditions, .sums = sums_from(learned_->write_sums)};
  }
  // What proves what is written, in parts or by one request; none: it is not known yet.
  std::optional<SumLevel> written_sums(bool in_parts) const;
  // Whether answers to stats and reads may tell sums: not where the service has refused to.
  bool tells_sums() const;

  // The map of the cluster: fetched for all who use this host; completes once it is known, or
  // cannot be fetched.
  std::shared_ptr<Pending<bool>> know_map();
  // A name that begins with `stem`, and that the host of `name` has, too; "" without a map.
  std::string name_beside(const std::string& stem, std::string_view name) const;
  bool are_together(std::string_view a, std::string_view b) const;

  std::atomic<uint64_t> largest_page_bytes = 0;  // of the answers to listings

 private:
  std::shared_ptr<SumLadder> sums_from(SumsRecord& record);
  void fetch_map();
  static awaitable<void> run_map_fetch(std::shared_ptr<RemoteRoot> self, HostLane& lane,
                                       std::shared_ptr<Gate::Pass> pass);
  template <class T, class AttemptType>
  static awaitable<void> run_operation(std::shared_ptr<RemoteRoot> self, HostLane& lane,
                                       std::shared_ptr<AttemptType> attempt,
                                       std::shared_ptr<Pending<T>> pending,
                                       std::shared_ptr<Gate::Pass> pass);

  const std::shared_ptr<const EngineResources> engine_;
  const std::shared_ptr<Host> host_;
  const std::shared_ptr<Pace> pace_;
  const std::unique_ptr<const Protocol> protocol_;
  const std::shared_ptr<RemoteRoot> bucket_;
  const std::shared_ptr<LearnedOfBucket> learned_;
  const TemporaryNames temporaries_;
  const WriteLimits write_limits_;
  std::vector<std::unique_ptr<StoreContext>> contexts_;  // one per I/O thread
  std::atomic<uint32_t> next_lane_ = 0;
};

template <class T, class AttemptType>
awaitable<void> RemoteRoot::run_operation(std::shared_ptr<RemoteRoot> self, HostLane& lane,
                                          std::shared_ptr<AttemptType> attempt,
                                          std::shared_ptr<Pending<T>> pending,
                                          [[maybe_unused]] std::shared_ptr<Gate::Pass> pass) {
  RequestPermit permit(lane, pending.get());
  Result<void> done = co_await permit.take(self->pace_);
  if (done) {
    HttpRequest request;
    Operation operation(permit.permit(), self->context(lane), pending.get());
    if (pending->cancelled()) operation.stop(Error(Code::kCancelled, "it was cancelled"));
    done = co_await operation.run(*attempt, request);
  } else {
    done = std::unexpected(std::move(done.error()).with_url(attempt->url()));
  }
  permit.release();
  Result<T> result = done ? std::move(attempt->result) : Result<T>(std::unexpected(done.error()));
  // Releases what was sent before its owner is told that it may reuse it.
  attempt.reset();
  pending->complete(std::move(result));
}

template <class T, class Work>
std::shared_ptr<Pending<T>> RemoteRoot::spawn(std::string url, Work work) {
  auto pending = std::make_shared<Pending<T>>();
  std::shared_ptr<Gate::Pass> pass = engine_->gate->enter();
  if (pass == nullptr) {
    pending->complete(std::unexpected(
        Error(Code::kCancelled, "the engine was stopped").with_url(std::move(url))));
    return pending;
  }
  HostLane* const lane = &next_lane();
  const std::weak_ptr<IoThread> thread = lane->thread().weak_from_this();
  pending->set_on_cancel([thread, owner = pending.get()] {
    if (const std::shared_ptr<IoThread> alive = thread.lock()) {
      alive->stop_owned_by(owner, Error(Code::kCancelled, "it was cancelled"));
    }
  });
  lane->thread().post(
      [self = shared_from_this(), lane, work = std::move(work), pending, pass]() mutable {
        headrace::spawn(
            lane->thread().context(),
            [&] { return work(std::move(self), *lane, pending, std::move(pass)); },
            [pending] { pending->complete(fail(Code::kInternal, "no memory for the request")); });
      });
  return pending;
}

// Already completed with an error.
template <class T>
std::shared_ptr<Pending<T>> refused(Error error) {
  auto pending = std::make_shared<Pending<T>>();
  pending->complete(std::unexpected(std::move(error)));
  return pending;
}

}  // namespace headrace
