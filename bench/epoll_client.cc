// The least that a client has to do for the objects that it reads over HTTP, or over HTTPS: the
// yardstick of bench/groups/cpu.py. One thread, one epoll, no library but ISA-L's CRC32C and
// OpenSSL, or AWS-LC in its place.
//
//   headrace-bench-epoll PORT PATHS CONNECTIONS SECONDS KEPT [tls]
//   headrace-bench-epoll --tls-library
//
// asks 127.0.0.1:PORT for the paths that the file PATHS has, in turn and over again. Every object
// goes into memory of its own, is summed, and is kept until KEPT more have come. Prints JSON as
// bench/wrk.py does. With TLS it verifies no certificate; its handshakes are not in its times. The
// second form prints the name of the TLS library, which is the engine's, too.
#include <arpa/inet.h>
#include <isa-l/crc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr size_t kInboxBytes = 4096;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

struct Connection {
  int descriptor = -1;
  std::array<char, kInboxBytes> inbox;
  size_t inbox_bytes = 0;
  unsigned char* body = nullptr;  // null: the head is still to come
  size_t body_bytes = 0, received_bytes = 0;
  uint32_t crc = 0;
  bool empty = false;  // until the next event there is nothing to receive

  SSL* ssl = nullptr;
  bool waits = true;  // a receive of TLS: during the handshake
  // Where the present record ends.
  std::array<unsigned char, 5> header;
  size_t header_bytes = 0, record_bytes = 0, record_left_bytes = 0;
  int wake_at_bytes = 1;
};

// TLS as cheap as OpenSSL can have it: receives of 64 KiB, none of a socket that is empty, and no
// event before all of an object has come.
class Tls {
 public:
  Tls()
      : context_(SSL_CTX_new(TLS_client_method())),
        method_(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "")) {
    SSL_CTX_set_read_ahead(context_, 1);
    SSL_CTX_set_default_read_buffer_len(context_, 64 * 1024);
    BIO_meth_set_write(method_, [](BIO* bio, const char* bytes, int size) {
      return static_cast<int>(
          ::send(of(bio).descriptor, bytes, static_cast<size_t>(size), MSG_NOSIGNAL));
    });
    BIO_meth_set_read(method_, &receive);
    BIO_meth_set_ctrl(method_, [](BIO*, int command, long, void*) -> long {
      return command == BIO_CTRL_FLUSH ? 1 : 0;
    });
  }

  void connect(Connection& connection) {
    BIO* const bio = BIO_new(method_);
    BIO_set_data(bio, &connection);
    BIO_set_init(bio, 1);
    connection.ssl = SSL_new(context_);
    SSL_set_bio(connection.ssl, bio, bio);
    if (SSL_connect(connection.ssl) != 1) die("TLS handshake");
    connection.waits = false;
  }

  static size_t read(Connection& connection, void* into, size_t room) {
    size_t got = 0;
    if (SSL_read_ex(connection.ssl, into, room, &got) == 1) return got;
    if (SSL_get_error(connection.ssl, 0) != SSL_ERROR_WANT_READ) die("SSL_read");
    connection.empty = true;
    return 0;
  }

  // The next event is to come when the rest of the body, or anything if there is none, has come.
  static void wake_at_end(Connection& connection) {
    size_t missing = 1;
    if (connection.body != nullptr) {
      const size_t left = connection.body_bytes - connection.received_bytes;
      const size_t held = connection.record_left_bytes > 0 ? connection.record_bytes : 0;
      missing = std::max<size_t>(1, connection.record_left_bytes + left - std::min(left, held));
    }
    const auto bytes = static_cast<int>(missing);
    if (std::exchange(connection.wake_at_bytes, bytes) == bytes) return;
    ::setsockopt(connection.descriptor, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
  }

 private:
  static Connection& of(BIO* bio) { return *static_cast<Connection*>(BIO_get_data(bio)); }

  static int receive(BIO* bio, char* into, int room) {
    Connection& connection = of(bio);
    BIO_clear_retry_flags(bio);
    ssize_t got = -1;
    if (!connection.empty) {
      got = ::recv(connection.descriptor, into, static_cast<size_t>(room),
                   connection.waits ? 0 : MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) die("recv");
      connection.empty = got < room && !connection.waits;
    }
    if (got < 0) {
      BIO_set_retry_read(bio);
      return -1;
    }
    follow(connection, std::string_view(into, static_cast<size_t>(got)));
    return static_cast<int>(got);
  }

  static void follow(Connection& connection, std::string_view came) {
    while (!came.empty()) {
      if (connection.record_left_bytes == 0) {
        std::array<unsigned char, 5>& header = connection.header;
        header[connection.header_bytes++] = static_cast<unsigned char>(came.front());
        came.remove_prefix(1);
        if (connection.header_bytes < header.size()) continue;
        connection.header_bytes = 0;
        connection.record_bytes = connection.record_left_bytes = size_t{header[3]} << 8 | header[4];
      }
      const size_t count = std::min(came.size(), connection.record_left_bytes);
      connection.record_left_bytes -= count;
      came.remove_prefix(count);
    }
  }

  SSL_CTX* const context_;
  BIO_METHOD* const method_;
};

class Client {
 public:
  Client(std::vector<std::string> requests, size_t kept, bool tls)
      : requests_(std::move(requests)), epoll_(::epoll_create1(0)), kept_(kept) {
    if (tls) tls_.emplace();
  }

