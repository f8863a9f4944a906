#include "headrace/engine.h"

#include <boost/asio/executor_work_guard.hpp>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/base/fork.h"
#include "headrace/base/gate.h"
#include "headrace/base/mutex.h"
#include "headrace/base/thread_pool.h"
#include "headrace/base/warnings.h"
#include "headrace/format/base64.h"
#include "headrace/format/percent.h"
#include "headrace/format/proxy_rules.h"
#include "headrace/http/io_thread.h"
#include "headrace/http/message.h"
#include "headrace/http/resolver.h"
#include "headrace/store/ais/ais_protocol.h"
#include "headrace/store/batch_gets.h"
#include "headrace/store/file/file_store.h"
#include "headrace/store/gcs/gcs_protocol.h"
#include "headrace/store/object_writer.h"
#include "headrace/store/reading/batch_get_attempt.h"
#include "headrace/store/reading/batch_get_fetcher.h"
#include "headrace/store/reading/compose_fetcher.h"
#include "headrace/store/reading/grouped_reads.h"
#include "headrace/store/remote/http_store.h"
#include "headrace/store/s3/s3_protocol.h"
#include "headrace/store/transfer/host.h"

#ifndef HEADRACE_VERSION
#define HEADRACE_VERSION "0"
#endif

namespace headrace {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kStopDeadline{10};
// For deleting temporary objects before that.
constexpr std::chrono::seconds kDeleteDeadline{5};

// Takes "user:password@" off a proxy's address and makes it the proxy's credentials.
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

// What distinguishes hosts: how they are reached, and the options that their stores share. All
// other options are per store.
struct HostKey {
  Endpoint endpoint;
  std::string proxy, user_agent;
  TlsOptions certificates;
  std::chrono::milliseconds connect, tls, first_byte, stall;
  uint32_t max_in_flight, initial_in_flight, retry_tokens;
  auto operator<=>(const HostKey&) const = default;
};

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
      positive("compose.max_size_bytes", options.compose.max_size_bytes),
      positive("compose.max_in_flight", options.compose.max_in_flight),
      positive("compose.pause", options.compose.pause),
      positive("get_batch.max_size_bytes", options.get_batch.max_size_bytes),
      positive("get_batch.max_objects", options.get_batch.max_objects),
      positive("get_batch.max_in_flight", options.get_batch.max_in_flight),
      positive("get_batch.pause", options.get_batch.pause),
      positive("range_threshold_bytes", options.range_threshold_bytes)};
  for (const Result<void>& check : checks) {
    if (!check) return check;
  }
  for (const auto& [name, text] : {std::pair("user_agent_suffix", &options.user_agent_suffix),
                                   std::pair("user_project", &options.gcs.user_project)}) {
    if (!is_printable_ascii(*text)) return std::unexpected(HttpRequest::not_printable(name));
  }
  // A path may be in any language, but a line break would start another header.
  const std::initializer_list<std::pair<std::string_view, std::string_view>> texts = {
      {"user_agent_suffix", options.user_agent_suffix},
      {"user_project", options.gcs.user_project},
      {"endpoint", options.endpoint},
      {"proxy.http_proxy", options.proxy.http_proxy},
      {"proxy.https_proxy", options.proxy.https_proxy},
      {"proxy.no_proxy", options.proxy.no_proxy},
      {"tls.ca_file", options.tls.ca_file},
      {"tls.client_cert_file", options.tls.client_cert_file},
      {"tls.client_key_file", options.tls.client_key_file}};
  for (const auto& [name, text] : texts) {
    const bool has_control = std::ranges::any_of(
        text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    if (has_control) return invalid_argument(name, " must not contain control characters");
  }
  if (options.range_bytes < kMinRangeBytes) {
    return invalid_argument("range_bytes is ", options.range_bytes, "; it must be at least ",
                            kMinRangeBytes);
  }
  if (options.retry.backoff_multiplier < 1) {
    return invalid_argument("retry.backoff_multiplier must be at least 1");
  }
  if (options.compose.sweep_age < std::chrono::milliseconds(0)) {
    return invalid_argument("compose.sweep_age must not be negative");
  }
  return {};
}

// Whether small objects can be composed on a store that composes as many.
Result<void> check_compose(const Url& url, uint32_t max_sources, const StoreOptions& options) {
  if (max_sources == 0) {
    return invalid_argument(url.to_string(), ": objects cannot be composed on ",
                            to_string(url.scheme), ":// stores");
  }
  if (options.compose.max_objects < 2 || options.compose.max_objects > max_sources) {
    return invalid_argument("compose.max_objects is ", options.compose.max_objects,
                            "; it must be from 2 to ", max_sources);
  }
  return {};
}

}  // namespace

