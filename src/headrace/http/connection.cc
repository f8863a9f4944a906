#include "headrace/http/connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "headrace/base/as_text.h"
#include "headrace/base/ascii.h"
#include "headrace/base/fork.h"
#include "headrace/format/chunked.h"
#include "headrace/http/completion.h"

namespace headrace {
namespace {

using std::chrono::steady_clock;

constexpr size_t kInboxBytes = 4 * 1024;
// For a body this large we are woken once this much has arrived, not for every packet: the kernel
// merges packets and acknowledges them less often, and few receives take everything. That halves
// the CPU cost of a large object. At 100 KiB it does not repay its system calls, unless the last
// receive has shown that the body arrives in drops.
constexpr uint64_t kGatherFromBytes = 256 * 1024;
constexpr uint64_t kGatherDropsFromBytes = 32 * 1024;
constexpr size_t kDropBytes = 16 * 1024;
constexpr int kGatherBytes = 1024 * 1024;
// If at least this much of a chunk is left, it is received straight into its place. Below that, one
// receive into the inbox brings the end of this chunk and the beginning of the next.
constexpr uint64_t kDirectFromBytes = 2 * 1024;
// For so long after a receive that has left nothing in the socket, the connection is used again
// without looking. If the server has closed it meanwhile, the request is sent again for free.
constexpr std::chrono::milliseconds kSilentFor{1};
// A server need not ask for a body, and one that speaks HTTP/1.0 never does: a client "SHOULD NOT
// wait for an indefinite period" (https://www.rfc-editor.org/rfc/rfc9110#section-10.1.1).
constexpr std::chrono::milliseconds kGoesAheadAfter{1'000};

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

Connection::Connection(IoThread& thread, std::shared_ptr<const Route> route)
    : thread_(thread),
      route_(std::move(route)),
      authority_(route_->endpoint.authority()),
      socket_(thread.context()),
      inbox_(kInboxBytes) {}

Connection::~Connection() {
  close();
  if (counted_) thread_.metrics().connections_open.fetch_sub(1, std::memory_order_relaxed);
}

void Connection::close() {
  reception_.decrypt_by(nullptr);
  tls_.reset();
  if (!socket_.is_open()) return;
  forget_in_child(socket_.native_handle());
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void Connection::abort(const Error& why) {
  if (!aborted_) aborted_ = why;
  reusable_ = false;
  // The TLS object may be in use further up this very stack; only the socket is closed.
  if (socket_.is_open()) {
    forget_in_child(socket_.native_handle());
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
}

std::chrono::milliseconds Connection::allowance() const {
  switch (phase_) {
    case Phase::kIdle: return std::chrono::hours(24);
    case Phase::kConnect: return route_->timeout.connect;
    case Phase::kTls: return route_->timeout.tls;
    case Phase::kGoAhead: return std::min(kGoesAheadAfter, route_->timeout.first_byte);
    case Phase::kFirstByte: return route_->timeout.first_byte;
    case Phase::kBody:
    case Phase::kSend: return route_->timeout.stall;
  }
  return route_->timeout.stall;
}

void Connection::check_stall(steady_clock::time_point now) {
  if (progress_ != progress_seen_) {
    progress_seen_ = progress_;
    progress_since_ = now;
    return;
  }
  // A server that has ended its side, but reads on, just before we began to wait: it may be that no
  // event is to come. The receive that waits finds the end.
  std::byte probe;
  const bool waits = phase_ == Phase::kGoAhead || phase_ == Phase::kFirstByte;
  if (waits && socket_.is_open() &&
      ::recv(socket_.native_handle(), &probe, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
    ::shutdown(socket_.native_handle(), SHUT_RD);
  }
  // The sender is too slow or pauses: take what has arrived, and count it as progress. The next
  // sweep judges: it may be this thread that stood still, for longer than a body may stall.
  if (wake_at_bytes_ > 1 && socket_.is_open()) {
    wake_at(1);
    return;
  }
  if (phase_ == Phase::kIdle || now - progress_since_ < allowance()) return;
  if (phase_ == Phase::kGoAhead) {
    goes_ahead_ = true;
    boost::system::error_code ignored;
    if (socket_.is_open()) socket_.cancel(ignored);
    return;
  }
  const char* what = "";
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kGoAhead: break;
    case Phase::kConnect: what = "connecting took longer than "; break;
    case Phase::kTls: what = "the TLS handshake took longer than "; break;
    case Phase::kFirstByte: what = "no answer came within "; break;
    case Phase::kBody: what = "the body stalled for "; break;
    case Phase::kSend: what = "sending stalled for "; break;
  }
  abort(Error(Code::kTimedOut, cat(what, allowance().count(), " ms")));
}

Error Connection::failure(std::string_view what, const boost::system::error_code& error) const {
  if (aborted_) return *aborted_;
  if (tls_error_) return *tls_error_;
  const bool end = error == asio::error::eof;
  return Error(
      Code::kUnavailable,
      cat(what, ": ", end ? std::string("connection closed by the server") : error.message()));
}

bool Connection::still_silent(bool must_look) {
  if (!must_look && drained_ && thread_.now() - last_used_ < kSilentFor) return true;
  std::byte probe;
  if (tls_) {
    // What waits in the socket may be a session ticket, which is for OpenSSL alone.
    const Result<TlsStream::Step> step = tls_->read({&probe, 1});
    return step && step->count == 0 && !step->end;
  }
  return ::recv(socket_.native_handle(), &probe, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

bool Connection::has_unread() {
  std::byte probe;
  return ::recv(socket_.native_handle(), &probe, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

void Connection::let_go() {
  let_go_ = true;
  boost::system::error_code ignored;
  if (socket_.is_open()) socket_.cancel(ignored);
}

void Connection::avoid(const Transport& other) {
  const auto* const connection = dynamic_cast<const Connection*>(&other);
  if (connection != nullptr) avoided_ = connection->address_;
}

bool Connection::shares_address(const Transport& other) const {
  const auto* const connection = dynamic_cast<const Connection*>(&other);
  return connection == nullptr || connection->address_ == address_;
}

awaitable<Result<void>> Connection::open(Activity& activity, Resolver& resolver) {
  if (Result<void> done = co_await connect(activity, resolver); !done) co_return done;
  if (route_->proxy && route_->endpoint.tls) {
    if (Result<void> done = co_await open_tunnel(); !done) co_return done;
  }
  if (route_->endpoint.tls) {
    if (Result<void> done = co_await open_tls(); !done) co_return done;
  }
  enter(Phase::kIdle);
  count(thread_.metrics().connections_opened_total);
  count(thread_.metrics().connections_open);
  counted_ = true;
  reusable_ = true;
  co_return Result<void>();
}

awaitable<Result<void>> Connection::connect(Activity& activity, Resolver& resolver) {
  enter(Phase::kConnect);
  const Endpoint& target = route_->proxy ? *route_->proxy : route_->endpoint;
  std::optional<Resolver::Addresses> addresses;
  const auto resolve_until = thread_.now() + route_->timeout.connect;
  while (!addresses) {
    Result<std::optional<Resolver::Addresses>> answer =
        resolver.resolve(target.host, activity.waker());
    if (!answer) co_return std::unexpected(std::move(answer.error()));
    addresses = std::move(*answer);
    if (addresses) break;
    if (thread_.now() >= resolve_until) {
      co_return fail(Code::kTimedOut, "resolving host ", target.host, " took longer than ",
                     route_->timeout.connect.count(), " ms");
    }
    co_await activity.park(resolve_until);
    if (activity.stopped()) co_return std::unexpected(*activity.stopped());
  }
  if (avoided_) {
    std::ranges::stable_partition(*addresses, [this](const auto& at) { return at != *avoided_; });
  }
  std::optional<Error> last;
  for (const asio::ip::address& address : *addresses) {
    enter(Phase::kConnect);
    aborted_.reset();  // a time-out of the address before
    const asio::ip::tcp::endpoint to(address, target.port);
    boost::system::error_code error = open_socket(to.protocol());
    if (error) {
      // EMFILE: trying another address, or again, would only hide the problem from the user.
      if (error == boost::system::errc::too_many_files_open ||
          error == boost::system::errc::too_many_files_open_in_system) {
        co_return fail(Code::kExhausted, "no file descriptor for a connection: ", error.message(),
                       " (raise `ulimit -n` or lower max_in_flight)");
      }
      last = Error(Code::kUnavailable, cat("cannot open a socket: ", error.message()));
      continue;
    }
    close_in_child(socket_.native_handle());
    std::tie(error) = co_await socket_.async_connect(to, kAwait);
    if (aborted_) error = asio::error::operation_aborted;  // just as it succeeded
    if (!error) {
      resolver.worked(target.host, address);
      address_ = address;
      socket_.set_option(asio::ip::tcp::no_delay(true), error);
      // Makes the kernel offer a large window from the start, instead of growing it over many
      // round trips. Done before connect(), it would bound the window for good.
      wake_at(kGatherBytes);
      wake_at(1);
      co_return Result<void>();
    }
    if (activity.stopped()) co_return std::unexpected(*activity.stopped());
    resolver.failed(target.host, address);
    last = failure(cat("cannot connect to ", target.authority(), " (", address.to_string(), ")"),
                   error);
    close();
  }
  co_return std::unexpected(std::move(*last));
}

// Opened with close-on-exec: Asio would set it too late, so that a program started by another
// thread could inherit the socket.
boost::system::error_code Connection::open_socket(const asio::ip::tcp& protocol) {
  const int descriptor =
      ::socket(protocol.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (descriptor < 0) return {errno, boost::system::system_category()};
  boost::system::error_code error;
  socket_.assign(protocol, descriptor, error);
  if (error) ::close(descriptor);
  return error;
}

awaitable<Result<void>> Connection::open_tunnel() {
  const std::string host_and_port =
      cat(route_->endpoint.host.contains(':') ? cat("[", route_->endpoint.host, "]")
                                              : route_->endpoint.host,
          ":", route_->endpoint.port);
  outbox_ = cat("CONNECT ", host_and_port, " HTTP/1.1\r\nHost: ", host_and_port, "\r\n");
  if (!route_->proxy_authorization.empty()) {
    outbox_ += cat("Proxy-Authorization: ", route_->proxy_authorization, "\r\n");
  }
  outbox_ += "\r\n";
  if (Result<void> sent = co_await send(as_bytes(outbox_)); !sent) co_return sent;
  enter(Phase::kFirstByte);
  if (Result<void> got = co_await receive_head(); !got) co_return got;
  if (head_.status / 100 != 2) {
    // A proxy that refuses is a configuration error; one in trouble may recover.
    co_return std::unexpected(
        Error(head_.status >= 500 ? Code::kUnavailable : Code::kPermissionDenied,
              cat("the proxy ", route_->proxy->authority(), " refused a tunnel to ", host_and_port))
            .with_http_status(head_.status));
  }
  if (inbox_begin_ != inbox_end_) {
    co_return fail(Code::kUnavailable, "the proxy sent bytes of its own into the tunnel");
  }
  co_return Result<void>();
}

awaitable<Result<void>> Connection::open_tls() {
  enter(Phase::kTls);
  Result<std::unique_ptr<TlsStream>> made =
      TlsStream::create(route_->tls, socket_.native_handle(), route_->endpoint.host);
  if (!made) co_return std::unexpected(std::move(made.error()));
  tls_ = std::move(*made);
  socket_.non_blocking(true);
  while (true) {
    const Result<TlsStream::Step> step = tls_->handshake();
    if (!step) {
      co_return std::unexpected(Error(
          step.error().code(), cat(route_->endpoint.authority(), ": ", step.error().message())));
    }
    if (step->need == TlsStream::Need::kNothing) break;
    const auto [error] = co_await socket_.async_wait(step->need == TlsStream::Need::kReadable
                                                         ? asio::socket_base::wait_read
                                                         : asio::socket_base::wait_write,
                                                     kAwait);
    if (error || aborted_) co_return std::unexpected(failure("TLS handshake", error));
  }
  reception_.decrypt_by(tls_.get());
  if (tls_->resumed()) count(thread_.metrics().tls_resumed_total);
  co_return Result<void>();
}

Result<Connection::Wait> Connection::send_at_once(std::span<const std::byte>& bytes, bool more) {
  size_t count = 0;
  Wait wait = asio::socket_base::wait_write;
  if (tls_) {
    const Result<TlsStream::Step> step = tls_->write(bytes, more);
    if (!step) return std::unexpected(step.error());
    if (step->end) return fail(Code::kUnavailable, "connection closed by the server");
    if (step->need == TlsStream::Need::kReadable) wait = asio::socket_base::wait_read;
    count = step->count;
  } else {
    // As in Reception: no point where the thread can be cancelled.
    const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
    const long sent = ::syscall(SYS_sendto, socket_.native_handle(), bytes.data(), bytes.size(),
                                flags, nullptr, 0);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      return fail(Code::kUnavailable, "sending failed: ", std::strerror(errno));
    }
    count = sent > 0 ? static_cast<size_t>(sent) : 0;
  }
  if (count > 0) ++progress_;
  bytes = bytes.subspan(count);
  return wait;
}

awaitable<Result<void>> Connection::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t left_bytes = bytes.size();
    const Result<Wait> wait = send_at_once(bytes, /*more=*/false);
    if (!wait) co_return std::unexpected(wait.error());
    if (bytes.size() < left_bytes) continue;
    const auto [error] = co_await socket_.async_wait(*wait, kAwait);
    if (error || aborted_) co_return std::unexpected(failure("sending failed", error));
  }
  co_return Result<void>();
}

awaitable<Result<void>> Connection::send_source(BodySource& source) {
  uint64_t offset_bytes = 0;
  while (offset_bytes < source.size_bytes()) {
    // Does not block the thread while the source reads.
    const auto bytes = co_await completion<Result<std::span<const std::byte>>>(
        [&](BodySource::Done done) { source.read(offset_bytes, std::move(done)); });
    // A body that was announced and does not come: the connection is of no more use.
    if (!bytes) {
      if (!aborted_) abort(bytes.error());
      co_return std::unexpected(bytes.error());
    }
    if (aborted_) co_return std::unexpected(*aborted_);
    ++progress_;
    if (Result<void> sent = co_await send(*bytes); !sent) co_return sent;
    offset_bytes += bytes->size();
  }
  co_return Result<void>();
}

awaitable<Connection::Received> Connection::receive(std::span<std::byte> into) {
  if (tls_) return receive_tls(into);
  return socket_.async_receive(asio::buffer(into.data(), into.size()), kAwait);
}

std::optional<Connection::Received> Connection::judge_tls(const Received& received) {
  const auto [error, count] = received;
  if (error || count > 0) return received;
  const Result<TlsStream::Step>& step = reception_.step();
  if (!step) {
    tls_error_ = step.error();
    return Received(asio::error::connection_reset, 0);
  }
  if (step->end && step->truncated) {
    tls_error_ = Error(Code::kUnavailable, "the connection ended without the end of TLS");
    return Received(asio::error::connection_reset, 0);
  }
  if (step->end) return Received(asio::error::eof, 0);
  return std::nullopt;
}

std::optional<Connection::Received> Connection::receive_at_once(std::span<std::byte> into,
                                                                std::span<std::byte> beyond) {
  if (!tls_) return reception_.receive_at_once(into, beyond);
  const std::optional<Received> received = reception_.receive_at_once(into, {});
  return received ? judge_tls(*received) : std::nullopt;
}

awaitable<Connection::Received> Connection::receive_tls(std::span<std::byte> into, bool gathers) {
  while (true) {
    const Received received = gathers ? co_await reception_.receive_once_ready(into, {})
                                      : co_await reception_.receive(into, {});
    if (const std::optional<Received> judged = judge_tls(received)) co_return *judged;
    if (std::exchange(gathers, false)) wake_at(1);
    if (reception_.step()->need != TlsStream::Need::kWritable) continue;
    const auto [failed] = co_await socket_.async_wait(asio::socket_base::wait_write, kAwait);
    if (failed) co_return Received(failed, 0);
    if (aborted_ || let_go_ || goes_ahead_) {
      co_return Received(asio::error::operation_aborted, 0);
    }
  }
}

Result<bool> Connection::find_head(bool final) {
  while (inbox_begin_ != inbox_end_) {
    const Result<size_t> size = parse_response_head(as_text(inbox()), head_);
    if (!size) return std::unexpected(size.error());
    if (*size == 0) return false;
    inbox_begin_ += *size;
    if (head_.status == 100) sent_unasked_ = false;  // it has only come late
    if (!final || head_.status / 100 != 1) return true;
  }
  return false;
}

awaitable<Result<bool>> Connection::receive_go_ahead() {
  do {
    Result<void> got = co_await receive_head(/*final=*/false);
    const bool is_unasked = std::exchange(goes_ahead_, false) && !got && !aborted_;
    if (is_unasked) {
      sent_unasked_ = true;
      co_return true;
    }
    if (!got) co_return std::unexpected(std::move(got.error()));
    if (head_.status == 100) co_return true;
  } while (head_.status / 100 == 1);
  co_return false;
}

awaitable<Result<void>> Connection::receive_head(bool final) {
  while (true) {
    const Result<bool> found = find_head(final);
    if (!found) co_return std::unexpected(found.error());
    if (*found) co_return Result<void>();
    if (inbox_begin_ == inbox_end_) {
      inbox_begin_ = inbox_end_ = 0;
    } else if (inbox_begin_ > 0) {
      std::memmove(inbox_.data(), inbox_.data() + inbox_begin_, inbox_end_ - inbox_begin_);
      inbox_end_ -= inbox_begin_;
      inbox_begin_ = 0;
    }
    // Just as a part of it came.
    if (let_go_ || goes_ahead_) co_return fail(Code::kCancelled, "let go");
    if (inbox_end_ == inbox_.size()) inbox_.resize(inbox_.size() * 2);
    const std::span<std::byte> into = std::span(inbox_).subspan(inbox_end_);
    const auto [error, received] =
        tls_ ? co_await receive_tls(into) : co_await reception_.receive(into, {});
    if (error || aborted_) {
      co_return std::unexpected(failure("no answer", error));
    }
    inbox_end_ += received;
    drained_ = tls_ ? tls_->drained() : inbox_end_ < inbox_.size();
    ++progress_;
  }
}

// The head of the request goes to `outbox_`. `waits`: the server is to ask for the body first.
Result<void> Connection::write_head(const HttpRequest& request, bool& waits) {
  if (request.refused) return std::unexpected(*request.refused);
  const Endpoint& endpoint = route_->endpoint;
  if (!is_visible_ascii(endpoint.base_path) || !is_visible_ascii(request.target)) {
    return invalid_argument("a request's target must consist of visible ASCII characters");
  }
  outbox_.assign(request.method).push_back(' ');
  if (route_->proxy && !endpoint.tls) outbox_.append("http://").append(authority_);
  outbox_.append(endpoint.base_path).append(request.target);
  outbox_.append(" HTTP/1.1\r\nHost: ").append(authority_);
  outbox_.append("\r\nUser-Agent: ").append(route_->user_agent).append("\r\n");
  if (route_->proxy && !endpoint.tls && !route_->proxy_authorization.empty()) {
    outbox_.append("Proxy-Authorization: ").append(route_->proxy_authorization).append("\r\n");
  }
  outbox_.append(request.header_lines);
  if (request.has_body) {
    const uint64_t body_bytes = request.body_bytes();
    outbox_.append("Content-Length: ").append(std::to_string(body_bytes)).append("\r\n");
    waits = request.waits_for_continue && body_bytes > 0;
    if (waits) outbox_.append("Expect: 100-continue\r\n");
  }
  outbox_.append("\r\n");
  return {};
}

awaitable<Result<void>> Connection::exchange(const HttpRequest& request, ResponseSink& sink) {
  Result<void> sent, head;
  bool answered = false;  // without having asked for the body
  request_ = &request;
  if (!std::exchange(answer_is_due_, false)) {
    bool waits = false;
    if (Result<void> written = write_head(request, waits); !written) co_return written;
    reusable_ = went_stale_ = sent_unasked_ = goes_ahead_ = false;
    inbox_begin_ = inbox_end_ = 0;
    enter(Phase::kSend);
    // The socket almost always takes a whole request at once, without involving the reactor.
    std::span<const std::byte> unsent = as_bytes(outbox_);
    const bool is_followed =  // at once, in the same segment
        !waits && request.body_source == nullptr && request.body_bytes() > 0;
    const Result<Wait> begun = send_at_once(unsent, is_followed);
    if (!begun) sent = std::unexpected(begun.error());
    if (sent && !unsent.empty()) sent = co_await send(unsent);
    if (waits && sent) {
      enter(Phase::kGoAhead);
      const Result<bool> go_ahead = co_await receive_go_ahead();
      answered = go_ahead && !*go_ahead;
      if (!go_ahead) head = std::unexpected(go_ahead.error());
      enter(Phase::kSend);
    }
    if (!answered && head) {
      if (sent && request.body_source != nullptr) {
        if (request.body_begun != nullptr) *request.body_begun = true;
        sent = co_await send_source(*request.body_source);
      }
      for (const std::span<const std::byte> part : request.body) {
        if (!sent || part.empty()) continue;
        if (request.body_begun != nullptr) *request.body_begun = true;
        sent = co_await send(part);
      }
    }
    sent_at_ = thread_.now();
  }
  enter(Phase::kFirstByte);
  // Even if sending failed: a server that refuses a body early answers before it closes.
  if (!answered && head && !std::exchange(has_head_, false)) head = co_await receive_head();
  if (std::exchange(let_go_, false)) {
    answer_is_due_ = true;
    has_head_ = head.has_value();
    co_return fail(Code::kCancelled, "another attempt was answered first");
  }
  if (!head) {
    went_stale_ = (exchange_count_ > 0 || has_rested_) && inbox_end_ == 0 && !aborted_;
    // What the server says about our certificate comes after the handshake, when it has closed.
    const bool is_reason = head.error().code() == Code::kPermissionDenied;
    if (!sent && !aborted_ && !is_reason) co_return sent;
    co_return head;
  }
  last_used_ = thread_.now();
  first_byte_latency_ = last_used_ - sent_at_;
  enter(Phase::kBody);
  ++exchange_count_;

  if (Result<void> taken = sink.on_head(head_); !taken) co_return taken;
  const bool has_body = request.method != "HEAD" && !head_.never_has_body();
  if (has_body) {
    Result<void> body;
    if (head_.chunked) {
      drained_ = false;
      body = co_await receive_chunked(sink);
    } else {
      uint64_t left_bytes = head_.content_length.value_or(UINT64_MAX);
      body = take_from_inbox(sink, left_bytes);
      if (body && left_bytes > 0) {
        body = co_await receive_body(sink, left_bytes);
        last_used_ = thread_.now();
      }
    }
    if (!body) co_return body;
  }
  // Unexpected bytes after the body: whatever they are, they must not answer the next request.
  // Nor would the server know what follows a body that was announced and did not come.
  reusable_ =
      sent.has_value() && !answered && head_.keep_alive && inbox_begin_ == inbox_end_ && !aborted_;
  if (reusable_ && drained_) expect_nothing(socket_);
  enter(Phase::kIdle);
  co_return Result<void>();
}

Result<void> Connection::take_from_inbox(ResponseSink& sink, uint64_t& left_bytes) {
  while (left_bytes > 0 && inbox_begin_ != inbox_end_) {
    const Result<std::span<std::byte>> space = sink.space(head_.content_length ? left_bytes : 0);
    if (!space) return std::unexpected(space.error());
    const std::span<const std::byte> have = inbox();
    const auto count =
        static_cast<size_t>(std::min<uint64_t>({have.size(), space->size(), left_bytes}));
    std::memcpy(space->data(), have.data(), count);
    inbox_begin_ += count;
    left_bytes -= count;
    if (Result<void> taken = sink.on_bytes(count); !taken) return taken;
  }
  return {};
}

// The inbox is empty.
awaitable<Result<void>> Connection::receive_body(ResponseSink& sink, uint64_t left_bytes) {
  const bool until_close = !head_.content_length.has_value();
  bool drips = false;
  // Every other receive passes the scheduler, which then turns to the other connections.
  bool may_be_at_once = true;
  inbox_begin_ = inbox_end_ = 0;
  while (left_bytes > 0) {
    const Result<std::span<std::byte>> space = sink.space(until_close ? 0 : left_bytes);
    if (!space) co_return std::unexpected(space.error());
    const std::span<std::byte> into =
        space->first(static_cast<size_t>(std::min<uint64_t>(space->size(), left_bytes)));
    const bool waits = !until_close && gathers(left_bytes, drips);
    // Room beyond the end shows whether there is more in the socket, such as bytes that must not
    // answer the next request.
    const bool has_end = into.size() == left_bytes;
    const std::span<std::byte> beyond = has_end ? inbox_ : std::span<std::byte>();
    std::optional<Received> got;
    if (!waits && may_be_at_once) got = receive_at_once(into, beyond);
    may_be_at_once = !got;
    if (!got && tls_) {
      got = co_await receive_tls(into, waits);
    } else if (!got) {
      got = waits ? co_await reception_.receive_once_ready(into, beyond)
                  : co_await reception_.receive(into, beyond);
    }
    const auto [error, received] = *got;
    if (until_close && error == asio::error::eof && !aborted_) break;
    if (error || aborted_) {
      co_return std::unexpected(failure("the body broke off", error));
    }
    const size_t count = std::min(received, into.size());
    inbox_end_ = received - count;
    drained_ = tls_ ? tls_->drained() : has_end && inbox_end_ < inbox_.size();
    // TLS has then given whatever it has; a server sends its records one by one.
    drips = received < into.size() && (tls_ || received <= kDropBytes);
    ++progress_;
    if (received < into.size()) acknowledge_at_once();
    left_bytes -= count;
    if (Result<void> taken = sink.on_bytes(count); !taken) co_return taken;
  }
  wake_at(1);
  co_return Result<void>();
}

bool Connection::gathers(uint64_t left_bytes, bool drips) {
  // All that is left may be in TLS's hands: the socket may stay silent.
  if (tls_ && (!drips || tls_->over())) {
    wake_at(1);
    return false;
  }
  const uint64_t certain_bytes = tls_ ? tls_->missing_bytes(left_bytes) : left_bytes;
  const uint64_t from_bytes = drips ? kGatherDropsFromBytes : kGatherFromBytes;
  if (certain_bytes < from_bytes && wake_at_bytes_ == 1) return false;
  wake_at(static_cast<int>(std::clamp<uint64_t>(certain_bytes, 1, kGatherBytes)));
  if (!drips) acknowledge_at_once();  // else it has been done
  return true;
}

// A server that sends nothing but whole segments keeps the last one back until the others are
// acknowledged, which the kernel would put off by 40 ms. It does so again after each request.
void Connection::acknowledge_at_once() {
  const int on = 1;
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

void Connection::wake_at(int unread_bytes) {
  if (std::exchange(wake_at_bytes_, unread_bytes) == unread_bytes) return;
  // If the system refuses, we are woken for every packet.
  ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVLOWAT, &unread_bytes,
               sizeof unread_bytes);
}

awaitable<Result<void>> Connection::receive_chunked(ResponseSink& sink) {
  ChunkedDecoder decoder;
  while (!decoder.done()) {
    const uint64_t certain_bytes = decoder.chunk_remaining_bytes();
    if (inbox_begin_ == inbox_end_ && certain_bytes >= kDirectFromBytes) {
      // The rest of a chunk goes straight into its place, like a body of known length.
      const Result<std::span<std::byte>> space = sink.space(0);
      if (!space) co_return std::unexpected(space.error());
      const std::span<std::byte> into =
          space->first(static_cast<size_t>(std::min<uint64_t>(space->size(), certain_bytes)));
      const auto [error, received] = co_await receive(into);
      if (error || aborted_) {
        co_return std::unexpected(failure("the body broke off", error));
      }
      decoder.skip_data(received);
      ++progress_;
      if (Result<void> taken = sink.on_bytes(received); !taken) co_return taken;
      continue;
    }
    if (inbox_begin_ == inbox_end_) {
      inbox_begin_ = inbox_end_ = 0;
      const auto [error, received] = co_await receive(inbox_);
      if (error || aborted_) {
        co_return std::unexpected(failure("the body broke off", error));
      }
      inbox_end_ = received;
      ++progress_;
    }
    const Result<std::span<std::byte>> space = sink.space(0);
    if (!space) co_return std::unexpected(space.error());
    const Result<ChunkedDecoder::Step> step = decoder.decode(inbox(), *space);
    if (!step) co_return std::unexpected(step.error());
    inbox_begin_ += step->consumed;
    if (step->produced > 0) {
      if (Result<void> taken = sink.on_bytes(step->produced); !taken) co_return taken;
    }
  }
  co_return Result<void>();
}

}  // namespace headrace
