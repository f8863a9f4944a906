#include "headrace/engine.h"

#include <boost/asio/executor_work_guard.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "headrace/base/fork.h"
#include "headrace/base/gate.h"
#include "headrace/base/mutex.h"
#include "headrace/format/base64.h"
#include "headrace/format/percent.h"
#include "headrace/format/proxy_rules.h"
#include "headrace/http/io_thread.h"
#include "headrace/http/resolver.h"
#include "headrace/store/file/file_store.h"
#include "headrace/store/gcs/gcs_protocol.h"
#include "headrace/store/host.h"
#include "headrace/store/http_store.h"
#include "headrace/store/object_writer.h"

#ifndef HEADRACE_VERSION
#define HEADRACE_VERSION "0"
#endif

namespace headrace {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kStopDeadline{10};
constexpr std::string_view kGcsEndpoint = "https://storage.googleapis.com";

// "user:password@" of a proxy's address is taken off and becomes its credentials.
struct ProxyAddress {
  Endpoint endpoint;
  std::string authorization;
};

Result<ProxyAddress> parse_proxy(std::string_view text) {
  ProxyAddress proxy;
  std::string address(text);
  const size_t scheme_end = address.contains("://") ? address.find("://") + 3 : 0;
  const size_t at = address.rfind('@');
  if (at != std::string::npos) {
    Result<std::string> user = percent_decode(address.substr(scheme_end, at - scheme_end));
    if (!user) return invalid_argument("the proxy address has malformed credentials");
    proxy.authorization =
        cat("Basic ", base64_encode(std::as_bytes(std::span(user->data(), user->size()))));
    address.erase(scheme_end, at + 1 - scheme_end);
  }
  Result<Endpoint> endpoint = parse_endpoint(address, /*default_tls=*/false);
  if (!endpoint) return std::unexpected(std::move(endpoint.error()));
  if (endpoint->tls) {
    return invalid_argument("proxy ", address,
                            ": only http:// proxies are supported (the tunnel's "
                            "content is encrypted end to end)");
  }
  proxy.endpoint = std::move(*endpoint);
  return proxy;
}

Result<void> validate(const StoreOptions& options) {
  const auto positive = [](std::string_view name, auto value) -> Result<void> {
    if (value > decltype(value){}) return {};
    return invalid_argument(name, " must be positive");
  };
  const std::initializer_list<Result<void>> checks = {
      positive("timeout.connect", options.timeout.connect),
      positive("timeout.tls", options.timeout.tls),
      positive("timeout.first_byte", options.timeout.first_byte),
      positive("timeout.stall", options.timeout.stall),
      positive("timeout.total", options.timeout.total),
      positive("retry.max_attempts", options.retry.max_attempts),
      positive("max_in_flight", options.max_in_flight),
      positive("initial_in_flight", options.initial_in_flight),
      positive("range_bytes", options.range_bytes),
      positive("range_threshold_bytes", options.range_threshold_bytes)};
  for (const Result<void>& check : checks) {
    if (!check) return check;
  }
  if (options.retry.backoff_multiplier < 1) {
    return invalid_argument("retry.backoff_multiplier must be at least 1");
  }
  return {};
}

}  // namespace

struct Engine::State {
  std::shared_ptr<EngineResources> resources;
  std::shared_ptr<FilePool> file_pool;
  std::shared_ptr<FilePool> compute_pool;
  std::shared_ptr<Metrics> file_metrics = std::make_shared<Metrics>();
  Resolver resolver;
  uint64_t epoch = fork_epoch();

  using HostKey =
      std::tuple<Endpoint, std::string, std::string, int64_t, int64_t, int64_t, int64_t>;
  Mutex mutex;
  // Stores share hosts, and hosts outlive stores: their connections and limits are worth keeping.
  std::map<HostKey, std::shared_ptr<Host>> hosts HEADRACE_GUARDED_BY(mutex);
  bool stopped HEADRACE_GUARDED_BY(mutex) = false;

  Result<std::shared_ptr<Host>> host(const Endpoint& endpoint, const StoreOptions& options);
  void pump_all();
};

