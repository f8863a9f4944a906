#include "headrace/store/fault_server_test_support.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <simdjson.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "headrace/format/gcs_json.h"
#include "headrace/format/percent.h"

extern char** environ;

namespace headrace {
namespace {

using std::chrono::steady_clock;

[[noreturn]] void die(std::string_view what) {
  ADD_FAILURE() << what << ": " << std::strerror(errno);
  std::abort();
}

std::string server_program() {
  if (const char* named = std::getenv("HEADRACE_FAULTSERVER")) return named;
#ifdef HEADRACE_FAULTSERVER_PATH
  return HEADRACE_FAULTSERVER_PATH;
#else
  die("set HEADRACE_FAULTSERVER to the program, or configure with HEADRACE_BUILD_FAULTSERVER=ON");
#endif
}

std::string text_of(const simdjson::dom::element& object, const char* name) {
  std::string_view text;
  return object[name].get(text) == simdjson::SUCCESS ? std::string(text) : std::string();
}

uint64_t number_of(const simdjson::dom::element& object, const char* name) {
  uint64_t number = 0;
  return object[name].get(number) == simdjson::SUCCESS ? number : 0;
}

}  // namespace

std::string some_bytes(size_t size, uint32_t seed) {
  std::string bytes(size, '\0');
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

FaultServer::FaultServer(const ServerOptions& options) {
  std::array<int, 2> in{}, out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) die("pipe");
  const std::string program = server_program();
  std::vector<std::string> words = {
      program,  "--stop-with-stdin",          "--bind",    options.bind,
      "--port", std::to_string(options.port), "--dialect", options.dialect};
  if (!options.certificate_file.empty()) {
    words.insert(words.end(),
                 {"--tls-cert", options.certificate_file, "--tls-key", options.key_file});
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  errno = ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (errno != 0) die(program);
  ::close(in[0]);
  ::close(out[1]);
  stdin_ = in[1];
  stdout_ = out[0];

  std::string line;
  char c = 0;
  while (::read(stdout_, &c, 1) == 1 && c != '\n') line.push_back(c);
  constexpr std::string_view kGreeting = "listening on ";
  if (!line.starts_with(kGreeting)) die("headrace-faultserver did not start");
  url_ = line.substr(kGreeting.size());
  const size_t colon = url_.rfind(':');
  std::from_chars(url_.data() + colon + 1, url_.data() + url_.size(), port_);

  const bool v6 = options.bind.contains(':');
  socket_ = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to4{};
  to4.sin_family = AF_INET;
  to4.sin_port = htons(port_);
  ::inet_pton(AF_INET, options.bind.c_str(), &to4.sin_addr);
  sockaddr_in6 to6{};
  to6.sin6_family = AF_INET6;
  to6.sin6_port = htons(port_);
  ::inet_pton(AF_INET6, options.bind.c_str(), &to6.sin6_addr);
  const int status = v6 ? ::connect(socket_, reinterpret_cast<sockaddr*>(&to6), sizeof to6)
                        : ::connect(socket_, reinterpret_cast<sockaddr*>(&to4), sizeof to4);
  if (status != 0) die("connect to headrace-faultserver");
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (url_.starts_with("https")) {
    // The control connection trusts the process that it has just started.
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    tls_ = SSL_new(context);
    SSL_CTX_free(context);
    SSL_set_fd(tls_, socket_);
    if (SSL_connect(tls_) != 1) die("TLS to headrace-faultserver");
  }
  // From here on only the engine's connections count.
  reset();
}

FaultServer::~FaultServer() {
  SSL_free(tls_);
  ::close(socket_);
  ::close(stdin_);
  ::close(stdout_);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  // A crash, or what a sanitizer found, must not pass unseen.
  EXPECT_EQ(status, 0) << "how headrace-faultserver ended";
}

void FaultServer::send_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = tls_ != nullptr
                             ? SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size()))
                             : ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) die("control request");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

size_t FaultServer::receive_some(std::span<char> into) {
  const ssize_t received = tls_ != nullptr
                               ? SSL_read(tls_, into.data(), static_cast<int>(into.size()))
                               : ::recv(socket_, into.data(), into.size(), 0);
  if (received <= 0) die("control answer");
  return static_cast<size_t>(received);
}

FaultServer::Answer FaultServer::request(std::string_view method, std::string_view path,
                                         std::string_view body) {
  send_all(cat(method, " /_control/", path,
               " HTTP/1.1\r\nHost: control\r\nContent-Length: ", body.size(), "\r\n\r\n"));
  send_all(body);
  std::string text;
  std::array<char, 16384> buffer;
  size_t head_end = std::string::npos;
  while ((head_end = text.find("\r\n\r\n")) == std::string::npos) {
    text.append(buffer.data(), receive_some(buffer));
  }
  const size_t length_at = text.find("Content-Length: ");
  size_t length = 0;
  if (length_at < head_end) length = std::strtoull(text.c_str() + length_at + 16, nullptr, 10);
  Answer answer{.status = std::atoi(text.c_str() + 9), .body = text.substr(head_end + 4)};
  while (answer.body.size() < length) {
    answer.body.append(buffer.data(), receive_some(buffer));
  }
  return answer;
}

void FaultServer::post(std::string_view path, std::string_view json) {
  const Answer answer = request("POST", path, json);
  EXPECT_EQ(answer.status, 200) << path << " " << json << ": " << answer.body;
  // The server's threads close what is theirs after the answer.
  while (path == "close_connections" && request("GET", "settled", "").body != "true") {
    std::this_thread::yield();
  }
}

void FaultServer::faults(std::string_view rules) { post("faults", rules); }

