// What epoll_client.cc does, by HTTP/2 over TLS 1.3: the yardstick that says what several streams
// on one connection would bring. One thread, one epoll, nghttp2 for the frames, OpenSSL or AWS-LC
// for TLS. yardstick.h has its first arguments; its options:
//
//   streams=N      N requests are under way on each connection (1)
//   late-us=N      tells how long objects took, and the share of those that took N us or more
//
// `headrace-bench-h2 --library` prints the name of the library that makes frames.
//
// The windows are so large that the server never waits for one. All frames that a turn has to send
// go out in one record where they fit.
#include <nghttp2/nghttp2.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "yardstick.h"
#include "yardstick_tls.h"

namespace headrace::bench {
namespace {

constexpr size_t kInboxBytes = size_t{64} << 10;
constexpr uint32_t kStreamWindowBytes = uint32_t{16} << 20;
constexpr int32_t kWindowBytes = int32_t{1} << 30;
constexpr std::string_view kProtocol = "\x02h2";

struct Stream {
  Body body;
  Asked asked;
};

struct Connection {
  Socket socket;
  nghttp2_session* session = nullptr;
  std::vector<Stream> streams;
  std::vector<Stream*> free_streams;
  Objects* objects = nullptr;
};

nghttp2_nv field(std::string_view name, std::string_view value) {
  // nghttp2 changes neither.
  const auto bytes = [](std::string_view text) {
    return const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
}

// What nghttp2 calls.
nghttp2_session_callbacks* make_callbacks() {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_session_callbacks_new(&callbacks);
  nghttp2_session_callbacks_set_on_header_callback(
      callbacks, [](nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name,
                    size_t name_size, const uint8_t* value, size_t, uint8_t, void*) {
        const std::string_view field_name(reinterpret_cast<const char*>(name), name_size);
        const auto* const text = reinterpret_cast<const char*>(value);  // ends with a zero
        if (field_name == ":status" && std::string_view(text) != "200") {
          fail("the answer is not 200");
        }
        if (field_name == "content-length") {
          auto* const stream = static_cast<Stream*>(
              nghttp2_session_get_stream_user_data(session, frame->hd.stream_id));
          stream->body.begin(std::strtoull(text, nullptr, 10));
        }
        return 0;
      });
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
      callbacks,
      [](nghttp2_session* session, uint8_t, int32_t id, const uint8_t* bytes, size_t size, void*) {
        auto* const stream =
            static_cast<Stream*>(nghttp2_session_get_stream_user_data(session, id));
        if (stream->body.bytes == nullptr) fail("no content-length");
        const std::string_view came(reinterpret_cast<const char*>(bytes), size);
        if (stream->body.copy(came) != size) fail("a body is too long");
        return 0;
      });
  nghttp2_session_callbacks_set_on_stream_close_callback(
      callbacks, [](nghttp2_session* session, int32_t id, uint32_t error, void* of) {
        auto* const connection = static_cast<Connection*>(of);
        auto* const stream =
            static_cast<Stream*>(nghttp2_session_get_stream_user_data(session, id));
        if (error != 0 || !stream->body.is_whole()) fail("a stream broke");
        connection->objects->end(stream->body, stream->asked);
        connection->free_streams.push_back(stream);
        return 0;
      });
  return callbacks;
}

class Client {
 public:
  Client(const Arguments& arguments, Objects& objects)
      : wanted_(arguments.wanted),
        objects_(objects),
        epoll_(::epoll_create1(0)),
        tls_(kProtocol),
        callbacks_(make_callbacks()),
        inbox_(kInboxBytes),
        connections_(arguments.connection_count) {
    for (Connection& connection : connections_) {
      connection.objects = &objects;
      connection.streams.resize(arguments.number("streams", 1));
      for (Stream& stream : connection.streams) connection.free_streams.push_back(&stream);
      connection.socket.descriptor = connect_to(arguments.port);
      tls_.connect(connection.socket);
      begin(connection);
      ask(connection);
      epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.ptr = &connection}};
      ::epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.socket.descriptor, &event);
    }
  }

  void run(double seconds) {
    for_each_event(epoll_, seconds,
                   [this](void* connection) { take(*static_cast<Connection*>(connection)); });
  }

 private:
  void begin(Connection& connection) {
    const unsigned char* protocol = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(connection.socket.ssl, &protocol, &size);
    if (size != kProtocol.size() - 1) fail("the server speaks no HTTP/2");
    nghttp2_session_client_new(&connection.session, callbacks_, &connection);
    const std::array<nghttp2_settings_entry, 2> settings = {
        {{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
         {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindowBytes}}};
    nghttp2_submit_settings(connection.session, NGHTTP2_FLAG_NONE, settings.data(),
                            settings.size());
    nghttp2_session_set_local_window_size(connection.session, NGHTTP2_FLAG_NONE, 0, kWindowBytes);
  }

  // Asks for an object on each free stream, and sends what there is to send.
  void ask(Connection& connection) {
    for (Stream* stream : connection.free_streams) {
      const size_t index = objects_.next();
      stream->asked = objects_.ask(index);
      const std::array<nghttp2_nv, 4> fields = {field(":method", "GET"), field(":scheme", "https"),
                                                field(":authority", "127.0.0.1"),
                                                field(":path", wanted_[index].path)};
      if (nghttp2_submit_request(connection.session, nullptr, fields.data(), fields.size(), nullptr,
                                 stream) < 0) {
        fail("nghttp2_submit_request");
      }
    }
    connection.free_streams.clear();
    text_.clear();
    const uint8_t* bytes = nullptr;
    for (ssize_t size = 0; (size = nghttp2_session_mem_send(connection.session, &bytes)) > 0;) {
      text_.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
    }
    if (text_.empty()) return;
    const auto size = static_cast<int>(text_.size());
    if (SSL_write(connection.socket.ssl, text_.data(), size) != size) fail("SSL_write");
  }

  // What has come, until there is no more.
  void take(Connection& connection) {
    connection.socket.empty = false;
    while (const size_t got = Tls::read(connection.socket, inbox_.data(), inbox_.size())) {
      if (nghttp2_session_mem_recv(connection.session, inbox_.data(), got) !=
          static_cast<ssize_t>(got)) {
        fail("nghttp2_session_mem_recv");
      }
    }
    ask(connection);
    // No object can end before as much as the nearest one lacks has come; a head may come at once.
    size_t least = std::numeric_limits<size_t>::max();
    for (const Stream& stream : connection.streams) {
      least = std::min(least, stream.body.bytes == nullptr ? 1 : stream.body.left_bytes());
    }
    connection.socket.wake_at(std::max<size_t>(1, least));
  }

  const std::vector<Wanted>& wanted_;
  Objects& objects_;
  const int epoll_;
  Tls tls_;
  nghttp2_session_callbacks* const callbacks_;
  std::vector<uint8_t> inbox_;
  std::string text_;
  std::vector<Connection> connections_;
};

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  using namespace headrace::bench;
  if (argc == 2 && std::string_view(argv[1]) == "--library") {
    std::printf("nghttp2 %s\n", nghttp2_version(0)->version_str);
    return 0;
  }
  const Arguments arguments = parse_arguments(argc, argv, {"streams=", "late-us="});
  Objects objects(arguments.wanted, arguments.kept_count, arguments.number("late-us", 0) > 0);
  Client client(arguments, objects);
  measure(arguments, objects, client);
  return 0;
}