struct Engine::State : std::enable_shared_from_this<Engine::State> {
  std::shared_ptr<EngineResources> resources;
  std::shared_ptr<ThreadPool> file_pool;
  std::shared_ptr<Metrics> file_metrics = std::make_shared<Metrics>();
  std::shared_ptr<Metrics> group_metrics = std::make_shared<Metrics>();
  std::shared_ptr<Warnings> warnings = std::make_shared<Warnings>();
  std::shared_ptr<Log> log;
  Resolver resolver;
  uint64_t epoch = fork_epoch();

  Mutex mutex;
  // Stores share hosts, and hosts outlive stores, because their connections and limits are worth
  // keeping. Of unused hosts only the last few are kept: in a long run, the addresses of a
  // cluster may change without end.
  static constexpr size_t kMostUnused = 32;
  struct KnownHost {
    std::shared_ptr<Host> host;
    uint64_t asked_for = 0;  // grows
  };
  std::map<HostKey, KnownHost> hosts HEADRACE_GUARDED_BY(mutex);
  uint64_t hosts_asked_for HEADRACE_GUARDED_BY(mutex) = 0;
  std::vector<std::shared_ptr<Host>> leaving HEADRACE_GUARDED_BY(mutex);  // until they are closed
  std::vector<std::weak_ptr<GroupedReads>> grouped HEADRACE_GUARDED_BY(mutex);
  bool stopped HEADRACE_GUARDED_BY(mutex) = false;
  bool told_skip_verify HEADRACE_GUARDED_BY(mutex) = false;

  using MakeProvider = Result<Provider>(const Url& url, const StoreOptions& options);
  Result<std::shared_ptr<ObjectStore>> open(const Url& url, MakeProvider* make_provider,
                                            const StoreOptions& options);
  std::unique_ptr<Fetcher> compose_fetcher(ComposeFetcher::Bucket bucket,
                                           const StoreOptions& options);
  std::unique_ptr<Fetcher> batch_get_fetcher(const std::shared_ptr<RemoteRoot>& remote,
                                             const StoreOptions& options);
  void read_in_groups(HttpStore& store, std::unique_ptr<Fetcher> fetcher,
                      std::shared_ptr<Host> host);
  Result<std::shared_ptr<Host>> host(const Endpoint& endpoint, const StoreOptions& options);
  void let_go_of_unused() HEADRACE_REQUIRES(mutex);
  void close(Host& host);
  void pump_all();
};

Engine::Engine(const EngineOptions& options) : state_(std::make_shared<State>()) {
  State& state = *state_;
  state.log = std::make_shared<Log>(options.log_level, options.on_log);
  state.resources = std::make_shared<EngineResources>();
  EngineResources& resources = *state.resources;
  resources.gate = std::make_shared<Gate>();
  resources.pool = BlockPool::create(options.memory_budget_bytes);
  resources.writers = std::make_shared<WriterRegistry>();
  resources.log = state.log;
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const uint32_t io_threads = options.io_threads > 0 ? options.io_threads : std::min(4u, cores);
  for (uint32_t i = 0; i < io_threads; ++i) resources.io_threads.push_back(IoThread::start(i));
  state.file_pool = std::make_shared<ThreadPool>(options.file_threads);
  resources.compute = std::make_shared<ThreadPool>(std::min(2u, cores));
  resources.pool->set_on_room([weak = std::weak_ptr<State>(state_)] {
    if (const std::shared_ptr<State> alive = weak.lock()) alive->pump_all();
  });
  resources.io_threads.front()->trim_when_unused(resources.pool);
}

Engine::~Engine() {
  if (!usable_in_this_process()) {
    // In a forked child the threads are the parent's, so nothing here may be joined or destroyed.
    static_cast<void>(new std::shared_ptr<State>(std::move(state_)));
    return;
  }
  stop();
  // Blocks that the user still holds keep the pool alive, not the engine.
  state_->resources->pool->set_on_room(nullptr);
}

bool Engine::usable_in_this_process() const { return state_->epoch == fork_epoch(); }

