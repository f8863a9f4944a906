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

// Everything here runs on an io_context. Saying so in the types, instead of using any_io_executor,
// saves each suspension a few type-erased copies.
using Executor = asio::io_context::executor_type;
template <class T>
using awaitable = asio::awaitable<T, Executor>;  // NOLINT(readability-identifier-naming): Asio's
using Socket = asio::basic_stream_socket<asio::ip::tcp, Executor>;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>, Executor>;

// Errors come back as values: `auto [error, n] = co_await socket.async_receive(buffer, kAwait)`.
inline constexpr auto kAwait = asio::as_tuple(asio::use_awaitable_t<Executor>());

// The next receive waits for an event instead of trying first: for a socket that the last receive
// has emptied. Bytes that arrive between the two are an event.
void expect_nothing(Socket& socket);

}  // namespace headrace
