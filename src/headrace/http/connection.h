// One HTTP/1.1 connection: a request, then its response, again and again.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/format/http_head.h"
#include "headrace/format/url.h"
#include "headrace/http/asio.h"
#include "headrace/http/io_thread.h"
#include "headrace/http/message.h"
#include "headrace/http/options.h"
#include "headrace/http/reception.h"
#include "headrace/http/resolver.h"
#include "headrace/http/tls.h"
#include "headrace/http/transport.h"

namespace headrace {

// How a host is reached. Shared by all its connections; immutable.
struct Route {
  Endpoint endpoint;
  std::optional<Endpoint> proxy;    // CONNECT for TLS endpoints, absolute-form targets for others
  std::string proxy_authorization;  // "Basic ...", or ""
  std::shared_ptr<TlsContext> tls;  // null for http://
  std::string user_agent;
  TimeoutOptions timeout;
};

// Waits for the socket only inside open() and exchange(); abort() ends such a wait from outside.
// Bodies go from the socket (or TLS record) straight into the sink's
// memory; only what arrives together with the head is copied there.
// Thread: I/O. Owns the socket; borrows the thread.
// Errors: kUnavailable (refused, reset, DNS, malformed), kTimedOut (which phase is in the text),
// kPermissionDenied (certificate), and whatever the sink says.
class Connection final : public Transport {
 public:
  Connection(IoThread& thread, std::shared_ptr<const Route> route);
  ~Connection() override;

  // DNS, TCP, the proxy's tunnel, TLS.
  awaitable<Result<void>> open(Activity& activity, Resolver& resolver) override;
  awaitable<Result<void>> exchange(const HttpRequest& request, ResponseSink& sink) override;
  void abort(const Error& why) override;
  void check_stall(TimePoint now) override;
  bool still_silent(bool must_look) override;
  bool waits_for_answer() const override { return phase_ == Phase::kFirstByte; }
  bool has_unread() override;
  void let_go() override;
  void avoid(const Transport& other) override;
  bool shares_address(const Transport& other) const override;

 private:
  enum class Phase : uint8_t { kIdle, kConnect, kTls, kGoAhead, kFirstByte, kBody, kSend };
  using Received = Reception::Received;
  using Wait = asio::socket_base::wait_type;

  void enter(Phase phase) {
    phase_ = phase;
    ++progress_;
  }
  std::chrono::milliseconds allowance() const;
  Error failure(std::string_view what, const boost::system::error_code& error) const;

  awaitable<Result<void>> connect(Activity& activity, Resolver& resolver);
  boost::system::error_code open_socket(const asio::ip::tcp& protocol);
  awaitable<Result<void>> open_tunnel();
  awaitable<Result<void>> open_tls();
  Result<void> write_head(const HttpRequest& request, bool& waits);
  awaitable<Result<void>> send(std::span<const std::byte> bytes);
  awaitable<Result<void>> send_source(BodySource& source);
  // Takes from `bytes` what the socket takes at once, of TLS a record, and says what to wait for if
  // that is nothing. `more`: further bytes follow at once.
  Result<Wait> send_at_once(std::span<const std::byte>& bytes, bool more);
  awaitable<Received> receive(std::span<std::byte> into);
  // `gathers`: not before as much is there as the socket is to wake us at.
  awaitable<Received> receive_tls(std::span<std::byte> into, bool gathers = false);
  // Without a wait. Nothing: there has to be one.
  std::optional<Received> receive_at_once(std::span<std::byte> into, std::span<std::byte> beyond);
  // What a receive through TLS amounts to. Nothing: TLS has to answer before it can read on.
  std::optional<Received> judge_tls(const Received& received);
  // Into head_, at the front of the inbox. `final`: interim answers are passed over.
  awaitable<Result<void>> receive_head(bool final = true);
  Result<bool> find_head(bool final);  // in the inbox; false: it is not all there
  // What of the body has come with the head. `left_bytes` of it are missing before and after.
  Result<void> take_from_inbox(ResponseSink& sink, uint64_t& left_bytes);
  // False if the server's answer, in head_, has come instead; true: it asks for the body, or does
  // not answer.
  awaitable<Result<bool>> receive_go_ahead();
  awaitable<Result<void>> receive_body(ResponseSink& sink, uint64_t left_bytes);
  // For a large body, or one that arrives in drops: true if the next receive is to wait until it
  // can bring a lot.
  bool gathers(uint64_t left_bytes, bool drips);
  void wake_at(int unread_bytes);
  void acknowledge_at_once();
  awaitable<Result<void>> receive_chunked(ResponseSink& sink);
  std::span<const std::byte> inbox() const {
    return std::span(inbox_).subspan(inbox_begin_, inbox_end_ - inbox_begin_);
  }
  void close();

  IoThread& thread_;
  const std::shared_ptr<const Route> route_;
  const std::string authority_;  // for the Host of every request
  Socket socket_;
  Reception reception_{socket_};
  std::unique_ptr<TlsStream> tls_;
  std::optional<Error> tls_error_;  // what does not fit into receive_tls()'s error_code
  std::optional<Error> aborted_;
  std::vector<std::byte> inbox_;  // received and not yet consumed: [inbox_begin_, inbox_end_)
  size_t inbox_begin_ = 0, inbox_end_ = 0;
  std::string outbox_;  // a request's head
  ResponseHead head_;
  bool counted_ = false;
  bool drained_ = false;        // the last receive has left nothing in the socket
  bool let_go_ = false;         // the present exchange is to end before the sink gets the head
  bool goes_ahead_ = false;     // nothing has asked for the body in time: the wait for it is to end
  bool answer_is_due_ = false;  // let_go() has ended the last one; its answer is still to come ...
  bool has_head_ = false;       // ... but for the head, which is in head_
  std::optional<asio::ip::address> address_, avoided_;
  uint64_t exchange_count_ = 0;
  int wake_at_bytes_ = 1;  // the socket's SO_RCVLOWAT

  // The sweep compares progress_ with its last value, so that a read needs no time stamp per piece.
  Phase phase_ = Phase::kIdle;
  uint64_t progress_ = 0, progress_seen_ = 0;
  TimePoint progress_since_{};
};

}  // namespace headrace
