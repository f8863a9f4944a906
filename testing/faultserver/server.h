// Connections: sockets, TLS, timers. One `Loop` per thread; a connection stays with its loop.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "cluster.h"
#include "faults.h"
#include "http.h"
#include "route.h"
#include "world.h"

struct iovec;

namespace faultserver {

struct ServerOptions {
  std::string bind = "127.0.0.1";
  uint16_t port = 0;              // Of the first node; the others have any.
  std::string tls_cert, tls_key;  // Both or neither.
};

// The bound sockets of all nodes, and what all loops need. Thread: any (immutable).
class Listener {
 public:
  // `address_count` sockets for each of `node_count` nodes; the first of each listens. Exits the
  // process with a sentence when it cannot.
  Listener(const ServerOptions& options, uint32_t node_count, uint32_t address_count);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  // One after the other, `address_count` for each node.
  const std::vector<Address>& addresses() const { return addresses_; }
  uint32_t node_of(size_t address) const { return static_cast<uint32_t>(address / per_node_); }
  SSL_CTX* tls() const { return tls_; }
  const std::string& url() const { return addresses_.front().url; }
  std::vector<Address> addresses_of(uint32_t node) const;

 private:
  Address bind_one(const ServerOptions& options, uint16_t port) const;

  std::vector<Address> addresses_;
  const uint32_t per_node_;
  SSL_CTX* tls_ = nullptr;
};

// Thread: confined (one runs it; the world is shared under its lock).
class Loop {
 public:
  Loop(World& world, const Listener& listener);
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  int wake_fd() const { return wake_fd_; }
  void run();  // Until `world.stop`.

 private:
  struct Connection;
  enum class Io { kDone, kWouldBlock, kClosed, kFailed };

  void accept_all(size_t address);
  void handle_wake();
  void drive(Connection& connection);
  void destroy(Connection& connection, std::string_view end);
  void wait_until(Connection& connection, double at_s);

  bool handshake(Connection& connection);
  bool closes_idle(Connection& connection);
  bool read_head(Connection& connection);
  bool read_body(Connection& connection);
  bool wait_delay(Connection& connection);
  bool write_answer(Connection& connection);
  bool end_connection(Connection& connection);
  bool drain(Connection& connection);
  bool connect_upstream(Connection& connection);
  bool pump_tunnel(Connection& connection);

  void begin_request(Connection& connection);
  void process(Connection& connection);
  void process_connect(Connection& connection);
  void accept_partial_body(Connection& connection);
  void prepare(Connection& connection, Response response, double delay_s);
  void finish_request(Connection& connection, std::string_view end);
  void replace_object(const Route& route);
  std::string base_url(const Request& request) const;

  Io read_some(Connection& connection, char* into, size_t capacity, size_t& got);
  Io write_some(Connection& connection, const iovec* pieces, int piece_count, size_t& sent);
  bool fill(Connection& connection);

  struct Timer {
    double at_s;
    uint64_t id;
    bool operator>(const Timer& other) const { return at_s > other.at_s; }
  };

  World& world_;
  const Listener& listener_;
  int epoll_fd_ = -1, wake_fd_ = -1;
  uint64_t wakes_ = 0;  // That it has taken, of World::wakes.
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::vector<char> buffer_;
  std::string date_;
  int64_t date_second_ = 0;
  uint64_t next_stamp_ = 0;
};

}  // namespace faultserver
