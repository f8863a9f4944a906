// The private members of Asio that we use.
#pragma once

#include <boost/asio/version.hpp>

#include "headrace/http/asio.h"

namespace headrace::asio_internals {

// With other versions: see whether the members below are what they were, then widen this.
static_assert(BOOST_ASIO_VERSION >= 102600 && BOOST_ASIO_VERSION <= 103800,
              "headrace uses private members of Boost.Asio, which were compared in 1.26 to 1.38");

// Explicit instantiation may name private members ([temp.spec.general]); each one defines a friend
// that returns the member pointer.
template <class Tag, auto Member>
struct Expose {
  friend constexpr auto member_of(Tag) { return Member; }
};
struct EpollDescriptor {
  friend constexpr auto member_of(EpollDescriptor);
};
struct TimerDescriptor {
  friend constexpr auto member_of(TimerDescriptor);
};
struct Interrupter {
  friend constexpr auto member_of(Interrupter);
};
struct SocketImplementation {
  friend constexpr auto member_of(SocketImplementation);
};
struct TriesAtOnce {
  friend constexpr auto member_of(TriesAtOnce);
};
struct RegisteredEvents {
  friend constexpr auto member_of(RegisteredEvents);
};
using Reactor = asio::detail::epoll_reactor;
template struct Expose<EpollDescriptor, &Reactor::epoll_fd_>;
template struct Expose<TimerDescriptor, &Reactor::timer_fd_>;
template struct Expose<Interrupter, &Reactor::interrupter_>;
template struct Expose<SocketImplementation, &asio::basic_socket<asio::ip::tcp, Executor>::impl_>;
template struct Expose<TriesAtOnce, &Reactor::descriptor_state::try_speculative_>;
template struct Expose<RegisteredEvents, &Reactor::descriptor_state::registered_events_>;

}  // namespace headrace::asio_internals
