#include "server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "control.h"
#include "text.h"

namespace faultserver {
namespace {

// Of a body that is announced: a part of an upload comes into its place without being moved.
constexpr uint64_t kReservedBodyBytes = uint64_t{64} << 20;

constexpr uint64_t kWakeId = 1;
constexpr uint64_t kUpstreamBit = uint64_t{1} << 63;  // Marks the far side of a tunnel.
constexpr uint64_t kListenBit = uint64_t{1} << 62;    // Marks a socket that listens, by its index.
constexpr int kBacklog = 4096;
constexpr size_t kBufferBytes = size_t{256} << 10;
constexpr double kDrainS = 1.0;  // How long a closed connection may still send.
constexpr std::string_view kConnected = "HTTP/1.1 200 Connection established\r\n\r\n";

std::atomic<uint64_t> next_connection_id = 2;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "headrace-faultserver: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

[[noreturn]] void die_tls(const char* what) {
  std::fprintf(stderr, "headrace-faultserver: %s: ", what);
  ERR_print_errors_fp(stderr);
  std::exit(1);
}

int choose_http11(SSL*, const unsigned char** out, unsigned char* out_length,
                  const unsigned char* offered, unsigned int offered_length, void*) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_length, kHttp11, sizeof kHttp11 - 1, offered,
                            offered_length) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

SSL_CTX* make_tls(const ServerOptions& options) {
  if (options.tls_cert.empty()) return nullptr;
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  if (SSL_CTX_use_certificate_chain_file(context, options.tls_cert.c_str()) != 1 ||
      SSL_CTX_use_PrivateKey_file(context, options.tls_key.c_str(), SSL_FILETYPE_PEM) != 1) {
    die_tls("certificate or key");
  }
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context, choose_http11, nullptr);
  constexpr unsigned char kSessionContext[] = "headrace";
  SSL_CTX_set_session_id_context(context, kSessionContext, sizeof kSessionContext - 1);
  return context;
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// A numeric address, or "localhost".
std::optional<SocketAddress> make_address(std::string host, uint16_t port) {
  SocketAddress out;
  if (host == "localhost") host = "127.0.0.1";
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    out.length = sizeof *v4;
    return out;
  }
  if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    out.length = sizeof *v6;
    return out;
  }
  return std::nullopt;
}

bool is_loopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) != 0;
}

// "host:port", "[v6]:port".
std::optional<SocketAddress> parse_host_port(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::optional<uint64_t> port = parse_u64(text.substr(colon + 1));
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (!port || *port > 65535) return std::nullopt;
  return make_address(std::string(host), static_cast<uint16_t>(*port));
}

std::string text_of(const SocketAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  const bool is_v6 = address.storage.ss_family == AF_INET6;
  const void* const bytes = is_v6 ? static_cast<const void*>(&v6->sin6_addr) : &v4->sin_addr;
  inet_ntop(address.storage.ss_family, bytes, text.data(), text.size());
  const std::string host = is_v6 ? "[" + std::string(text.data()) + "]" : text.data();
  return host + ":" + std::to_string(ntohs(v4->sin_port));
}

void close_with_reset(int fd) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(fd);
}

Headers interesting(const Headers& headers) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"accept", "accept-encoding", "authorization", "connection", "content-length",
       "content-range", "content-md5", "content-encoding", "content-type", "expect", "host",
       "if-match", "if-none-match", "proxy-authorization", "range", "transfer-encoding",
       "user-agent", "x-test-client", "x-upload-content-length"});
  Headers out;
  for (const auto& header : headers) {
    const std::string& name = header.first;
    const bool wanted = std::ranges::any_of(
        kNames, [&name](auto known) { return equal_ignoring_case(name, known); });
    if (wanted || equal_ignoring_case(std::string_view(name).substr(0, 7), "x-goog-") ||
        equal_ignoring_case(std::string_view(name).substr(0, 6), "x-amz-") ||
        equal_ignoring_case(std::string_view(name).substr(0, 4), "ais-")) {
      out.push_back(header);
    }
  }
  return out;
}

}  // namespace

void close_quietly(int fd) {
  if (fd >= 0) close(fd);
}

// ── Listener

Listener::Listener(const ServerOptions& options, uint32_t node_count, uint32_t address_count)
    : per_node_(address_count), tls_(make_tls(options)) {
  for (size_t i = 0; i < size_t{node_count} * address_count; ++i) {
    addresses_.push_back(bind_one(options, i == 0 ? options.port : uint16_t{0}));
    if (i % address_count == 0 && listen(addresses_.back().fd, kBacklog) != 0) die("listen");
  }
}

Address Listener::bind_one(const ServerOptions& options, uint16_t port) const {
  const auto bind_to = [&options](uint16_t wanted, uint16_t& bound_port) {
    const std::optional<SocketAddress> address = make_address(options.bind, wanted);
    if (!address) {
      errno = EINVAL;
      die("--bind");
    }
    const int fd =
        socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket");
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&address->storage), address->length) != 0) {
      die("bind");
    }
    SocketAddress bound{.length = sizeof(sockaddr_storage)};
    getsockname(fd, reinterpret_cast<sockaddr*>(&bound.storage), &bound.length);
    // The port lies at the same place for both families.
    bound_port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port);
    return fd;
  };
  // A socket that stops listening keeps its port only if it asked for just that one.
  uint16_t bound_port = port;
  const int scout = port == 0 ? bind_to(0, bound_port) : -1;
  Address out{.host = options.bind};
  out.fd = bind_to(bound_port, out.port);
  close_quietly(scout);
  const bool v6 = out.host.contains(':');
  out.url = std::string(tls_ ? "https://" : "http://") + (v6 ? "[" + out.host + "]" : out.host) +
            ":" + std::to_string(out.port);
  return out;
}

