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
  // While it waits for the answer: whether something has come that the thread has not got to yet.
  virtual bool has_unread() = 0;
  // Ends an exchange whose sink has not been given the head yet, with kCancelled; the connection
  // lives on. The next exchange sends nothing: it takes the answer that is still to come.
  virtual void let_go() = 0;
  // Before open(): if the host has other addresses, tries those first. Null: none.
  virtual void avoid(const Transport& /*other*/) {}
  // Whether both are connected to the same address, as far as that is known.
  virtual bool shares_address(const Transport& /*other*/) const { return true; }
  // False if since the last exchange the server has closed the connection, or sent bytes that
  // nobody asked for: they would pass for the answer to the next request. Right after an exchange
  // it is not looked at, unless it `must_look`.
  virtual bool still_silent(bool must_look) = 0;

  // It was opened before there was a request for it, and is put by.
  void rest(TimePoint now) {
    has_rested_ = true;
    last_used_ = now;
  }

  // The last exchange ended cleanly and the server keeps the connection.
  bool reusable() const { return reusable_; }
  // Was idle, and the exchange after that failed before a byte of its answer came: the server
  // closed an idle connection just as we used it. The request can be sent again for free.
  bool went_stale() const { return went_stale_; }
  // The last exchange was answered, and its body was sent because nothing had asked for it in time.
  bool sent_unasked() const { return sent_unasked_; }
  TimePoint last_used() const { return last_used_; }
  // The request of the present exchange. Borrowed from its caller.
  const HttpRequest* request() const { return request_; }
  // Kept for the user of the transport: when the present use began, and when the connection was
  // open; zero if it was already.
  void begin_use(TimePoint now) {
    begun_at_ = now;
    opened_at_ = {};
  }
  void opened(TimePoint now) { opened_at_ = now; }
  TimePoint begun_at() const { return begun_at_; }
  TimePoint opened_at() const { return opened_at_; }
  // When the request of the present exchange, or the last one, had been sent.
  TimePoint sent_at() const { return sent_at_; }
  std::chrono::steady_clock::duration first_byte_latency() const { return first_byte_latency_; }

 protected:
  Transport() = default;

  const HttpRequest* request_ = nullptr;
  bool reusable_ = false, went_stale_ = false, has_rested_ = false, sent_unasked_ = false;
  TimePoint last_used_{}, sent_at_{}, begun_at_{}, opened_at_{};
  std::chrono::steady_clock::duration first_byte_latency_{};
};

}  // namespace headrace
