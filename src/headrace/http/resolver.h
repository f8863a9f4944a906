// Host names to addresses.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/http/asio.h"

namespace headrace {

// Looks names up on threads of its own, because getaddrinfo blocks and cannot be interrupted. There
// is one look-up per name at a time, and answers are kept for a minute. A look-up that outlives its
// waiters is abandoned: nobody joins its thread. Connections to a name start with each of its
// addresses in turn, so that all front ends of a service share the load. An address that failed is
// tried last for a minute, then first by a single connection, and by all again once that one has
// worked.
// Thread: any.
class Resolver {
 public:
  using Clock = std::chrono::steady_clock;
  using Addresses = std::vector<asio::ip::address>;
  // Runs the look-up on a thread. Throws std::system_error if no thread can be started.
  using StartThread = std::function<void(std::function<void()>)>;

  explicit Resolver(StartThread start_thread = on_detached_thread);
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // The addresses in the order in which this connection should try them, if they are known already
  // (literals always are). Otherwise none, and `on_change` is called once when it is worth asking
  // again.
  // Errors: kUnavailable for a name that does not resolve, or if no thread can be started.
  Result<std::optional<Addresses>> resolve(const std::string& host, std::function<void()> on_change,
                                           Clock::time_point now = Clock::now());
  // Reports how a connection to one of the addresses went.
  void failed(const std::string& host, const asio::ip::address& address,
              Clock::time_point now = Clock::now());
  void worked(const std::string& host, const asio::ip::address& address);

 private:
  static void on_detached_thread(std::function<void()> job);

  struct Shared;
  std::shared_ptr<Shared> shared_;
  StartThread start_thread_;
};

}  // namespace headrace
