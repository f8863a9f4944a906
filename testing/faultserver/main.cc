// headrace-faultserver: a storage server for tests that misbehaves on request.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dialect.h"
#include "server.h"
#include "text.h"
#include "world.h"

namespace faultserver {
namespace {

constexpr char kUsage[] =
    "usage: headrace-faultserver [--dialect ais|gcs|s3] [--targets N] [--proxies N] "
    "[--personality A|B] [--domain HOST]... [--like NAME]... [--port N]\n"
    "         [--bind ADDRESS] [--tls-cert FILE --tls-key FILE] [--threads N]\n"
    "         [--port-file FILE] [--log-capacity N] [--no-md5] [--stop-with-stdin]\n";

constexpr uint32_t kAddressesOfANode = 2;  // It moves from one to the other.

struct Options {
  ServerOptions server;
  uint64_t threads = 1;
  uint64_t log_capacity = 200'000;
  std::string port_file;
  std::string dialect = "gcs";
  char personality = 'B';               // Of ais.
  uint32_t targets = 1;                 // Of ais.
  uint32_t proxies = 1;                 // Of ais.
  std::vector<std::string> domains;     // Of s3: hosts below which a bucket may stand.
  std::vector<std::string> likenesses;  // Of s3.
  bool with_md5 = true;
  bool stop_with_stdin = false;
};

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "headrace-faultserver: %s\n%s", why.c_str(), kUsage);
  std::exit(2);
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const auto value = [&]() -> std::string {
      if (++i >= argc) refuse(std::string(name) + " needs a value");
      return argv[i];
    };
    const auto number = [&](uint64_t most) {
      const std::string text = value();
      const std::optional<uint64_t> parsed = parse_u64(text);
      if (!parsed || *parsed > most) refuse(std::string(name) + ": not a number: " + text);
      return *parsed;
    };
    if (name == "--port") {
      options.server.port = static_cast<uint16_t>(number(65535));
    } else if (name == "--bind") {
      options.server.bind = value();
    } else if (name == "--tls-cert") {
      options.server.tls_cert = value();
    } else if (name == "--tls-key") {
      options.server.tls_key = value();
    } else if (name == "--threads") {
      options.threads = std::max<uint64_t>(1, number(256));
    } else if (name == "--dialect") {
      options.dialect = value();
      if (options.dialect != "gcs" && options.dialect != "s3" && options.dialect != "ais") {
        refuse("--dialect is ais, gcs or s3");
      }
    } else if (name == "--personality") {
      const std::string text = value();
      if (text != "A" && text != "B") refuse("--personality is A or B");
      options.personality = text.front();
    } else if (name == "--targets") {
      options.targets = static_cast<uint32_t>(std::max<uint64_t>(1, number(64)));
    } else if (name == "--proxies") {
      options.proxies = static_cast<uint32_t>(std::max<uint64_t>(1, number(16)));
    } else if (name == "--domain") {
      options.domains.push_back(value());
    } else if (name == "--like") {
      options.likenesses.push_back(value());
    } else if (name == "--port-file") {
      options.port_file = value();
    } else if (name == "--log-capacity") {
      options.log_capacity = std::max<uint64_t>(1, number(100'000'000));
    } else if (name == "--no-md5") {
      options.with_md5 = false;
    } else if (name == "--stop-with-stdin") {
      options.stop_with_stdin = true;
    } else {
      refuse("no such option: " + std::string(name));
    }
  }
  if (options.server.tls_cert.empty() != options.server.tls_key.empty()) {
    refuse("--tls-cert and --tls-key go together");
  }
  if (options.domains.empty()) options.domains.emplace_back("localhost");
  return options;
}

// The file appears whole: a reader that sees it can use it.
void write_port_file(const std::string& path, uint16_t port) {
  const std::string fresh = path + ".new";
  std::FILE* const file = std::fopen(fresh.c_str(), "w");
  if (!file) refuse("cannot write " + path);
  std::fprintf(file, "%u\n", unsigned{port});
  std::fclose(file);
  std::rename(fresh.c_str(), path.c_str());
}

void wait_for_end(int signal_fd, bool stop_with_stdin) {
  std::array<pollfd, 2> watched = {
      pollfd{.fd = signal_fd, .events = POLLIN, .revents = 0},
      pollfd{.fd = stop_with_stdin ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0}};
  while (true) {
    if (poll(watched.data(), watched.size(), -1) <= 0) continue;
    if (watched[0].revents != 0) return;
    if (watched[1].revents != 0) {
      std::array<char, 256> ignored;
      if (read(STDIN_FILENO, ignored.data(), ignored.size()) <= 0) return;
    }
  }
}

std::unique_ptr<Dialect> make_dialect(const Options& options) {
  if (options.dialect == "ais") return make_ais();
  if (options.dialect == "s3") return make_s3(options.domains);
  return make_gcs();
}

Cluster make_cluster(const Listener& listener, uint32_t node_count, uint32_t targets) {
  Cluster cluster;
  cluster.uuid = "Fault" + hex16(mix(static_cast<uint64_t>(now_us()))).substr(0, 4);
  for (uint32_t k = 0; k < node_count; ++k) {
    const bool is_proxy = k == 0 || k > targets;
    cluster.nodes.push_back({.id = node_id(k, is_proxy),
                             .addresses = listener.addresses_of(k),
                             .is_proxy = is_proxy,
                             .is_primary = k == 0});
  }
  return cluster;
}

int serve(const Options& options) {
  // Blocked before the first thread starts, so that all of them inherit it.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);

  const bool is_ais = options.dialect == "ais";
  const uint32_t node_count = is_ais ? options.targets + options.proxies : 1;
  const Listener listener(options.server, node_count, is_ais ? kAddressesOfANode : 1);
  World world(make_dialect(options), options.log_capacity);
  world.ais.personality = world.ais.first_personality = options.personality;
  world.cluster = make_cluster(listener, node_count, options.targets);
  world.storage.compute_md5 = options.with_md5;
  if (!options.likenesses.empty()) {
    Json::Array names;
    for (const std::string& name : options.likenesses) names.emplace_back(name);
    const std::string why =
        world.dialect->set_likeness(world.storage, Json::Object{{"names", std::move(names)}});
    if (!why.empty()) refuse("--like: " + why);
    world.storage.first_s3 = world.storage.new_s3;
  }
  std::vector<std::unique_ptr<Loop>> loops;
  for (uint64_t i = 0; i < options.threads; ++i) {
    loops.push_back(std::make_unique<Loop>(world, listener));
    world.wake_fds.push_back(loops.back()->wake_fd());
  }
  std::vector<std::jthread> threads;
  for (const std::unique_ptr<Loop>& loop : loops) {
    threads.emplace_back([&runs = *loop] { runs.run(); });
  }
  if (!options.port_file.empty())
    write_port_file(options.port_file, listener.addresses().front().port);
  std::printf("listening on %s\n", listener.url().c_str());
  std::fflush(stdout);

  wait_for_end(signal_fd, options.stop_with_stdin);
  world.stop = true;
  world.wake_all();
  threads.clear();
  close(signal_fd);
  return 0;
}

}  // namespace
}  // namespace faultserver

int main(int argc, char** argv) {
  return faultserver::serve(faultserver::parse_options(argc, argv));
}
