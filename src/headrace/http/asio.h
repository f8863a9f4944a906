// The one place that says how this project uses Asio.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace headrace {

namespace asio = boost::asio;
using asio::awaitable;

// Errors come back as values: `auto [error, n] = co_await socket.async_receive(buffer, kAwait)`.
inline constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

}  // namespace headrace
