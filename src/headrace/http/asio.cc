// Asio's non-template code, compiled once (BOOST_ASIO_SEPARATE_COMPILATION).
#include <boost/asio/impl/src.hpp>

#include "headrace/http/asio_internals.h"

namespace headrace {

void expect_nothing(Socket& socket) {
  auto& implementation =
      (socket.*member_of(asio_internals::SocketImplementation())).get_implementation();
  asio_internals::Reactor::descriptor_state* const state = implementation.reactor_data_;
  if (state == nullptr) return;
  (state->*member_of(asio_internals::TriesAtOnce()))[asio_internals::Reactor::read_op] = false;
}

}  // namespace headrace