  void connect(uint16_t port, size_t connection_count) {
    connections_.resize(connection_count);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (Connection& connection : connections_) {
      connection.descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
      if (::connect(connection.descriptor, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
        die("connect");
      }
      const int on = 1;
      ::setsockopt(connection.descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (tls_) tls_->connect(connection);
      epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.ptr = &connection}};
      ::epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.descriptor, &event);
      ask(connection);
    }
  }

  void run(double seconds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    std::array<epoll_event, 128> events;
    while (std::chrono::steady_clock::now() < until) {
      const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 1000);
      for (int i = 0; i < count; ++i) {
        take(*static_cast<Connection*>(events[static_cast<size_t>(i)].data.ptr));
      }
    }
  }

  uint64_t objects = 0, bytes = 0;
  uint32_t sums = 0;  // so that no sum is left out

 private:
  void ask(Connection& connection) {
    const std::string& request = requests_[next_++ % requests_.size()];
    const ssize_t sent =
        tls_ ? SSL_write(connection.ssl, request.data(), static_cast<int>(request.size()))
             : ::send(connection.descriptor, request.data(), request.size(),
                      MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(request.size())) die("send");
  }

  // What has come, until there is no more.
  void take(Connection& connection) {
    connection.empty = false;
    while (true) {
      const size_t got = receive(connection);
      if (got > 0 && connection.body == nullptr) {
        connection.inbox_bytes += got;
        if (!begin_body(connection)) continue;
      } else {
        add(connection, got);
      }
      if (connection.body != nullptr && connection.received_bytes == connection.body_bytes) {
        end(connection);
      }
      // OpenSSL may hold more than the socket.
      if (tls_ ? got == 0 : connection.empty) break;
    }
    if (tls_) Tls::wake_at_end(connection);
  }

  size_t receive(Connection& connection) {
    size_t asked = 0;
    ssize_t got = 0;
    if (connection.body == nullptr) {
      char* const into = connection.inbox.data() + connection.inbox_bytes;
      asked = connection.inbox.size() - connection.inbox_bytes;
      if (tls_) return Tls::read(connection, into, asked);
      got = ::recv(connection.descriptor, into, asked, MSG_DONTWAIT);
    } else {
      unsigned char* const into = connection.body + connection.received_bytes;
      const size_t left = connection.body_bytes - connection.received_bytes;
      if (tls_) return Tls::read(connection, into, left);
      // A little more than is to come: less than asked for means that the socket is empty.
      std::array<iovec, 2> parts = {iovec{into, left},
                                    iovec{connection.inbox.data(), connection.inbox.size()}};
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = parts.size();
      asked = left + connection.inbox.size();
      got = ::recvmsg(connection.descriptor, &message, MSG_DONTWAIT);
    }
    connection.empty = got < static_cast<ssize_t>(asked);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got <= 0) die("recv");
    return static_cast<size_t>(got);
  }

  static bool begin_body(Connection& connection) {
    const std::string_view text(connection.inbox.data(), connection.inbox_bytes);
    const size_t end = text.find("\r\n\r\n");
    if (end == std::string_view::npos) return false;
    if (!text.starts_with("HTTP/1.1 200")) die("the answer is not 200");
    constexpr std::string_view kLength = "\r\nContent-Length: ";
    const size_t at = text.find(kLength);
    if (at == std::string_view::npos) die("no Content-Length");
    connection.body_bytes = std::strtoull(text.data() + at + kLength.size(), nullptr, 10);
    connection.body = static_cast<unsigned char*>(std::malloc(connection.body_bytes));
    connection.received_bytes = 0;
    connection.crc = 0xffffffff;
    const std::string_view came = text.substr(end + 4);
    std::memcpy(connection.body, came.data(), came.size());
    add(connection, came.size());
    connection.inbox_bytes = 0;
    return true;
  }

  static void add(Connection& connection, size_t count) {
    if (count == 0) return;
    connection.crc = crc32_iscsi(connection.body + connection.received_bytes,
                                 static_cast<int>(count), connection.crc);
    connection.received_bytes += count;
  }

  void end(Connection& connection) {
    ++objects;
    bytes += connection.body_bytes;
    sums ^= connection.crc;
    unsigned char*& place = kept_[objects % kept_.size()];
    std::free(place);
    place = std::exchange(connection.body, nullptr);
    ask(connection);
  }

  const std::vector<std::string> requests_;
  size_t next_ = 0;
  const int epoll_;
  std::optional<Tls> tls_;
  std::vector<Connection> connections_;
  std::vector<unsigned char*> kept_;
};

double cpu_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--tls-library") {
    std::puts(OpenSSL_version(OPENSSL_VERSION));
    return 0;
  }
  const bool tls = argc == 7 && std::string_view(argv[6]) == "tls";
  if (argc != 6 && !tls) {
    std::fprintf(stderr, "usage: %s PORT PATHS CONNECTIONS SECONDS KEPT [tls]\n", argv[0]);
    return 2;
  }
  std::vector<std::string> requests;
  std::ifstream file(argv[2]);
  for (std::string path; std::getline(file, path);) {
    requests.push_back("GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  }
  const auto port = static_cast<uint16_t>(std::atoi(argv[1]));
  const auto connections = static_cast<size_t>(std::atoi(argv[3]));
  const double seconds = std::atof(argv[4]);
  Client client(std::move(requests), static_cast<size_t>(std::atoi(argv[5])), tls);
  client.connect(port, connections);
  client.run(seconds / 4);  // warms up
  const uint64_t objects = client.objects, bytes = client.bytes;
  const double cpu = cpu_s();
  const auto began = std::chrono::steady_clock::now();
  client.run(seconds);
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf(
      "{\"objects\": %llu, \"bytes\": %llu, \"wall_s\": %f, \"cpu_s\": %f, \"sums\": %u, "
      "\"connections\": %zu}\n",
      static_cast<unsigned long long>(client.objects - objects),
      static_cast<unsigned long long>(client.bytes - bytes), wall, cpu_s() - cpu, client.sums,
      connections);
  return 0;
}