Listener::~Listener() {
  for (const Address& address : addresses_) close_quietly(address.fd);
  SSL_CTX_free(tls_);
}

std::vector<Address> Listener::addresses_of(uint32_t node) const {
  const auto begin = addresses_.begin() + static_cast<ptrdiff_t>(node * per_node_);
  return {begin, begin + per_node_};
}

// ── Connection

struct Loop::Connection {
  enum class State {
    kHandshake,
    kHead,
    kBody,
    kDelayed,
    kWriting,
    kStalled,
    kEnding,
    kDraining,
    kConnecting,
    kTunnel,
    kDead,
  };
  // What follows an answer.
  enum class After { kNext, kFin, kReset, kStall };

  uint64_t id = 0;
  int fd = -1;
  uint32_t node = 0;
  std::string peer;  // "127.0.0.1:port"
  SSL* tls = nullptr;
  State state = State::kHead;
  bool readable = true, peer_done = false, failed = false, was_control = false;
  double wait_until_s = 0;
  // The epochs when it was accepted and when its request began: only later ones concern it.
  uint64_t close_epoch = 0, release_epoch = 0, node_close_epoch = 0;
  double idle_since_s = 0;
  double idle_close_s = 0;   // As the last answer had it; 0: the server's.
  bool resets_next = false;  // As the last answer had it: at the next request.
  uint64_t bytes_in = 0, bytes_out = 0;

  std::string in;  // Received and not used yet, from `in_at` on.
  size_t in_at = 0;

  // The request in progress.
  Request request;
  Route route;
  uint64_t n = 0;  // In the record; 0 for control requests.
  std::optional<Fault> fault;
  bool admitted = true, body_is_chunked = false, body_unread = false;
  uint64_t body_left_bytes = 0, body_bytes = 0;
  ChunkedDecoder chunks;

  // The answer in progress.
  int status = 0;
  std::string head;
  Body body;
  uint64_t body_limit = 0, sent = 0;
  After after = After::kNext;
  std::string_view end_word = "done";
  uint64_t drip_left = 0;

  // The far side of a tunnel.
  int upstream_fd = -1;
  bool upstream_readable = false, client_eof = false, upstream_eof = false;
  std::string to_upstream, to_client;
};

// ── Loop

Loop::Loop(World& world, const Listener& listener)
    : world_(world), listener_(listener), buffer_(kBufferBytes) {
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (epoll_fd_ < 0 || wake_fd_ < 0) die("epoll");
  for (size_t i = 0; i < listener.addresses().size(); ++i) {
    // Edge-triggered: a socket that does not listen would report its state without end.
    epoll_event listening{.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLET,
                          .data = {.u64 = kListenBit | i}};
    epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, listener.addresses()[i].fd, &listening);
  }
  epoll_event waking{.events = EPOLLIN, .data = {.u64 = kWakeId}};
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &waking);
}

Loop::~Loop() {
  for (auto& [id, connection] : connections_) {
    SSL_free(connection->tls);
    close_quietly(connection->fd);
    close_quietly(connection->upstream_fd);
  }
  close_quietly(wake_fd_);
  close_quietly(epoll_fd_);
}

void Loop::run() {
  std::array<epoll_event, 256> events;
  while (!world_.stop) {
    int timeout_ms = -1;
    if (!timers_.empty()) {
      const double left_s = timers_.top().at_s - world_.now_s();
      timeout_ms = left_s <= 0 ? 0 : static_cast<int>(std::ceil(std::min(left_s, 60.0) * 1000));
    }
    const int count = epoll_wait(epoll_fd_, events.data(), events.size(), timeout_ms);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      const uint64_t id = event.data.u64;
      if ((id & kListenBit) != 0 && (id & kUpstreamBit) == 0) {
        accept_all(id & ~kListenBit);
      } else if (id == kWakeId) {
        handle_wake();
      } else if (const auto at = connections_.find(id & ~kUpstreamBit); at != connections_.end()) {
        Connection& connection = *at->second;
        if (id & kUpstreamBit) {
          connection.upstream_readable = true;
        } else {
          connection.readable = true;
          if (event.events & EPOLLRDHUP) connection.peer_done = true;
          if (event.events & (EPOLLERR | EPOLLHUP)) connection.failed = true;
        }
        drive(connection);
      }
    }
    const double now_s = world_.now_s();
    while (!timers_.empty() && timers_.top().at_s <= now_s) {
      const uint64_t id = timers_.top().id;
      timers_.pop();
      if (const auto at = connections_.find(id); at != connections_.end()) drive(*at->second);
    }
  }
}

void Loop::accept_all(size_t address) {
  while (true) {
    SocketAddress peer{.length = sizeof(sockaddr_storage)};
    const int fd =
        accept4(listener_.addresses()[address].fd, reinterpret_cast<sockaddr*>(&peer.storage),
                &peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    auto connection = std::make_unique<Connection>();
    connection->id = next_connection_id++;
    connection->node = listener_.node_of(address);
    connection->peer = text_of(peer);
    connection->idle_since_s = world_.now_s();
    connection->close_epoch = world_.close_epoch;
    connection->fd = fd;
    {
      const std::lock_guard lock(world_.mutex);
      if (world_.faults.refuses_connection()) {
        world_.record.refused();
        close_with_reset(fd);
        continue;
      }
      world_.record.connection_opened(connection->id);
      connection->node_close_epoch = world_.cluster.nodes[connection->node].close_epoch;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (listener_.tls()) {
      connection->tls = SSL_new(listener_.tls());
      SSL_set_fd(connection->tls, fd);
      connection->state = Connection::State::kHandshake;
    }
    // Edge-triggered and registered once: no further calls per request.
    epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                      .data = {.u64 = connection->id}};
    epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event);
    connections_.emplace(connection->id, std::move(connection));
  }
}

