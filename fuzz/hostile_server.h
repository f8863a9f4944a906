// A small storage service that lies as a script tells it: the other end of the real client.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace::fuzz {

// The fuzzer's input, read from its front. Behind its end there are zeros, which always mean: no
// more lies. So every operation comes to an end, and a short input is a short story.
class Script {
 public:
  explicit Script(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool exhausted() const { return bytes_.empty(); }
  uint8_t byte();
  uint16_t short_number();
  // Small, or at an edge where sums wrap around.
  uint64_t odd_number();
  std::string text();  // up to 255 bytes

 private:
  std::span<const uint8_t> bytes_;
};

// Knows of Google's JSON and XML API what the client uses, and answers rightly unless the script
// says otherwise: statuses, heads, ranges, lengths, chunks, sums and generations that are wrong,
// bodies that are cut or changed, early ends, silence, or bytes of the script's as they are. Sends
// neither byte 0 nor 0xEE: what a client hands out has them only where nothing was received.
// Thread: confined. Does its work only in serve().
class HostileServer {
 public:
  static constexpr char kNeverSent = '\xEE';

  HostileServer();
  ~HostileServer();
  HostileServer(const HostileServer&) = delete;
  HostileServer& operator=(const HostileServer&) = delete;

  // Another loopback address each time, so that no port is used up.
  std::string url();
  void begin();  // without objects
  // From now on the answers are as `script` says, which must outlive what is served.
  void begin_lies(Script& script) { script_ = &script; }
  void serve(std::chrono::milliseconds wait);
  void end();  // closes all connections

  struct Object {
    std::string bytes;
    uint64_t generation = 0;
  };
  void put(const std::string& name, std::string bytes);
  const std::map<std::string, Object>& objects() const { return objects_; }

 private:
  struct Connection {
    int descriptor = -1;
    std::string in, out;
    bool close_when_sent = false, silent = false;
  };
  struct Request {
    std::string method, target, path, body;
    std::map<std::string, std::string> query, headers;  // names of headers in small letters
  };
  struct Response {
    int status = 200;
    std::vector<std::pair<std::string, std::string>> headers = {};
    std::string body = {};
    bool is_media = false;
  };

  void accept_all();
  void receive(Connection& connection);
  void flush(Connection& connection);
  void close(Connection& connection, bool reset);
  bool take_request(Connection& connection, Request& request);
  void answer(Connection& connection, const Request& request);
  void send(Connection& connection, const Request& request, Response response, bool lie);
  void lie_about_media(const Request& request, Response& response);

  Response right_answer(const Request& request);
  Response media(const Object& object, const Request& request) const;
  Response json_api(const Request& request, std::string_view path);
  Response upload(const Request& request);
  Response xml_api(const Request& request);
  Response list(const Request& request) const;
  Response of(const std::string& name);  // its resource
  Response store(const std::string& name, std::string bytes);

  int listener_ = -1;
  uint16_t port_ = 0;
  uint32_t urls_given_ = 0;
  Script* script_ = nullptr;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<std::string, Object> objects_;
  uint64_t next_generation_ = 1;
  struct Session {
    std::string name, bytes;
  };
  std::map<std::string, Session> sessions_;                         // resumable, by path
  std::map<std::string, std::map<uint64_t, std::string>> uploads_;  // multipart, by name
};

}  // namespace headrace::fuzz
