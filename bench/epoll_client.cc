// The least that a client has to do for the objects that it reads over HTTP, or over HTTPS: the
// yardstick of bench/groups/cpu.py. One thread, one epoll, no library but ISA-L's CRC32C and
// OpenSSL, or AWS-LC in its place. yardstick.h has its first arguments; its options:
//
//   tls            TLS; the handshakes are not in its times
//   pipeline=N     N requests are under way on each connection; each receive's answers are followed
//                  by as many requests, in one send
//   refill=K       only once K answers have come, so that one send has K requests
//   wake-at-end    without TLS, too, no event before all of an object has come
//   late-us=N      tells how long objects took, and the share of those that took N us or more
//
// `headrace-bench-epoll --tls-library` prints the name of the TLS library, which is the engine's,
// too.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yardstick.h"
#include "yardstick_tls.h"

namespace headrace::bench {
namespace {

constexpr size_t kInboxBytes = 4096;  // for each request under way

struct Connection {
  Socket socket;
  std::vector<char> inbox;  // what has come and is of no body, or of one whose head is not known
  size_t inbox_bytes = 0;
  Body body;
  std::vector<Asked> asked;  // a ring: answers come in the order of the requests
  size_t first_asked = 0, free_count = 0;
};

class Client {
 public:
  Client(const Arguments& arguments, Objects& objects)
      : objects_(objects),
        pipeline_(arguments.number("pipeline", 1)),
        refill_(arguments.number("refill", 1)),
        wakes_at_end_(arguments.has("tls") || arguments.has("wake-at-end")),
        epoll_(::epoll_create1(0)) {
    for (const Wanted& wanted : arguments.wanted) requests_.push_back(request_of(wanted));
    if (arguments.has("tls")) tls_.emplace();
    connections_.resize(arguments.connection_count);
    for (Connection& connection : connections_) {
      connection.inbox.resize(kInboxBytes * pipeline_);
      connection.asked.resize(pipeline_);
      connection.socket.descriptor = connect_to(arguments.port);
      if (tls_) tls_->connect(connection.socket);
      epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.ptr = &connection}};
      ::epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.socket.descriptor, &event);
      connection.free_count = pipeline_;
      ask(connection);
    }
  }

  void run(double seconds) {
    for_each_event(epoll_, seconds,
                   [this](void* connection) { take(*static_cast<Connection*>(connection)); });
  }

 private:
  // Asks for as many objects as there are free places, with one send.
  void ask(Connection& connection) {
    text_.clear();
    for (size_t& left = connection.free_count; left > 0; --left) {
      const size_t index = objects_.next();
      const size_t place = (connection.first_asked + pipeline_ - left) % pipeline_;
      connection.asked[place] = objects_.ask(index);
      text_ += requests_[index];
    }
    send(connection, text_);
  }

  void send(Connection& connection, std::string_view text) {
    ssize_t sent = 0;
    if (tls_) {
      sent = SSL_write(connection.socket.ssl, text.data(), static_cast<int>(text.size()));
    } else {
      ++system_calls;
      sent = ::send(connection.socket.descriptor, text.data(), text.size(),
                    MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (sent != static_cast<ssize_t>(text.size())) die("send");
  }

  // What has come, until there is no more.
  void take(Connection& connection) {
    Socket& socket = connection.socket;
    socket.empty = false;
    while (true) {
      const size_t got = receive(connection);
      if (got == 0) break;
      follow(connection);
      if (connection.free_count >= refill_) ask(connection);
      // OpenSSL may hold more than the socket.
      if (!tls_ && socket.empty) break;
    }
    const Body& body = connection.body;
    if (wakes_at_end_) socket.wake_at(body.bytes == nullptr ? 1 : body.left_bytes());
  }

  size_t receive(Connection& connection) {
    Body& body = connection.body;
    const size_t left = body.bytes == nullptr ? 0 : body.left_bytes();
    char* const into = connection.inbox.data() + connection.inbox_bytes;
    const size_t room = connection.inbox.size() - connection.inbox_bytes;
    if (tls_ && left > 0) {
      const size_t got = Tls::read(connection.socket, body.rest(), left);
      body.add(got);
      return got;
    }
    if (tls_) {
      const size_t got = Tls::read(connection.socket, into, room);
      connection.inbox_bytes += got;
      return got;
    }
    ssize_t got = 0;
    ++system_calls;
    if (left == 0) {
      got = ::recv(connection.socket.descriptor, into, room, MSG_DONTWAIT);
    } else {
      // A little more than is to come: less than asked for means that the socket is empty.
      std::array<iovec, 2> parts = {iovec{body.rest(), left}, iovec{into, room}};
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = parts.size();
      got = ::recvmsg(connection.socket.descriptor, &message, MSG_DONTWAIT);
    }
    connection.socket.empty = got < static_cast<ssize_t>(left + room);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got <= 0) die("recv");
    const size_t of_body = std::min(left, static_cast<size_t>(got));
    if (of_body > 0) body.add(of_body);
    connection.inbox_bytes += static_cast<size_t>(got) - of_body;
    return static_cast<size_t>(got);
  }

  // Ends the objects that are whole, also those in the inbox.
  void follow(Connection& connection) {
    Body& body = connection.body;
    std::string_view text(connection.inbox.data(), connection.inbox_bytes);
    while (true) {
      if (body.is_whole()) {
        objects_.end(body, connection.asked[connection.first_asked]);
        connection.first_asked = (connection.first_asked + 1) % pipeline_;
        ++connection.free_count;
      }
      if (text.empty() || body.bytes != nullptr) break;
      const std::optional<Head> head = parse_head(text);
      if (!head) break;
      text.remove_prefix(head->head_bytes);
      body.begin(head->body_bytes);
      text.remove_prefix(body.copy(text));
    }
    if (!text.empty()) std::memmove(connection.inbox.data(), text.data(), text.size());
    connection.inbox_bytes = text.size();
  }

  Objects& objects_;
  const size_t pipeline_, refill_;
  const bool wakes_at_end_;
  const int epoll_;
  std::vector<std::string> requests_;
  std::string text_;
  std::optional<Tls> tls_;
  std::vector<Connection> connections_;
};

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  using namespace headrace::bench;
  if (argc == 2 && std::string_view(argv[1]) == "--tls-library") {
    std::puts(OpenSSL_version(OPENSSL_VERSION));
    return 0;
  }
  const Arguments arguments =
      parse_arguments(argc, argv, {"tls", "pipeline=", "refill=", "wake-at-end", "late-us="});
  Objects objects(arguments.wanted, arguments.kept_count, arguments.number("late-us", 0) > 0);
  Client client(arguments, objects);
  measure(arguments, objects, client);
  return 0;
}