void Loop::handle_wake() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof count);
  const uint64_t wakes = world_.wakes;
  const uint64_t release_epoch = world_.release_epoch;
  const uint64_t close_epoch = world_.close_epoch;
  std::vector<uint64_t> ids;
  ids.reserve(connections_.size());
  std::vector<uint64_t> node_close_epochs;
  {
    const std::lock_guard lock(world_.mutex);
    for (const Node& node : world_.cluster.nodes) node_close_epochs.push_back(node.close_epoch);
  }
  for (const auto& [id, connection] : connections_) ids.push_back(id);
  for (const uint64_t id : ids) {
    Connection& connection = *connections_.at(id);
    if (connection.release_epoch < release_epoch &&
        connection.state == Connection::State::kStalled) {
      finish_request(connection, "stalled");
      connection.after = Connection::After::kReset;
      connection.state = Connection::State::kEnding;
      drive(connection);
    } else if (const bool node_is_gone =
                   connection.node_close_epoch < node_close_epochs[connection.node];
               (connection.close_epoch < close_epoch || node_is_gone) && !connection.was_control) {
      connection.close_epoch = close_epoch;
      connection.node_close_epoch = node_close_epochs[connection.node];
      finish_request(connection, "closed");
      connection.after = world_.close_with_reset || node_is_gone ? Connection::After::kReset
                                                                 : Connection::After::kFin;
      connection.state = Connection::State::kEnding;
      drive(connection);
    } else if (connection.state == Connection::State::kHead) {
      drive(connection);  // How long it may be idle may be new.
    }
  }
  world_.wakes_taken += wakes - std::exchange(wakes_, wakes);
}

void Loop::drive(Connection& connection) {
  using enum Connection::State;
  const uint64_t id = connection.id;
  bool goes_on = true;
  while (goes_on) {
    switch (connection.state) {
      case kHandshake: goes_on = handshake(connection); break;
      case kHead: goes_on = read_head(connection); break;
      case kBody: goes_on = read_body(connection); break;
      case kDelayed: goes_on = wait_delay(connection); break;
      case kWriting: goes_on = write_answer(connection); break;
      case kStalled:
        if (connection.failed || connection.peer_done) {
          finish_request(connection, "client_closed");
          destroy(connection, connection.failed ? "client_rst" : "client_fin");
        }
        goes_on = false;
        break;
      case kEnding: goes_on = end_connection(connection); break;
      case kDraining: goes_on = drain(connection); break;
      case kConnecting: goes_on = connect_upstream(connection); break;
      case kTunnel: goes_on = pump_tunnel(connection); break;
      case kDead: goes_on = false; break;
    }
  }
  if (connection.state == kDead) connections_.erase(id);
}

void Loop::destroy(Connection& connection, std::string_view end) {
  if (connection.tls) SSL_free(connection.tls);
  connection.tls = nullptr;
  close_quietly(connection.fd);
  close_quietly(connection.upstream_fd);
  connection.fd = connection.upstream_fd = -1;
  connection.state = Connection::State::kDead;
  const std::lock_guard lock(world_.mutex);
  world_.record.connection_closed(connection.id, end, connection.bytes_in, connection.bytes_out);
}

void Loop::wait_until(Connection& connection, double at_s) {
  connection.wait_until_s = at_s;
  timers_.push({.at_s = at_s, .id = connection.id});
}

// ── Bytes in and out

Loop::Io Loop::read_some(Connection& connection, char* into, size_t capacity, size_t& got) {
  got = 0;
  if (!connection.tls) {
    if (!connection.readable) return Io::kWouldBlock;
    const ssize_t count = recv(connection.fd, into, capacity, 0);
    if (count == 0) return Io::kClosed;
    if (count < 0) {
      if (errno == EINTR) return Io::kWouldBlock;
      connection.readable = false;
      return errno == EAGAIN ? Io::kWouldBlock : Io::kFailed;
    }
    got = static_cast<size_t>(count);
    // Less than asked for means that the socket is empty: the next call would be for nothing.
    if (got < capacity && !connection.peer_done) connection.readable = false;
  } else {
    ERR_clear_error();
    const int count = SSL_read_ex(connection.tls, into, capacity, &got);
    if (count != 1) {
      switch (SSL_get_error(connection.tls, count)) {
        case SSL_ERROR_WANT_READ:
        case SSL_ERROR_WANT_WRITE: return Io::kWouldBlock;
        case SSL_ERROR_ZERO_RETURN: return Io::kClosed;
        default: return connection.peer_done && !connection.failed ? Io::kClosed : Io::kFailed;
      }
    }
  }
  connection.bytes_in += got;
  return Io::kDone;
}

