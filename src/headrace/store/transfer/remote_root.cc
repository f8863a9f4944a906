#include "headrace/store/transfer/remote_root.h"

#include "headrace/store/placement.h"
#include "headrace/store/transfer/map_attempt.h"

namespace headrace {

RemoteRoot::RemoteRoot(std::shared_ptr<const EngineResources> engine, std::shared_ptr<Host> host,
                       std::shared_ptr<Pace> pace, std::unique_ptr<const Protocol> protocol,
                       const StoreOptions& options, const Reach& reach,
                       std::shared_ptr<RemoteRoot> bucket)
    : engine_(std::move(engine)),
      host_(std::move(host)),
      pace_(std::move(pace)),
      protocol_(std::move(protocol)),
      bucket_(std::move(bucket)),
      learned_(host_->buckets.of(stored_protocol().url_of(""))),
      temporaries_(options.temporary_prefix),
      write_limits_(options.write_limits) {
  for (size_t i = 0; i < engine_->io_threads.size(); ++i) {
    LanesElsewhere elsewhere([reach, i](const Endpoint& at) -> Result<std::shared_ptr<HostLane>> {
      Result<std::shared_ptr<Host>> host = reach(at);
      if (!host) return std::unexpected(std::move(host.error()));
      HostLane* const lane = (*host)->lanes[i].get();
      return std::shared_ptr<HostLane>(lane, [stays = std::move(*host)](HostLane*) {});
    });
    contexts_.push_back(std::make_unique<StoreContext>(
        StoreContext{.retry = options.retry,
                     .timeout = options.timeout,
                     .credentials = options.credentials,
                     .signer = options.credentials ? protocol_->make_signer() : nullptr,
                     .elsewhere = std::move(elsewhere),
                     .pace = pace_,
                     .learned = learned_,
                     .hedge = options.hedge,
                     .gate = engine_->gate}));
    StoreContext& context = *contexts_.back();
    if (const Placement* placement = protocol_->placement()) {
      context.cluster = std::make_unique<ClusterLanes>(*placement, host_->map, context.elsewhere,
                                                       [this] { fetch_map(); });
    }
  }
}

std::shared_ptr<SumLadder> RemoteRoot::sums_from(SumsRecord& record) {
  const UploadSums first = protocol_->first_sums();
  if (first.known) return std::make_shared<SumLadder>(first);
  return std::make_shared<SumLadder>(record.at(std::chrono::steady_clock::now()).value_or(first),
                                     [&record, alive = learned_, host = host_,
                                      url = bucket()->url_of("")](const UploadSums& sums) {
                                       if (record.learn(sums, std::chrono::steady_clock::now())) {
                                         host->log.weaker_sums(url, sums.level);
                                       }
                                     });
}

std::optional<SumLevel> RemoteRoot::written_sums(bool in_parts) const {
  const UploadSums first = protocol_->first_sums();
  if (first.known) return first.level;
  const SumsRecord& record = in_parts ? learned_->part_sums : learned_->write_sums;
  const std::optional<UploadSums> sums = record.at(std::chrono::steady_clock::now());
  return sums ? std::optional(sums->level) : std::nullopt;
}

bool RemoteRoot::tells_sums() const {
  return learned_->refused(protocol_->headers_for_sums(), std::chrono::steady_clock::now()) == 0;
}

// ── The map of a cluster ─────────────────────────────────────────────────────────────────────

std::shared_ptr<Pending<bool>> RemoteRoot::know_map() {
  auto pending = std::make_shared<Pending<bool>>();
  pending->set_on_cancel([weak = std::weak_ptr(pending)] {
    if (const auto alive = weak.lock()) {
      alive->complete(fail(Code::kCancelled, "cancelled while waiting for the cluster's map"));
    }
  });
  // The fetch goes on, for others.
  const auto then = [self = shared_from_this(), pending] {
    const std::optional<Error> why = self->host_->map.why_unknown();
    if (!why) {
      pending->complete(true);
      return;
    }
    pending->complete(std::unexpected(
        Error(why->code(), cat("the map of the cluster is not known: ", why->to_string()))));
  };
  if (host_->map.when_known(then)) fetch_map();
  return pending;
}

bool RemoteRoot::are_together(std::string_view a, std::string_view b) const {
  const Placement* const placement = protocol_->placement();
  const std::shared_ptr<const HostMap> map = host_->map.map();
  if (placement == nullptr || map == nullptr) return false;
  const std::optional<size_t> host = placement->owner(*map, a);
  return host && host == placement->owner(*map, b);
}

std::string RemoteRoot::name_beside(const std::string& stem, std::string_view name) const {
  // Any name has the host with a chance of one in as many as there are.
  for (int i = 0; host_->map.version() > 0 && i < 1'000'000; ++i) {
    std::string beside = cat(stem, i);
    if (are_together(beside, name)) return beside;
  }
  return "";
}

void RemoteRoot::fetch_map() {
  std::shared_ptr<Gate::Pass> pass = engine_->gate->enter();
  HostLane* const lane = &next_lane();
  if (pass == nullptr) {
    host_->map.fetched(fail(Code::kCancelled, "the engine was stopped"), lane->thread().now());
    return;
  }
  lane->thread().post([self = shared_from_this(), lane, pass = std::move(pass)]() mutable {
    headrace::spawn(
        lane->thread().context(), [&] { return run_map_fetch(self, *lane, std::move(pass)); },
        [self, lane] {
          self->host_->map.fetched(fail(Code::kInternal, "no memory for it"), lane->thread().now());
        });
  });
}

awaitable<void> RemoteRoot::run_map_fetch(std::shared_ptr<RemoteRoot> self, HostLane& lane,
                                          [[maybe_unused]] std::shared_ptr<Gate::Pass> pass) {
  // Beyond the limit: those who hold the permits may be waiting for the map.
  Permit permit(lane, /*reads=*/false);
  Result<void> done;
  MapAttempt attempt(*self->protocol_);
  {
    HttpRequest request;
    Operation operation(permit, self->context(lane), self.get());
    done = co_await operation.run(attempt, request);
  }
  permit.release();
  if (!done) attempt.result = std::unexpected(std::move(done.error()));
  self->host_->map.fetched(std::move(attempt.result), lane.thread().now());
}

}  // namespace headrace