Engine::Engine(const EngineOptions& options) : state_(std::make_shared<State>()) {
  State& state = *state_;
  state.resources = std::make_shared<EngineResources>();
  EngineResources& resources = *state.resources;
  resources.gate = std::make_shared<Gate>();
  resources.pool = std::make_shared<BlockPool>(options.memory_budget_bytes);
  resources.writers = std::make_shared<WriterRegistry>();
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const uint32_t io_threads = options.io_threads > 0 ? options.io_threads : std::min(4u, cores);
  for (uint32_t i = 0; i < io_threads; ++i) resources.io_threads.push_back(IoThread::start(i));
  state.file_pool = std::make_shared<FilePool>(options.file_threads);
  state.compute_pool = std::make_shared<FilePool>(std::min(2u, cores));
  resources.compute = [pool = state.compute_pool](std::move_only_function<void()> job) {
    return pool->post(std::move(job));
  };
  resources.pool->set_on_room([weak = std::weak_ptr<State>(state_)] {
    if (const std::shared_ptr<State> alive = weak.lock()) alive->pump_all();
  });
}

Engine::~Engine() {
  if (!usable_in_this_process()) {
    // A forked child: the threads are the parent's. Nothing here may be joined or destroyed.
    static_cast<void>(new std::shared_ptr<State>(std::move(state_)));
    return;
  }
  stop();
  // Blocks that the user still holds keep the pool, not the engine.
  state_->resources->pool->set_on_room(nullptr);
}

bool Engine::usable_in_this_process() const { return state_->epoch == fork_epoch(); }

void Engine::State::pump_all() {
  const Lock lock(mutex);
  if (stopped) return;
  for (const auto& [key, host] : hosts) {
    for (const std::unique_ptr<HostLane>& lane : host->lanes) {
      lane->thread().post([raw = lane.get()] { raw->pump(); });
    }
  }
  file_pool->wake();
}

Result<std::shared_ptr<Host>> Engine::State::host(const Endpoint& endpoint,
                                                  const StoreOptions& options) {
  auto route = std::make_shared<Route>();
  route->endpoint = endpoint;
  route->timeout = options.timeout;
  route->user_agent = cat("headrace/", HEADRACE_VERSION,
                          options.user_agent_suffix.empty() ? "" : " ", options.user_agent_suffix);
  const std::string& proxy_text =
      endpoint.tls ? options.proxy.https_proxy : options.proxy.http_proxy;
  std::string via;
  if (!proxy_text.empty() &&
      !bypasses_proxy(options.proxy.no_proxy, endpoint.host, endpoint.port)) {
    Result<ProxyAddress> proxy = parse_proxy(proxy_text);
    if (!proxy) return std::unexpected(std::move(proxy.error()));
    route->proxy = std::move(proxy->endpoint);
    route->proxy_authorization = std::move(proxy->authorization);
    via = proxy_text;
  }
  // What makes two routes different; the rest of the options is the store's own.
  const HostKey key{endpoint,
                    via,
                    cat(options.tls.ca_file, "\n", route->user_agent),
                    options.timeout.connect.count(),
                    options.timeout.first_byte.count(),
                    options.timeout.stall.count(),
                    options.max_in_flight};
  const Lock lock(mutex);
  if (stopped) return fail(Code::kCancelled, "the engine was stopped");
  std::shared_ptr<Host>& found = hosts[key];
  if (!found) {
    if (endpoint.tls) {
      Result<std::shared_ptr<TlsContext>> tls = TlsContext::create(options.tls);
      if (!tls) {
        hosts.erase(key);
        return std::unexpected(std::move(tls.error()));
      }
      route->tls = std::move(*tls);
    }
    found = std::make_shared<Host>(std::move(route), options.initial_in_flight,
                                   options.max_in_flight, options.retry.budget_tokens);
    for (const std::shared_ptr<IoThread>& thread : resources->io_threads) {
      found->lanes.push_back(
          std::make_unique<HostLane>(*found, *thread, resolver, *resources->pool));
    }
  }
  return found;
}