Loop::Io Loop::write_some(Connection& connection, const iovec* pieces, int piece_count,
                          size_t& sent) {
  sent = 0;
  if (!connection.tls) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces);
    message.msg_iovlen = static_cast<size_t>(piece_count);
    const ssize_t count = sendmsg(connection.fd, &message, MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR ? Io::kWouldBlock : Io::kFailed;
    sent = static_cast<size_t>(count);
  } else {
    // Small pieces go into one record, so that a head and a small body are one packet.
    constexpr size_t kRecordBytes = 16384;
    const char* bytes = static_cast<const char*>(pieces[0].iov_base);
    size_t size = pieces[0].iov_len;
    if (piece_count > 1 && size < kRecordBytes) {
      size = 0;
      for (int i = 0; i < piece_count && size < kRecordBytes; ++i) {
        const size_t take = std::min(pieces[i].iov_len, kRecordBytes - size);
        std::memcpy(buffer_.data() + size, pieces[i].iov_base, take);
        size += take;
      }
      bytes = buffer_.data();
    }
    ERR_clear_error();
    const int result = SSL_write_ex(connection.tls, bytes, size, &sent);
    if (result != 1) {
      const int error = SSL_get_error(connection.tls, result);
      const bool again = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
      return again ? Io::kWouldBlock : Io::kFailed;
    }
  }
  connection.bytes_out += sent;
  return Io::kDone;
}

// Reads more into `in`; false when there is nothing now, or the connection is gone.
bool Loop::fill(Connection& connection) {
  size_t got = 0;
  const Io result = read_some(connection, buffer_.data(), buffer_.size(), got);
  if (result == Io::kDone) {
    if (connection.in_at == connection.in.size()) {
      connection.in.clear();
      connection.in_at = 0;
    }
    connection.in.append(buffer_.data(), got);
    return true;
  }
  if (result == Io::kWouldBlock && !connection.failed) return false;
  finish_request(connection, "client_closed");
  destroy(connection, result == Io::kClosed ? "client_fin" : "client_rst");
  return false;
}

bool Loop::handshake(Connection& connection) {
  ERR_clear_error();
  const int result = SSL_accept(connection.tls);
  if (result != 1) {
    const int error = SSL_get_error(connection.tls, result);
    const bool waits = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
    if (!waits || connection.failed) destroy(connection, "tls_failed");
    return false;
  }
  const std::lock_guard lock(world_.mutex);
  world_.record.handshake_done(connection.id, SSL_session_reused(connection.tls) == 1);
  connection.state = Connection::State::kHead;
  return true;
}

// ── Requests

// Ends a connection on which nothing has been asked for too long, or sees to it that it will be.
bool Loop::closes_idle(Connection& connection) {
  const double idle_close_s =
      connection.idle_close_s > 0 ? connection.idle_close_s : world_.idle_close_s.load();
  if (idle_close_s <= 0 || connection.was_control) return false;
  const double ends_at_s = connection.idle_since_s + idle_close_s;
  if (world_.now_s() < ends_at_s) {
    timers_.push({.at_s = ends_at_s, .id = connection.id});
    return false;
  }
  connection.after = Connection::After::kFin;
  connection.fault.reset();
  connection.state = Connection::State::kEnding;
  return true;
}

bool Loop::read_head(Connection& connection) {
  const std::string_view bytes = std::string_view(connection.in).substr(connection.in_at);
  size_t head_bytes = 0;
  connection.request = {};
  if (bytes.empty() && closes_idle(connection)) return true;
  const Parsed parsed =
      bytes.empty() ? Parsed::kIncomplete : parse_head(bytes, connection.request, head_bytes);
  if (parsed == Parsed::kIncomplete) return fill(connection);
  if (parsed == Parsed::kBad) {
    connection.head = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    connection.body = {};
    connection.body_limit = connection.sent = 0;
    connection.n = 0;
    connection.fault.reset();
    connection.after = Connection::After::kFin;
    connection.state = Connection::State::kWriting;
    return true;
  }
  connection.in_at += head_bytes;
  begin_request(connection);
  return true;
}

void Loop::begin_request(Connection& connection) {
  Request& request = connection.request;
  request.node = connection.node;
  request.at_proxy = world_.cluster.nodes[connection.node].is_proxy;  // For good.
  request.peer = connection.peer;
  if (request.method == "CONNECT") {
    connection.route = {.kind = Kind::kConnect};
  } else if (request.path.starts_with("/_control/")) {
    connection.route = {.kind = Kind::kControl};
  } else {
    connection.route = world_.dialect->route(request);
    if (connection.route.object.empty()) connection.route.prefix = request.parameter("prefix");
  }
  connection.release_epoch = world_.release_epoch;
  connection.n = 0;
  connection.fault.reset();
  connection.admitted = true;
  connection.body_unread = false;
  connection.body_bytes = 0;
  connection.chunks = {};
  connection.body_is_chunked = equal_ignoring_case(request.header("transfer-encoding"), "chunked");
  connection.body_left_bytes = parse_u64(request.header("content-length")).value_or(0);
  request.body.reserve(std::min(connection.body_left_bytes, kReservedBodyBytes));
  if (connection.route.kind == Kind::kControl) {
    connection.was_control = true;
  } else {
    const double now_s = world_.now_s();
    Entry entry{.connection = connection.id,
                .node = connection.node,
                .method = request.method,
                .target = request.target,
                .kind = connection.route.kind,
                .absolute_form = request.absolute_form,
                .headers = interesting(request.headers),
                .start_s = now_s};
    const std::lock_guard lock(world_.mutex);
    connection.fault = world_.faults.next(request, connection.route);
    if (connection.fault) entry.fault = static_cast<int64_t>(connection.fault->rule);
    if (connection.resets_next) {
      Fault& fault = connection.fault.emplace();
      fault.reset = fault.early = true;
    }
    connection.admitted =
        world_.throttle.admit(now_s, world_.record.in_flight() + 1, connection.route);
    entry.throttled = !connection.admitted;
    connection.n = world_.record.begin(std::move(entry));
  }
  const bool asks = !connection.fault || !connection.fault->no_continue;
  const bool is_early =
      (connection.fault && connection.fault->early) ||
      (asks && connection.n != 0 && world_.dialect->answers_at_head(request, connection.route));
  if (is_early) {
    connection.body_unread = connection.body_is_chunked || connection.body_left_bytes > 0;
    process(connection);
    return;
  }
  if (asks && equal_ignoring_case(request.header("expect"), "100-continue")) {
    const std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    const iovec piece{.iov_base = const_cast<char*>(go_on.data()), .iov_len = go_on.size()};
    size_t sent = 0;
    write_some(connection, &piece, 1, sent);
  }
  if (connection.body_is_chunked || connection.body_left_bytes > 0) {
    constexpr uint64_t kMaxReserveBytes = uint64_t{64} << 20;
    request.body.reserve(std::min(connection.body_left_bytes, kMaxReserveBytes));
    connection.state = Connection::State::kBody;
  } else {
    process(connection);
  }
}