void Engine::State::pump_all() {
  const Lock lock(mutex);
  if (stopped) return;
  for (const auto& [key, known] : hosts) {
    for (const std::unique_ptr<HostLane>& lane : known.host->lanes) {
      lane->thread().post([raw = lane.get()] { raw->pump(); });
    }
  }
  for (const std::weak_ptr<GroupedReads>& each : grouped) {
    // Not directly: pumping may take or free memory, and so come here again.
    resources->io_threads.front()->post([each] {
      if (const std::shared_ptr<GroupedReads> alive = each.lock()) alive->pump();
    });
  }
  file_pool->wake();
  resources->compute->wake();
}

std::unique_ptr<Fetcher> Engine::State::compose_fetcher(ComposeFetcher::Bucket bucket,
                                                        const StoreOptions& options) {
  return std::make_unique<ComposeFetcher>(
      std::move(bucket),
      ComposeFetcher::Resources{
          .pool = resources->pool,
          .compute =
              [pool = resources->compute](std::move_only_function<void()> job) {
                return pool->post(std::move(job));
              },
          .warnings = warnings,
          .metrics = group_metrics},
      options);
}

// Null: there are no requests for many objects, as far as the provider knows, or they are not to be
// used.
std::unique_ptr<Fetcher> Engine::State::batch_get_fetcher(const std::shared_ptr<RemoteRoot>& remote,
                                                          const StoreOptions& options) {
  const BatchGets* gets = remote->protocol().batch_gets();
  if (gets == nullptr || options.get_batch.mode == GetBatchMode::kNever) return nullptr;
  // Only the answer to a read of the object itself tells whether it has Content-Encoding: gzip.
  if (options.content_encoding == ContentEncoding::kDecompress) return nullptr;
  return std::make_unique<BatchGetFetcher>(
      BatchGetFetcher::Service{.gets = gets,
                               .record = &remote->host().batch_gets,
                               .send =
                                   [remote](std::shared_ptr<BatchGet> get) {
                                     return remote->run<BatchGetAttempt>(std::move(get));
                                   }},
      BatchGetFetcher::Resources{
          .pool = resources->pool, .warnings = warnings, .metrics = group_metrics},
      options);
}

void Engine::State::read_in_groups(HttpStore& store, std::unique_ptr<Fetcher> fetcher,
                                   std::shared_ptr<Host> host) {
  auto groups = std::make_shared<GroupedReads>(
      std::move(fetcher), resources->pool,
      [host = std::move(host)] { return uint64_t{host->admission.limit()}; });
  const Lock lock(mutex);
  std::erase_if(grouped, [](const std::weak_ptr<GroupedReads>& each) { return each.expired(); });
  grouped.push_back(groups);
  store.read_in_groups(std::move(groups));
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
  const HostKey key{.endpoint = endpoint,
                    .proxy = via,
                    .user_agent = route->user_agent,
                    .certificates = options.tls,
                    .connect = options.timeout.connect,
                    .tls = options.timeout.tls,
                    .first_byte = options.timeout.first_byte,
                    .stall = options.timeout.stall,
                    .max_in_flight = options.max_in_flight,
                    .initial_in_flight = options.initial_in_flight,
                    .retry_tokens = options.retry.budget_tokens};
  const Lock lock(mutex);
  if (stopped) return fail(Code::kCancelled, "the engine was stopped");
  if (const auto known = hosts.find(key); known != hosts.end()) {
    known->second.asked_for = ++hosts_asked_for;
    return known->second.host;
  }
  if (endpoint.tls) {
    Result<std::shared_ptr<TlsContext>> tls = TlsContext::create(options.tls);
    if (!tls) return std::unexpected(std::move(tls.error()));
    route->tls = std::move(*tls);
    if (options.tls.skip_verify && !std::exchange(told_skip_verify, true)) {
      log->add(LogLevel::kWarning,
               cat("the certificates of https://", endpoint.authority(),
                   " are not verified (skip_verify): whoever is in between can read and change "
                   "what is sent, tokens too. Other hosts may be like it; this is said once"));
    }
  }
  auto neighbours = std::make_unique<Neighbours>(
      cat(endpoint.tls ? "https://" : "http://", endpoint.authority()));
  auto host = std::make_shared<Host>(std::move(route), options.initial_in_flight,
                                     options.max_in_flight, options.retry.budget_tokens, log,
                                     Host::Connect(), std::move(neighbours));
  // Every lane has at least one request in flight, so there are no more lanes than requests.
  const size_t lane_count = std::min<size_t>(resources->io_threads.size(), options.max_in_flight);
  for (size_t i = 0; i < lane_count; ++i) {
    host->lanes.push_back(
        std::make_unique<HostLane>(*host, *resources->io_threads[i], resolver, *resources->pool));
  }
  hosts.emplace(key, KnownHost{.host = host, .asked_for = ++hosts_asked_for});
  let_go_of_unused();
  return host;
}

