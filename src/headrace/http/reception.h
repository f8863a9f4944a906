// A receive that allocates nothing and counts nothing: what Asio's own does for any executor and
// any number of threads, one connection of an I/O thread does not need.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "headrace/http/asio.h"
#include "headrace/http/tls.h"

namespace headrace {

// Waits in the reactor like any operation on the socket: closing or cancelling that ends it.
// Thread: that of the socket. One receive at a time. Borrows the socket; lives until its receive
// has ended, which the coroutine that waits for it sees to.
class Reception final : public asio::detail::reactor_op {
 public:
  using Received = std::tuple<boost::system::error_code, size_t>;

  explicit Reception(Socket& socket)
      : reactor_op({}, &Reception::try_receive, &Reception::complete), socket_(socket) {}
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  struct Initiation {
    Reception* reception;
    template <class Handler>
    void operator()(Handler&& handler) const {
      reception->start(std::forward<Handler>(handler));
    }
  };
  // To be awaited at once.
  struct Operation {
    Initiation initiation;
    template <class Token>
    auto operator()(Token&& token)
        -> decltype(asio::async_initiate<Token, void(Received)>(std::declval<Initiation>(),
                                                                token)) {
      return asio::async_initiate<Token, void(Received)>(Initiation(initiation), token);
    }
  };

  // From now on the bytes come through TLS. Borrows it.
  void decrypt_by(TlsStream* tls) { tls_ = tls; }
  // Fills `into` first, then `beyond`, which has room only where there is no TLS.
  Operation receive(std::span<std::byte> into, std::span<std::byte> beyond) {
    fill(into, beyond);
    tries_first_ = true;
    return {{this}};
  }
  // The same, but not before the socket has as much as its SO_RCVLOWAT asks for, or its end.
  Operation receive_once_ready(std::span<std::byte> into, std::span<std::byte> beyond) {
    fill(into, beyond);
    tries_first_ = false;
    return {{this}};
  }
  // What there is now, without a wait and without the scheduler, which would look at all sockets
  // before it resumed the coroutine. Nothing: there is none, and the next receive waits for an
  // event.
  std::optional<Received> receive_at_once(std::span<std::byte> into, std::span<std::byte> beyond);
  // Why a receive through TLS has brought nothing, and no error either.
  const Result<TlsStream::Step>& step() const { return step_; }

 private:
  using Handler = asio::detail::awaitable_async_op_handler<void(Received), Executor>;

  void fill(std::span<std::byte> into, std::span<std::byte> beyond) {
    parts_ = {iovec{into.data(), into.size()}, iovec{beyond.data(), beyond.size()}};
    ec_ = {};
    bytes_transferred_ = 0;
  }
  void start(Handler handler);
  static status try_receive(reactor_op* base);
  status try_decrypt();
  static void complete(void* owner, asio::detail::operation* base, const boost::system::error_code&,
                       size_t);

  Socket& socket_;
  TlsStream* tls_ = nullptr;
  Result<TlsStream::Step> step_{};
  std::array<iovec, 2> parts_{};
  bool tries_first_ = true;
  std::optional<Handler> handler_;
};

}  // namespace headrace