bool Loop::read_body(Connection& connection) {
  std::string& body = connection.request.body;
  const std::string_view waiting = std::string_view(connection.in).substr(connection.in_at);
  if (connection.body_is_chunked) {
    if (waiting.empty()) return fill(connection);
    connection.in_at += connection.chunks.feed(waiting, body);
    if (connection.chunks.bad()) {
      finish_request(connection, "bad_request");
      connection.after = Connection::After::kFin;
      connection.state = Connection::State::kEnding;
      return true;
    }
  } else if (!waiting.empty()) {
    const size_t take = std::min<uint64_t>(waiting.size(), connection.body_left_bytes);
    body.append(waiting.substr(0, take));
    connection.in_at += take;
    connection.body_left_bytes -= take;
  } else {
    // Straight into its place.
    const size_t wanted = std::min<uint64_t>(connection.body_left_bytes, size_t{1} << 20);
    const size_t before = body.size();
    Io result = Io::kDone;
    size_t got = 0;
    body.resize_and_overwrite(before + wanted, [&](char* data, size_t) {
      result = read_some(connection, data + before, wanted, got);
      return before + got;
    });
    if (result != Io::kDone) {
      if (result == Io::kWouldBlock && !connection.failed) return false;
      connection.body_bytes = body.size();
      if (connection.route.kind == Kind::kResumablePut) accept_partial_body(connection);
      finish_request(connection, "client_closed");
      destroy(connection, result == Io::kClosed ? "client_fin" : "client_rst");
      return false;
    }
    connection.body_left_bytes -= got;
  }
  connection.body_bytes = body.size();
  if (connection.fault && connection.fault->cut_request_after_bytes &&
      body.size() >= *connection.fault->cut_request_after_bytes) {
    body.resize(*connection.fault->cut_request_after_bytes);
    accept_partial_body(connection);
    finish_request(connection, "cut_request");
    connection.after = Connection::After::kReset;
    connection.state = Connection::State::kEnding;
    return true;
  }
  const bool whole =
      connection.body_is_chunked ? connection.chunks.done() : connection.body_left_bytes == 0;
  if (whole) process(connection);
  return true;
}

// A resumable upload keeps what has come of a body that was cut.
void Loop::accept_partial_body(Connection& connection) {
  const std::string url = base_url(connection.request);
  const std::lock_guard lock(world_.mutex);
  world_.dialect->answer(world_, connection.request, connection.route, url,
                         /*partial_body=*/true);
}

std::string Loop::base_url(const Request& request) const {
  const std::string_view host = request.header("host");
  if (host.empty()) return listener_.url();
  return std::string(listener_.tls() ? "https://" : "http://") + std::string(host);
}

namespace {

bool performs(const std::optional<Fault>& fault) {
  if (!fault || fault->perform || fault->lost_answer) return true;
  return !fault->reset && !fault->stall_head && fault->status == 0 && !fault->garbage_head &&
         !fault->early;
}

Response throttled_response(const Dialect& dialect, const Request& request, const Route& route,
                            const Throttle& throttle) {
  Response response = dialect.throttled(request, route, throttle.status());
  if (const std::optional<double> after = throttle.retry_after_s()) {
    response.set(
        "Retry-After",
        Json(*after == std::floor(*after) ? Json(static_cast<int64_t>(*after)) : Json(*after))
            .dump());
  }
  return response;
}

Response faulty_response(const Dialect& dialect, const Request& request, const Route& route,
                         const Fault& fault) {
  Response response = dialect.error(request, route, fault.status, fault.reason, fault.message);
  if (fault.body) response.body = Body(*fault.body);
  return response;
}

void apply_to_response(const Dialect& dialect, const Fault& fault, Response& response) {
  if (fault.wrong_checksum) dialect.spoil_checksums(response);
  if (fault.no_hash) dialect.remove_checksums(response);
  if (fault.pad_body_bytes > 0) {
    response.body = Body(std::string(fault.pad_body_bytes, ' ') + response.body.copy());
  }
  if (fault.chunked) response.chunked = true;
  if (fault.flip_byte) response.body = response.body.flipped(*fault.flip_byte);
  if (fault.wrong_range) {
    std::string text = fault.range_text;
    if (text.empty()) {
      // One byte later than what is sent.
      const std::string_view said = find_header(response.headers, "content-range");
      uint64_t first = 0, last = 0, size = 0;
      if (std::sscanf(std::string(said).c_str(), "bytes %lu-%lu/%lu", &first, &last, &size) == 3) {
        text = "bytes " + std::to_string(first + 1) + "-" + std::to_string(last + 1) + "/" +
               std::to_string(size + 1);
      } else {
        response.status = 206;
        text = "bytes 1-" + std::to_string(response.body.size_bytes()) + "/" +
               std::to_string(response.body.size_bytes() + 1);
      }
    }
    response.set("Content-Range", text);
  }
  for (const auto& [name, value] : fault.headers) response.set(name, value);
  if (fault.retry_after_s) {
    const double after = *fault.retry_after_s;
    response.set("Retry-After", after == std::floor(after)
                                    ? std::to_string(static_cast<int64_t>(after))
                                    : Json(after).dump());
  }
  if (fault.retry_after_date_s) {
    response.set("Retry-After",
                 http_date(now_us() + static_cast<int64_t>(*fault.retry_after_date_s * 1e6)));
  }
}

}  // namespace