Result<std::shared_ptr<ObjectStore>> Engine::open(const Url& url, const StoreOptions& options) {
  if (Result<void> valid = validate(options); !valid) {
    return std::unexpected(std::move(valid.error()));
  }
  switch (url.scheme) {
    case Scheme::kFile:
      return open_file_store(url, options, state_->resources->pool, state_->file_pool,
                             state_->file_metrics, state_->resources->writers);
    case Scheme::kGs: {
      Result<Endpoint> endpoint = parse_endpoint(
          options.endpoint.empty() ? kGcsEndpoint : std::string_view(options.endpoint), true);
      if (!endpoint) return std::unexpected(std::move(endpoint.error()));
      Result<std::shared_ptr<Host>> host = state_->host(*endpoint, options);
      if (!host) return std::unexpected(std::move(host.error()));
      return std::make_shared<HttpStore>(
          state_->resources, std::move(*host),
          std::make_unique<GcsProtocol>(url.bucket, options.user_project), options);
    }
    case Scheme::kS3:
    case Scheme::kAis:
      return invalid_argument(url.to_string(), ": ", to_string(url.scheme),
                              ":// is not supported yet; gs://, file:// and plain paths are");
  }
  return fail(Code::kInternal, "unknown scheme");
}

void Engine::stop() {
  State& state = *state_;
  {
    const Lock lock(state.mutex);
    if (std::exchange(state.stopped, true)) return;
  }
  // Refuse, cancel, flush the queues, wait, join. Writers come first: they need the engine to
  // remove what they have put somewhere.
  EngineResources& resources = *state.resources;
  const MayBlock may_block = MayBlock::on_this_thread();
  resources.writers->stop(steady_clock::now() + ObjectWriter::kCleaningPatience, may_block);
  resources.gate->close();
  for (const std::shared_ptr<IoThread>& thread : resources.io_threads) thread->stop_all();
  std::vector<HostLane*> lanes;
  {
    const Lock lock(state.mutex);
    for (const auto& [key, host] : state.hosts) {
      for (const std::unique_ptr<HostLane>& lane : host->lanes) lanes.push_back(lane.get());
    }
  }
  for (HostLane* lane : lanes) {
    lane->thread().post([lane] { lane->pump(); });
  }
  state.file_pool->stop();
  static_cast<void>(resources.gate->wait_empty(steady_clock::now() + kStopDeadline, may_block));
  state.compute_pool->stop();
  for (HostLane* lane : lanes) {
    lane->thread().post([lane] { lane->close_idle(); });
  }
  for (const std::shared_ptr<IoThread>& thread : resources.io_threads) thread->join();
}

BlockPool& Engine::pool() { return *state_->resources->pool; }

EngineMetrics Engine::metrics() const {
  const State& state = *state_;
  EngineMetrics sum;
  const auto add = [&sum](const Metrics& metrics) {
    const auto get = [](const std::atomic<uint64_t>& counter) {
      return counter.load(std::memory_order_relaxed);
    };
    sum.requests_total += get(metrics.requests_total);
    sum.retries_total += get(metrics.retries_total);
    sum.throttled_total += get(metrics.throttled_total);
    sum.connections_opened_total += get(metrics.connections_opened_total);
    sum.tls_resumed_total += get(metrics.tls_resumed_total);
    sum.bytes_read_total += get(metrics.bytes_read_total);
    sum.objects_read_total += get(metrics.objects_read_total);
    sum.checksums_verified_total += get(metrics.checksums_verified_total);
    sum.connections_open += get(metrics.connections_open);
    sum.in_flight += get(metrics.in_flight);
  };
  for (const std::shared_ptr<IoThread>& thread : state.resources->io_threads) {
    add(thread->metrics());
  }
  add(*state.file_metrics);
  {
    const Lock lock(state_->mutex);
    for (const auto& [key, host] : state_->hosts) {
      sum.in_flight_limit = std::max<uint64_t>(sum.in_flight_limit, host->admission.limit());
    }
  }
  sum.memory = state.resources->pool->use();
  return sum;
}

}  // namespace headrace