// Those that were asked for longest ago.
void Engine::State::let_go_of_unused() {
  using At = decltype(hosts)::iterator;
  std::vector<At> unused;
  for (At at = hosts.begin(); at != hosts.end(); ++at) {
    if (at->second.host.use_count() == 1) unused.push_back(at);
  }
  if (unused.size() <= kMostUnused) return;
  std::ranges::sort(unused, {}, [](const At& at) { return at->second.asked_for; });
  unused.resize(unused.size() - kMostUnused);
  for (const At& at : unused) {
    close(*leaving.emplace_back(std::move(at->second.host)));
    hosts.erase(at);
  }
}

// On its own threads, where what was posted for it comes first, then what its timers have posted.
void Engine::State::close(Host& host) {
  auto lanes_left = std::make_shared<std::atomic<size_t>>(host.lanes.size());
  for (const std::unique_ptr<HostLane>& owned : host.lanes) {
    owned->thread().post([weak = weak_from_this(), lane = owned.get(), lanes_left] {
      lane->close();
      lane->thread().post([weak, lane, lanes_left] {
        if (lanes_left->fetch_sub(1) > 1) return;
        const std::shared_ptr<State> alive = weak.lock();
        if (alive == nullptr) return;
        std::shared_ptr<Host> closed;  // ends without the lock
        const Lock lock(alive->mutex);
        const auto at =
            std::ranges::find(alive->leaving, &lane->host(), &std::shared_ptr<Host>::get);
        closed = std::move(*at);
        alive->leaving.erase(at);
      });
    });
  }
}

// The store at `url`, and below it that of the whole bucket.
Result<std::shared_ptr<ObjectStore>> Engine::State::open(const Url& url,
                                                         MakeProvider* make_provider,
                                                         const StoreOptions& options) {
  Result<Provider> provider = make_provider(url, options);
  if (!provider) return std::unexpected(std::move(provider.error()));
  Result<std::shared_ptr<Host>> host = this->host(provider->endpoint, options);
  if (!host) return std::unexpected(std::move(host.error()));
  const RemoteRoot::Reach reach = [weak = weak_from_this(), options](
                                      const Endpoint& endpoint) -> Result<std::shared_ptr<Host>> {
    const std::shared_ptr<State> alive = weak.lock();
    if (alive == nullptr) return fail(Code::kCancelled, "the engine was stopped");
    return alive->host(endpoint, options);
  };
  const Root root(url.name);
  auto protocol = provider->protocol_at(root);
  // What is written below the root may go through the bucket's store, at the same pace.
  const std::shared_ptr<Pace> pace = (*host)->paces.of(protocol->url_of(""));
  const auto store_with = [&](std::unique_ptr<const Protocol> its_protocol,
                              const StoreOptions& its_options, std::shared_ptr<HttpStore> bucket) {
    auto remote =
        std::make_shared<RemoteRoot>(resources, *host, pace, std::move(its_protocol), its_options,
                                     reach, bucket ? bucket->remote() : nullptr);
    return std::make_shared<HttpStore>(std::move(remote), its_options, std::move(bucket));
  };
  // And what is copied through here, or composed, is read by it: as it is stored, and not in
  // groups.
  const bool is_plain = options.content_encoding == ContentEncoding::kStored &&
                        !protocol->transforms() && !options.compose_small_objects;
  std::shared_ptr<HttpStore> store, bucket;
  if (root.is_bucket() && is_plain) {
    store = bucket = store_with(std::move(protocol), options, nullptr);
  } else {
    StoreOptions stored = options;
    stored.content_encoding = ContentEncoding::kStored;
    if (protocol->transforms()) {
      stored.ais.etl_name = stored.ais.etl_args = "";
      provider = make_provider(url, stored);
      if (!provider) return std::unexpected(std::move(provider.error()));
    }
    bucket = store_with(provider->protocol_at(Root()), stored, nullptr);
    store = store_with(std::move(protocol), options, bucket);
  }
  std::unique_ptr<Fetcher> fetcher;
  if (options.compose_small_objects) {
    if (Result<void> good = check_compose(url, store->max_compose_sources(), options); !good) {
      return std::unexpected(std::move(good.error()));
    }
    fetcher = compose_fetcher({.store = std::move(bucket), .root = root}, options);
  } else {
    fetcher = batch_get_fetcher(store->remote(), options);
  }
  if (fetcher) read_in_groups(*store, std::move(fetcher), *host);
  return store;
}