void Loop::replace_object(const Route& where) {
  Bucket* const bucket = world_.storage.find(where.bucket);
  const ObjectPtr old = bucket ? bucket->find(where.object) : nullptr;
  if (!old) return;
  std::string bytes = old->body.copy();
  for (char& byte : bytes) byte = static_cast<char>(~byte);
  world_.dialect->store(world_.storage, *bucket, *old, std::move(bytes));
}

void Loop::process(Connection& connection) {
  const Dialect& dialect = *world_.dialect;
  Request& request = connection.request;
  const Route& where = connection.route;
  const std::optional<Fault>& fault = connection.fault;
  if (where.kind == Kind::kControl) {
    Response response = control(world_, request);
    response.head_only = request.method == "HEAD";
    prepare(connection, std::move(response), 0);
    return;
  }
  if (where.kind == Kind::kConnect && (!fault || fault->status == 0) && connection.admitted) {
    process_connect(connection);
    return;
  }
  if (fault && fault->ignore_range) {
    std::erase_if(request.headers,
                  [](const auto& header) { return equal_ignoring_case(header.first, "range"); });
  }
  if (fault && fault->flip_sent_byte && *fault->flip_sent_byte < request.body.size()) {
    char& byte = request.body[*fault->flip_sent_byte];
    byte = static_cast<char>(~byte);
  }
  const std::string url = base_url(request);
  Response response;
  double delay_s = fault ? fault->delay_s : 0;
  {
    const std::lock_guard lock(world_.mutex);
    if (!connection.admitted) {
      response = throttled_response(dialect, request, where, world_.throttle);
    } else if (std::optional<Response> refusal = dialect.refuse(world_, request, where, url)) {
      response = std::move(*refusal);
    } else if (performs(fault)) {
      response = dialect.answer(world_, request, where, url, /*partial_body=*/false);
      if (where.kind == Kind::kList) {
        const Bucket* const bucket = world_.storage.find(where.bucket);
        if (bucket) delay_s += static_cast<double>(bucket->list_delay_ms) / 1000;
      }
      if (fault && fault->replace_object) replace_object(where);
    }
    delay_s += world_.throttle.next_delay_s();
  }
  if (connection.admitted && fault && fault->status != 0) {
    response = faulty_response(dialect, request, where, *fault);
  }
  response.head_only = request.method == "HEAD";
  if (fault && connection.admitted) apply_to_response(dialect, *fault, response);
  prepare(connection, std::move(response), delay_s);
}

// Turns an answer, and what is to go wrong with it, into bytes.
void Loop::prepare(Connection& connection, Response response, double delay_s) {
  using After = Connection::After;
  const bool is_control = connection.n == 0;
  const std::optional<Fault> fault = connection.admitted ? connection.fault : std::nullopt;
  const int64_t second = (now_us() + world_.clock_offset_us) / 1'000'000;
  if (second != date_second_) {
    date_second_ = second;
    date_ = http_date(second * 1'000'000);
  }
  response.headers.emplace_back("Date", date_);
  if (!is_control) {
    world_.dialect->stamp(response, connection.id * 1'000'003 + next_stamp_++);
  }
  connection.after = After::kNext;
  connection.end_word = "done";
  connection.idle_close_s = response.idle_close_s;
  const bool closes_quietly = response.ends == Response::Ends::kCloses ||
                              response.ends == Response::Ends::kResets ||
                              (fault && fault->close_after && !fault->announce_close);
  if (connection.request.wants_close() || connection.body_unread || closes_quietly ||
      (fault && fault->close_after)) {
    connection.after = After::kFin;
    if (!closes_quietly) response.set("Connection", "close");
  }
  if (response.ends == Response::Ends::kResets) connection.after = After::kReset;
  connection.resets_next = response.ends == Response::Ends::kResetsNext;
  uint64_t length = response.body.size_bytes();
  if (fault && fault->wrong_length != 0) {
    length = static_cast<uint64_t>(
        std::max<int64_t>(0, static_cast<int64_t>(length) + fault->wrong_length));
    // Too much was promised: only the end of the connection ends the answer.
    if (fault->wrong_length > 0) connection.after = After::kFin;
  }
  if (fault && fault->huge_head_bytes > 0) {
    response.headers.emplace_back("X-Padding", std::string(fault->huge_head_bytes, 'x'));
  }
  connection.status = response.status;
  connection.head = serialise_head(response, length);
  const bool bodiless = response.head_only || response.status == 204 || response.status == 304;
  connection.body = bodiless ? Body() : std::move(response.body);
  if (response.chunked && !bodiless) connection.body = Body(chunk_encoded(connection.body));
  connection.body_limit = connection.body.size_bytes();
  connection.sent = 0;
  connection.drip_left = 0;
  if (response.stalls) {
    constexpr uint64_t kLastChunkBytes = 5;
    if (response.chunked) connection.body_limit -= kLastChunkBytes;
    connection.after = After::kStall;
    connection.end_word = "stalled";
  }
  if (fault) {
    const auto stop_at = [&connection](std::optional<uint64_t> at, After after,
                                       std::string_view word) {
      if (!at || (after == After::kStall && *at >= connection.body_limit)) return;
      connection.body_limit = std::min(connection.body_limit, *at);
      connection.after = after;
      connection.end_word = word;
    };
    stop_at(fault->cut_after_bytes, After::kFin, "cut");
    stop_at(fault->reset_after_bytes, After::kReset, "reset");
    stop_at(fault->stall_after_bytes, After::kStall, "stalled");
    const auto say_nothing = [&connection](After after, std::string_view word) {
      connection.head.clear();
      connection.body_limit = 0;
      connection.status = 0;
      connection.after = after;
      connection.end_word = word;
    };
    if (fault->garbage_head) {
      say_nothing(After::kFin, "garbage");
      connection.head = fault->garbage;
    }
    if (fault->reset) say_nothing(After::kReset, "reset");
    if (fault->lost_answer) say_nothing(After::kReset, "lost");
    if (fault->stall_head) say_nothing(After::kStall, "stalled");
  }
  if (delay_s > 0 && !is_control) {
    wait_until(connection, world_.now_s() + delay_s);
    connection.state = Connection::State::kDelayed;
  } else {
    connection.state = Connection::State::kWriting;
  }
}