void FaultServer::place(std::string_view name, std::string_view bytes, std::string_view meta) {
  const Answer answer = request("PUT",
                                cat("object?bucket=", kBucket, "&name=", percent_encode(name),
                                    "&meta=", percent_encode(meta)),
                                bytes);
  if (answer.status != 200) die(cat("place: ", answer.body));
}

ObjectInfo FaultServer::put(std::string_view name, std::string_view bytes, std::string_view meta) {
  const Answer answer = request("PUT",
                                cat("object?bucket=", kBucket, "&name=", percent_encode(name),
                                    "&meta=", percent_encode(meta)),
                                bytes);
  Result<ObjectInfo> info = parse_gcs_object(answer.body);
  if (!info) die(cat("put: ", answer.body));
  return *info;
}

std::optional<std::string> FaultServer::object(std::string_view name) {
  Answer answer =
      request("GET", cat("object?bucket=", kBucket, "&name=", percent_encode(name)), "");
  if (answer.status != 200) return std::nullopt;
  return std::move(answer.body);
}

void FaultServer::reset() {
  post("reset", "{}");
  post("bucket", cat(R"({"name":")", kBucket, "\"}"));
}

std::vector<FaultServer::Entry> FaultServer::log(std::string_view kind) {
  simdjson::dom::parser parser;
  const std::string body = request("GET", "log", "").body;
  std::vector<Entry> entries;
  for (const simdjson::dom::element line : parser.parse(body).get_array()) {
    Entry entry{.n = number_of(line, "n"),
                .connection = number_of(line, "connection"),
                .bytes_sent = number_of(line, "bytes_sent"),
                .method = text_of(line, "method"),
                .target = text_of(line, "target"),
                .kind = text_of(line, "kind"),
                .end = text_of(line, "end"),
                .status = static_cast<int>(number_of(line, "status")),
                .absolute_form = line["absolute_form"].get_bool().value_unsafe(),
                .headers = {}};
    for (const auto field : simdjson::dom::object(line["headers"].get_object())) {
      entry.headers[std::string(field.key)] = std::string(field.value.get_string().value_unsafe());
    }
    if (kind.empty() || kind == entry.kind) entries.push_back(std::move(entry));
  }
  return entries;
}

uint64_t FaultServer::stat(std::string_view pointer) {
  simdjson::dom::parser parser;
  const std::string body = request("GET", "stats", "").body;
  uint64_t number = 0;
  return parser.parse(body).at_pointer(pointer).get(number) == simdjson::SUCCESS ? number : 0;
}

void FaultServer::wait_for(std::string_view pointer, uint64_t count) {
  const auto until = steady_clock::now() + kPatience;
  while (stat(pointer) < count) {
    if (steady_clock::now() > until) {
      ADD_FAILURE() << pointer << " did not reach " << count;
      return;
    }
  }
}

std::shared_ptr<Credentials> some_keys() {
  return Credentials::fixed({.access_key = "AKIDTEST", .secret_key = "secret"});
}

S3Test::S3Test() { options_.credentials = some_keys(); }

std::shared_ptr<ObjectStore> S3Test::open(Engine& engine) {
  Result<std::shared_ptr<ObjectStore>> store =
      engine.open({.scheme = Scheme::kS3, .bucket = std::string(kBucket)}, options_);
  EXPECT_TRUE(store.has_value()) << store.error().to_string();
  return store ? *store : nullptr;
}

StoreOptions options_for(const FaultServer& server) {
  StoreOptions options;
  options.endpoint = server.url();
  options.retry.initial_backoff = std::chrono::milliseconds(1);
  options.retry.max_backoff = std::chrono::milliseconds(4);
  options.hedge = false;  // tests count requests, and a busy machine makes some of them late
  return options;
}

ReadTarget listed(const ObjectInfo& info) {
  return {.name = info.name,
          .generation = info.generation,
          .size_bytes = info.size_bytes,
          .checksum = info.checksum,
          .range = {},
          .into = {}};
}

ReadTarget named(std::string_view name) {
  ReadTarget target;
  target.name = name;
  return target;
}

std::shared_ptr<ReadBatch> batch_of(std::span<const ReadTarget> targets) {
  std::shared_ptr<ReadBatch> batch = ReadBatch::create(targets.size());
  for (const ReadTarget& target : targets) batch->add(target);
  return batch;
}

void wait_for(ReadBatch& batch) {
  const auto until = steady_clock::now() + kPatience;
  ASSERT_TRUE(batch.wait_until(until, MayBlock::on_this_thread())) << "the batch hangs";
}

void wait_until_all_is_given_back(BlockPool& pool) {
  const auto until = steady_clock::now() + kPatience;
  while (pool.live_bytes() != 0 && steady_clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(pool.live_bytes(), 0u);
}

Result<std::string> outcome(ReadBatch& batch, size_t index) {
  const ReadSlot& slot = batch.slot(index);
  if (slot.error) return std::unexpected(*slot.error);
  return std::string(reinterpret_cast<const char*>(slot.into.data()), slot.into.size());
}

Result<std::string> read(ObjectStore& store, const ReadTarget& target) {
  const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
  store.read(batch);
  wait_for(*batch);
  return outcome(*batch, 0);
}

std::shared_ptr<ObjectStore> StoreTest::open_in(Engine& engine, const StoreOptions& options) {
  Result<std::shared_ptr<ObjectStore>> store =
      engine.open({.scheme = Scheme::kGs, .bucket = std::string(kBucket)}, options);
  EXPECT_TRUE(store.has_value()) << store.error().to_string();
  return store ? *store : nullptr;
}

std::shared_ptr<ObjectStore> StoreTest::open(const StoreOptions& options) {
  return open_in(engine_, options);
}

}  // namespace headrace