Result<std::shared_ptr<ObjectStore>> Engine::open(const Url& url, const StoreOptions& options) {
  if (Result<void> valid = validate(options); !valid) {
    return std::unexpected(std::move(valid.error()));
  }
  switch (url.scheme) {
    case Scheme::kFile: {
      Result<std::shared_ptr<ObjectStore>> store =
          open_file_store(url, options, state_->resources->pool, state_->file_pool,
                          state_->file_metrics, state_->resources->writers, state_->log);
      if (!store || !options.compose_small_objects) return store;
      if (Result<void> good = check_compose(url, (*store)->max_compose_sources(), options); !good) {
        return std::unexpected(std::move(good.error()));
      }
      return store;
    }
    case Scheme::kGs: return state_->open(url, gcs_provider, options);
    case Scheme::kS3: return state_->open(url, s3_provider, options);
    case Scheme::kAis: return state_->open(url, ais_provider, options);
  }
  return fail(Code::kInternal, "unknown scheme");
}

void Engine::stop() {
  State& state = *state_;
  {
    const Lock lock(state.mutex);
    if (std::exchange(state.stopped, true)) return;
  }
  EngineResources& resources = *state.resources;
  const MayBlock may_block = MayBlock::on_this_thread();
  std::vector<HostLane*> lanes;
  {
    const Lock lock(state.mutex);
    for (const auto& [key, known] : state.hosts) {
      for (const std::unique_ptr<HostLane>& lane : known.host->lanes) lanes.push_back(lane.get());
    }
  }
  for (HostLane* lane : lanes) {
    lane->thread().post([lane] { lane->lift_limit(); });
  }
  // Temporary objects are deleted while requests can still be sent.
  std::vector<std::shared_ptr<GroupedReads>> grouped;
  {
    const Lock lock(state.mutex);
    for (const std::weak_ptr<GroupedReads>& each : state.grouped) {
      if (std::shared_ptr<GroupedReads> alive = each.lock()) grouped.push_back(std::move(alive));
    }
  }
  const auto deleted_until = steady_clock::now() + kDeleteDeadline;
  for (const std::shared_ptr<GroupedReads>& each : grouped) each->stop();
  for (const std::shared_ptr<GroupedReads>& each : grouped) {
    static_cast<void>(each->wait_retired(deleted_until, may_block));
  }
  // Likewise those of writers. Then refuse, cancel, flush the queues, wait, join.
  resources.writers->stop(steady_clock::now() + ObjectWriter::kCleaningTimeout, may_block);
  resources.gate->close();
  for (const std::shared_ptr<IoThread>& thread : resources.io_threads) thread->stop_all();
  for (HostLane* lane : lanes) {
    lane->thread().post([lane] { lane->pump(); });
  }
  state.file_pool->stop();
  resources.stopping = true;
  resources.compute->wake();
  static_cast<void>(resources.gate->wait_empty(steady_clock::now() + kStopDeadline, may_block));
  resources.compute->stop();
  for (HostLane* lane : lanes) {
    lane->thread().post([lane] { lane->close(); });
  }
  for (const std::shared_ptr<IoThread>& thread : resources.io_threads) thread->join();
  resources.pool->set_on_surplus(nullptr);  // nobody trims it any more
}

std::vector<std::string> Engine::take_warnings() { return state_->warnings->take(); }

const std::shared_ptr<Log>& Engine::log() const { return state_->log; }

BlockPool& Engine::pool() { return *state_->resources->pool; }

EngineMetrics Engine::metrics() const {
  const State& state = *state_;
  EngineMetrics sum;
  const auto add = [&sum](const Metrics& metrics) {
#define HEADRACE_COUNTER(name) sum.name += metrics.name.load(std::memory_order_relaxed);
    HEADRACE_COUNTERS(HEADRACE_COUNTER)
#undef HEADRACE_COUNTER
  };
  for (const std::shared_ptr<IoThread>& thread : state.resources->io_threads) {
    add(thread->metrics());
  }
  add(*state.file_metrics);
  add(*state.group_metrics);
  {
    const Lock lock(state_->mutex);
    for (const auto& [key, known] : state_->hosts) {
      sum.in_flight_limit = std::max<uint64_t>(sum.in_flight_limit, known.host->admission.limit());
    }
  }
  sum.memory = state.resources->pool->use();
  return sum;
}

}  // namespace headrace