bool Loop::wait_delay(Connection& connection) {
  if (connection.failed || connection.peer_done) {
    connection.status = 0;
    finish_request(connection, "client_closed");
    destroy(connection, connection.failed ? "client_rst" : "client_fin");
    return false;
  }
  if (world_.now_s() < connection.wait_until_s) return false;
  connection.wait_until_s = 0;
  connection.state = Connection::State::kWriting;
  return true;
}

bool Loop::write_answer(Connection& connection) {
  constexpr size_t kMaxPieces = 8;
  const uint64_t head_bytes = connection.head.size();
  const uint64_t total = head_bytes + connection.body_limit;
  const bool drips = connection.fault && connection.fault->drip_bytes > 0 && connection.admitted;
  const bool shaped = connection.n != 0 && world_.shapes_bytes;
  while (connection.sent < total) {
    uint64_t allowed = total - connection.sent;
    if ((drips || shaped) && world_.now_s() < connection.wait_until_s && !connection.failed) {
      return false;
    }
    if (drips && connection.sent >= head_bytes) {
      if (connection.drip_left == 0) {
        connection.drip_left = connection.fault->drip_bytes;
        wait_until(connection, world_.now_s() + connection.fault->drip_every_s);
        if (connection.fault->drip_every_s > 0) continue;
      }
      allowed = std::min(allowed, connection.drip_left);
    } else if (drips) {
      allowed = head_bytes - connection.sent;
    }
    if (shaped) {
      double wait_s = 0;
      const double now_s = world_.now_s();
      const std::lock_guard lock(world_.mutex);
      allowed = world_.throttle.take_bytes(now_s, std::min<uint64_t>(allowed, 65536), wait_s);
      if (allowed == 0) {
        wait_until(connection, now_s + wait_s);
        continue;
      }
    }
    std::array<iovec, kMaxPieces> pieces;
    size_t piece_count = 0;
    uint64_t at = connection.sent;
    while (allowed > 0 && piece_count < kMaxPieces) {
      const std::string_view view = at < head_bytes ? std::string_view(connection.head).substr(at)
                                                    : connection.body.view(at - head_bytes);
      const size_t take = std::min<uint64_t>(view.size(), allowed);
      pieces[piece_count++] = {.iov_base = const_cast<char*>(view.data()), .iov_len = take};
      at += take;
      allowed -= take;
    }
    size_t sent = 0;
    const Io result = write_some(connection, pieces.data(), static_cast<int>(piece_count), sent);
    if (result == Io::kWouldBlock && !connection.failed) return false;
    if (result != Io::kDone) {
      finish_request(connection, "client_closed");
      destroy(connection, "client_rst");
      return false;
    }
    connection.sent += sent;
    if (drips && connection.sent > head_bytes)
      connection.drip_left -= std::min<uint64_t>(sent, connection.drip_left);
  }
  connection.wait_until_s = 0;
  if (connection.after == Connection::After::kStall) {
    connection.state = Connection::State::kStalled;
    return true;
  }
  finish_request(connection, connection.end_word);
  connection.idle_since_s = world_.now_s();
  connection.state = connection.after == Connection::After::kNext ? Connection::State::kHead
                                                                  : Connection::State::kEnding;
  return true;
}

// Writes the request's line in the record, once.
void Loop::finish_request(Connection& connection, std::string_view end) {
  if (connection.n == 0) return;
  const uint64_t head_bytes = connection.head.size();
  const Record::Finish result{
      .status = connection.status,
      .bytes_received = connection.body_bytes,
      .bytes_sent = connection.sent > head_bytes ? connection.sent - head_bytes : 0,
      .end_s = world_.now_s(),
      .end = end};
  {
    const std::lock_guard lock(world_.mutex);
    world_.record.finish(connection.n, result);
  }
  connection.n = 0;
  connection.status = 0;
  connection.sent = 0;
  connection.head.clear();
}

// ── Ends

