#include "headrace/http/reception.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "headrace/http/asio_internals.h"

namespace headrace {

void Reception::start(Handler handler) {
  handler_.emplace(std::move(handler));
  auto& implementation =
      (socket_.*member_of(asio_internals::SocketImplementation())).get_implementation();
  auto& reactor = asio::use_service<asio_internals::Reactor>(socket_.get_executor().context());
  // Where nothing is tried first, the reactor arms the socket anew: what has come already is an
  // event. That it can be written to would be another, and nobody waits for that now.
  if (!tries_first_ && implementation.reactor_data_ != nullptr) {
    implementation.reactor_data_->*member_of(asio_internals::RegisteredEvents()) &=
        ~uint32_t{EPOLLOUT};
  }
  reactor.start_op(asio_internals::Reactor::read_op, implementation.socket_,
                   implementation.reactor_data_, this, /*is_continuation=*/true,
                   /*allow_speculative=*/tries_first_);
}

std::optional<Reception::Received> Reception::receive_at_once(std::span<std::byte> into,
                                                              std::span<std::byte> beyond) {
  if (!socket_.is_open()) return std::nullopt;
  fill(into, beyond);
  if (try_receive(this) == not_done) {
    expect_nothing(socket_);
    return std::nullopt;
  }
  return Received(ec_, bytes_transferred_);
}

Reception::status Reception::try_receive(reactor_op* base) {
  auto& self = *static_cast<Reception*>(base);
  if (self.tls_ != nullptr) return self.try_decrypt();
  auto& implementation =
      (self.socket_.*member_of(asio_internals::SocketImplementation())).get_implementation();
  msghdr message{};
  message.msg_iov = self.parts_.data();
  message.msg_iovlen = self.parts_[1].iov_len > 0 ? 2 : 1;
  while (true) {
    // Not by the function of libc, which makes each call a point where a thread can be cancelled.
    const long received = ::syscall(SYS_recvmsg, implementation.socket_, &message, MSG_DONTWAIT);
    if (received > 0) {
      self.bytes_transferred_ = static_cast<size_t>(received);
      // Even if the socket is empty now, its end may lie behind what came, and makes no event more.
      return done;
    }
    if (received == 0) {
      self.ec_ = asio::error::eof;
      return done;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return not_done;
    self.ec_ = boost::system::error_code(errno, boost::system::system_category());
    return done;
  }
}

Reception::status Reception::try_decrypt() {
  const std::span<std::byte> into(static_cast<std::byte*>(parts_[0].iov_base), parts_[0].iov_len);
  do {
    step_ = tls_->read(into.subspan(bytes_transferred_));
    if (step_) bytes_transferred_ += step_->count;
    // There may be more.
  } while (step_ && step_->count == TlsStream::kMostReadBytes && bytes_transferred_ < into.size() &&
           !tls_->drained());
  // Whatever has ended it after some bytes comes again on the next call.
  const bool is_over = bytes_transferred_ > 0 || !step_ || step_->end;
  // What waited for more bytes than came may have taken a part of a record out of the socket, which
  // then has less to wait for.
  return is_over || step_->need == TlsStream::Need::kWritable || !tries_first_ ? done : not_done;
}

void Reception::complete(void* owner, asio::detail::operation* base,
                         const boost::system::error_code&, size_t) {
  auto& self = *static_cast<Reception*>(base);
  Handler handler(std::move(*self.handler_));
  self.handler_.reset();
  if (owner == nullptr) return;  // the thread is no more: the coroutine goes with its handler
  handler(Received(self.ec_, self.bytes_transferred_));
}

}  // namespace headrace
