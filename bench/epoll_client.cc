// The least that a client has to do for the objects that it reads over HTTP: the yardstick of
// bench/groups/cpu.py. One thread, one epoll, no library but ISA-L's CRC32C.
//
//   headrace-bench-epoll PORT PATHS CONNECTIONS SECONDS KEPT
//
// asks 127.0.0.1:PORT for the paths that the file PATHS has, in turn and over again. Every object
// goes into memory of its own, is summed, and is kept until KEPT more have come. Prints JSON as
// bench/wrk.py does.
#include <arpa/inet.h>
#include <isa-l/crc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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
};

class Client {
 public:
  Client(std::vector<std::string> requests, size_t kept) : requests_(std::move(requests)) {
    kept_.resize(kept);
  }

  void run(uint16_t port, size_t connection_count, double seconds) {
    const int epoll = ::epoll_create1(0);
    std::vector<Connection> connections(connection_count);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (Connection& connection : connections) {
      connection.descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
      if (::connect(connection.descriptor, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
        die("connect");
      }
      const int on = 1;
      ::setsockopt(connection.descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.ptr = &connection}};
      ::epoll_ctl(epoll, EPOLL_CTL_ADD, connection.descriptor, &event);
      ask(connection);
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    std::array<epoll_event, 128> events;
    while (std::chrono::steady_clock::now() < until) {
      const int count = ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), 1000);
      for (int i = 0; i < count; ++i) {
        take(*static_cast<Connection*>(events[static_cast<size_t>(i)].data.ptr));
      }
    }
    for (const Connection& connection : connections) {
      ::close(connection.descriptor);
      std::free(connection.body);
    }
    ::close(epoll);
  }

  uint64_t objects = 0, bytes = 0;
  uint32_t sums = 0;  // so that no sum is left out

 private:
  void ask(Connection& connection) {
    const std::string& request = requests_[next_++ % requests_.size()];
    const ssize_t sent =
        ::send(connection.descriptor, request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(request.size())) die("send");
  }

  // What has come, until there is no more.
  void take(Connection& connection) {
    while (true) {
      size_t asked = 0;
      ssize_t got = 0;
      if (connection.body == nullptr) {
        asked = connection.inbox.size() - connection.inbox_bytes;
        got = ::recv(connection.descriptor, connection.inbox.data() + connection.inbox_bytes, asked,
                     MSG_DONTWAIT);
      } else {
        // A little more than is to come: less than asked for means that the socket is empty.
        const size_t left = connection.body_bytes - connection.received_bytes;
        std::array<iovec, 2> parts = {iovec{connection.body + connection.received_bytes, left},
                                      iovec{connection.inbox.data(), connection.inbox.size()}};
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = parts.size();
        asked = left + connection.inbox.size();
        got = ::recvmsg(connection.descriptor, &message, MSG_DONTWAIT);
      }
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) die("recv");
      if (connection.body == nullptr) {
        connection.inbox_bytes += static_cast<size_t>(got);
        if (!begin_body(connection)) continue;
      } else {
        add(connection, static_cast<size_t>(got));
      }
      if (connection.received_bytes == connection.body_bytes) end(connection);
      if (static_cast<size_t>(got) < asked) return;
    }
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
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s PORT PATHS CONNECTIONS SECONDS KEPT\n", argv[0]);
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
  Client client(std::move(requests), static_cast<size_t>(std::atoi(argv[5])));
  client.run(port, connections, seconds / 4);  // warms up
  const uint64_t objects = client.objects, bytes = client.bytes;
  const double cpu = cpu_s();
  const auto began = std::chrono::steady_clock::now();
  client.run(port, connections, seconds);
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
