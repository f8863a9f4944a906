// TLS as cheap as OpenSSL can have it: receives of 64 KiB, none of a socket that is empty, and no
// event before all of an object has come. It verifies no certificate.
#pragma once

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <string_view>
#include <utility>

#include "yardstick.h"

namespace headrace::bench {

// A socket, with TLS or without.
struct Socket {
  int descriptor = -1;
  bool empty = false;  // until the next event there is nothing to receive
  int wake_at_bytes = 1;

  SSL* ssl = nullptr;
  bool waits = true;  // a receive of TLS: during the handshake
  // Where the present record ends.
  std::array<unsigned char, 5> header;
  size_t header_bytes = 0, record_bytes = 0, record_left_bytes = 0;

  // The next event is to come when so many bytes, or with TLS the records that have them, have
  // come.
  void wake_at(size_t plain_bytes) {
    size_t missing = plain_bytes;
    if (ssl != nullptr && plain_bytes > 1) {
      const size_t held = record_left_bytes > 0 ? record_bytes : 0;
      missing = std::max<size_t>(1, record_left_bytes + plain_bytes - std::min(plain_bytes, held));
    }
    const auto bytes = static_cast<int>(missing);
    if (std::exchange(wake_at_bytes, bytes) == bytes) return;
    ++system_calls;
    ::setsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
  }
};

class Tls {
 public:
  // `protocol`: what ALPN asks for, in its own form; empty: nothing.
  explicit Tls(std::string_view protocol = {})
      : context_(SSL_CTX_new(TLS_client_method())),
        method_(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "")) {
    SSL_CTX_set_read_ahead(context_, 1);
    SSL_CTX_set_default_read_buffer_len(context_, 64 * 1024);
    SSL_CTX_set_alpn_protos(context_, reinterpret_cast<const unsigned char*>(protocol.data()),
                            static_cast<unsigned>(protocol.size()));
    BIO_meth_set_write(method_, [](BIO* bio, const char* bytes, int size) {
      ++system_calls;
      return static_cast<int>(
          ::send(of(bio).descriptor, bytes, static_cast<size_t>(size), MSG_NOSIGNAL));
    });
    BIO_meth_set_read(method_, &receive);
    BIO_meth_set_ctrl(method_, [](BIO*, int command, long, void*) -> long {
      return command == BIO_CTRL_FLUSH ? 1 : 0;
    });
  }

  void connect(Socket& socket) {
    BIO* const bio = BIO_new(method_);
    BIO_set_data(bio, &socket);
    BIO_set_init(bio, 1);
    socket.ssl = SSL_new(context_);
    SSL_set_bio(socket.ssl, bio, bio);
    if (SSL_connect(socket.ssl) != 1) fail("TLS handshake");
    socket.waits = false;
  }

  // 0: the socket is empty.
  static size_t read(Socket& socket, void* into, size_t room) {
    size_t got = 0;
    if (SSL_read_ex(socket.ssl, into, room, &got) == 1) return got;
    if (SSL_get_error(socket.ssl, 0) != SSL_ERROR_WANT_READ) fail("SSL_read");
    socket.empty = true;
    return 0;
  }

 private:
  static Socket& of(BIO* bio) { return *static_cast<Socket*>(BIO_get_data(bio)); }

  static int receive(BIO* bio, char* into, int room) {
    Socket& socket = of(bio);
    BIO_clear_retry_flags(bio);
    ssize_t got = -1;
    if (!socket.empty) {
      ++system_calls;
      got = ::recv(socket.descriptor, into, static_cast<size_t>(room),
                   socket.waits ? 0 : MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) die("recv");
      socket.empty = got < room && !socket.waits;
    }
    if (got < 0) {
      BIO_set_retry_read(bio);
      return -1;
    }
    follow(socket, std::string_view(into, static_cast<size_t>(got)));
    return static_cast<int>(got);
  }

  static void follow(Socket& socket, std::string_view came) {
    while (!came.empty()) {
      if (socket.record_left_bytes == 0) {
        std::array<unsigned char, 5>& header = socket.header;
        header[socket.header_bytes++] = static_cast<unsigned char>(came.front());
        came.remove_prefix(1);
        if (socket.header_bytes < header.size()) continue;
        socket.header_bytes = 0;
        socket.record_bytes = socket.record_left_bytes = size_t{header[3]} << 8 | header[4];
      }
      const size_t count = std::min(came.size(), socket.record_left_bytes);
      socket.record_left_bytes -= count;
      came.remove_prefix(count);
    }
  }

  SSL_CTX* const context_;
  BIO_METHOD* const method_;
};

}  // namespace headrace::bench
