// The connections of one lane that carry no request at the moment.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "headrace/http/connection.h"
#include "headrace/http/io_thread.h"

namespace headrace {

struct Host;

// Keeps connections for the requests that come next, and opens some ahead of them.
// Thread: I/O. Borrows everything.
class ConnectionPool {
 public:
  ConnectionPool(Host& host, IoThread& thread, Resolver& resolver);
  ConnectionPool(const ConnectionPool&) = delete;
  ConnectionPool& operator=(const ConnectionPool&) = delete;
  // The connections that are being opened must have ended.
  ~ConnectionPool() = default;

  // An idle connection that still seems open, or a new one that has yet to be opened.
  // `must_look`: the request must not be sent twice, if that can be helped.
  std::unique_ptr<Transport> take(bool must_look = false);
  std::unique_ptr<Transport> make();
  // For a request that is also on its way over `other`: one to another address, if there is one.
  std::unique_ptr<Transport> take_beside(const Transport& other);
  // For the next request, if it can carry one.
  void give_back(std::unique_ptr<Transport> connection);
  // For good: nothing is sent to this host any more, and what comes back is closed.
  void close();

  // Opens connections until there are `wanted`, counting the `in_use` that carry a request. A
  // failure is told to nobody: the request that finds no connection opens one itself.
  void open_ahead(size_t wanted, size_t in_use);
  bool opens_ahead() const { return opening_count_ > 0; }
  // Before take(): if a connection is being opened that no request waits for, waits for it, so that
  // there are never more connections than requests may be in flight.
  awaitable<void> wait_for_opening(Activity& waiting);

 private:
  class Opening;

  awaitable<void> open_one_ahead();
  void opening_ended(bool opened);
  void arm_idle_timer(std::chrono::steady_clock::time_point at);
  void expire_idle();

  Host& host_;
  IoThread& thread_;
  Resolver& resolver_;
  std::vector<std::unique_ptr<Transport>> idle_;  // last used last
  uint32_t opening_count_ = 0;                    // connections being opened ahead, ...
  std::deque<Activity*> wait_for_opened_;         // ... the requests that wait for one, ...
  uint64_t failed_openings_ = 0;                  // ... and how many could not be opened
  const std::shared_ptr<Timer> idle_timer_;
  bool idle_timer_armed_ = false;
  bool closed_ = false;
};

}  // namespace headrace
