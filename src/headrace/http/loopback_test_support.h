// Sockets of this machine alone.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace headrace {

// Binds a socket to some port of loopback, and returns its address.
inline sockaddr_in bind_to_loopback(int socket) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(socket, at, size), 0);
  EXPECT_EQ(::getsockname(socket, at, &size), 0);
  return address;
}

}  // namespace headrace