bool Loop::end_connection(Connection& connection) {
  if (connection.after == Connection::After::kReset) {
    // What was sent should arrive first: a reset throws away what still waits in the kernel.
    int waiting_bytes = 0;
    ioctl(connection.fd, TIOCOUTQ, &waiting_bytes);
    if (waiting_bytes > 0 && !connection.failed) {
      wait_until(connection, world_.now_s() + 0.001);
      return false;
    }
    close_with_reset(connection.fd);
    connection.fd = -1;
    destroy(connection, "reset");
    return false;
  }
  const bool says_so = !connection.fault || !connection.fault->no_close_notify;
  if (connection.tls && says_so) SSL_shutdown(connection.tls);
  shutdown(connection.fd, SHUT_WR);
  wait_until(connection, world_.now_s() + kDrainS);
  connection.state = Connection::State::kDraining;
  connection.readable = true;
  return true;
}

// Closing with unread bytes would send a reset, so what still comes is read and thrown away.
bool Loop::drain(Connection& connection) {
  while (world_.now_s() < connection.wait_until_s && !connection.failed) {
    const ssize_t got = recv(connection.fd, buffer_.data(), buffer_.size(), 0);
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) break;
    if (connection.body_unread) {
      const std::lock_guard lock(world_.mutex);
      world_.record.unread(connection.node, static_cast<uint64_t>(got));
    }
  }
  destroy(connection, "closed");
  return false;
}

// ── Tunnels

void Loop::process_connect(Connection& connection) {
  std::string target = connection.request.target;
  {
    const std::lock_guard lock(world_.mutex);
    if (const auto at = world_.connect_map.find(target); at != world_.connect_map.end()) {
      target = at->second;
    }
  }
  const std::optional<Fault>& fault = connection.fault;
  const std::optional<SocketAddress> address = parse_host_port(target);
  const bool silent = fault && (fault->reset || fault->stall_head || fault->garbage_head);
  if (!silent && (!address || !is_loopback(*address))) {
    prepare(connection,
            world_.dialect->error(connection.request, connection.route, 403, "forbidden",
                                  "Only loopback addresses may be reached."),
            0);
    return;
  }
  if (silent) {
    prepare(connection, {}, fault->delay_s);
    return;
  }
  connection.upstream_fd =
      socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  connect(connection.upstream_fd, reinterpret_cast<const sockaddr*>(&address->storage),
          address->length);
  const int on = 1;
  setsockopt(connection.upstream_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                    .data = {.u64 = connection.id | kUpstreamBit}};
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, connection.upstream_fd, &event);
  connection.state = Connection::State::kConnecting;
}

bool Loop::connect_upstream(Connection& connection) {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(connection.upstream_fd, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) {
    close_quietly(connection.upstream_fd);
    connection.upstream_fd = -1;
    prepare(connection,
            world_.dialect->error(connection.request, connection.route, 502, "backendError",
                                  std::strerror(error)),
            0);
    return true;
  }
  SocketAddress peer{.length = sizeof(sockaddr_storage)};
  if (getpeername(connection.upstream_fd, reinterpret_cast<sockaddr*>(&peer.storage),
                  &peer.length) != 0) {
    if (!connection.failed) return false;
    finish_request(connection, "client_closed");
    destroy(connection, "client_rst");
    return false;
  }
  connection.status = 200;
  finish_request(connection, "tunnel");
  connection.to_client = kConnected;
  connection.to_upstream = connection.in.substr(connection.in_at);
  connection.in.clear();
  connection.in_at = 0;
  connection.upstream_readable = true;
  connection.state = Connection::State::kTunnel;
  return true;
}

bool Loop::pump_tunnel(Connection& connection) {
  bool moved = true;
  while (moved) {
    moved = false;
    if (!connection.to_client.empty()) {
      const iovec piece{.iov_base = connection.to_client.data(),
                        .iov_len = connection.to_client.size()};
      size_t sent = 0;
      const Io result = write_some(connection, &piece, 1, sent);
      connection.to_client.erase(0, sent);
      moved = moved || sent > 0;
      if (result == Io::kFailed) connection.failed = true;
    }
    if (!connection.to_upstream.empty()) {
      const ssize_t sent = send(connection.upstream_fd, connection.to_upstream.data(),
                                connection.to_upstream.size(), MSG_NOSIGNAL);
      if (sent > 0) connection.to_upstream.erase(0, static_cast<size_t>(sent));
      moved = moved || sent > 0;
      if (sent < 0 && errno != EAGAIN) connection.failed = true;
    }
    if (connection.to_upstream.empty() && !connection.client_eof) {
      size_t got = 0;
      const Io result = read_some(connection, buffer_.data(), buffer_.size(), got);
      connection.to_upstream.assign(buffer_.data(), got);
      moved = moved || got > 0;
      if (result == Io::kFailed) connection.failed = true;
      if (result == Io::kClosed) {
        connection.client_eof = true;
        shutdown(connection.upstream_fd, SHUT_WR);
      }
    }
    if (connection.to_client.empty() && !connection.upstream_eof) {
      const ssize_t got = recv(connection.upstream_fd, buffer_.data(), buffer_.size(), 0);
      if (got > 0) connection.to_client.assign(buffer_.data(), static_cast<size_t>(got));
      moved = moved || got > 0;
      if (got < 0 && errno != EAGAIN) {
        // A reset of the far side becomes a reset of the near one.
        close_with_reset(connection.fd);
        connection.fd = -1;
        destroy(connection, "reset");
        return false;
      }
      if (got == 0) {
        connection.upstream_eof = true;
        if (connection.tls) SSL_shutdown(connection.tls);
        shutdown(connection.fd, SHUT_WR);
      }
    }
    if (connection.failed || (connection.client_eof && connection.upstream_eof)) {
      if (connection.failed) close_with_reset(std::exchange(connection.upstream_fd, -1));
      destroy(connection, connection.failed ? "client_rst" : "client_fin");
      return false;
    }
  }
  return false;
}

}  // namespace faultserver
