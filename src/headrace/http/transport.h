// Carries requests to one host and their responses back, one at a time.
#pragma once

#include <chrono>

#include "headrace/base/result.h"
#include "headrace/http/asio.h"
#include "headrace/http/io_thread.h"
#include "headrace/http/message.h"
#include "headrace/http/resolver.h"

namespace headrace {

// A Connection, or whatever a test uses instead. Knows nothing of retries.
// Thread: I/O.
class Transport {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Before the first exchange. `activity` parks for DNS.
  virtual awaitable<Result<void>> open(Activity& activity, Resolver& resolver) = 0;
  // One request and its whole response.
  virtual awaitable<Result<void>> exchange(const HttpRequest& request, ResponseSink& sink) = 0;

  // Ends whatever is being waited for with `why`, and closes the connection.
  virtual void abort(const Error& why) = 0;
  // Looks for a lack of progress. Called by the sweep.
  virtual void check_stall(TimePoint now) = 0;
  // All of a request has been sent, and nothing of the answer has come.
  virtual bool waits_for_answer() const = 0;
  // False if since the last exchange the server has closed the connection, or sent bytes that
  // nobody asked for: they would pass for the answer to the next request.
  virtual bool still_silent() = 0;

  // The last exchange ended cleanly and the server keeps the connection.
  bool reusable() const { return reusable_; }
  // Has served an exchange before, and the last one failed before a byte of its answer came: the
  // server closed an idle connection just as we used it. The request can be sent again for free.
  bool went_stale() const { return went_stale_; }
  TimePoint last_used() const { return last_used_; }
  std::chrono::steady_clock::duration first_byte_latency() const { return first_byte_latency_; }

 protected:
  Transport() = default;

  bool reusable_ = false, went_stale_ = false;
  TimePoint last_used_{};
  std::chrono::steady_clock::duration first_byte_latency_{};
};

}  // namespace headrace
