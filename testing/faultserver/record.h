// What the server saw and did: a line per request, and counters.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "http.h"
#include "json.h"
#include "route.h"

namespace faultserver {

struct Entry {
  uint64_t n = 0;  // From 1.
  uint64_t connection = 0;
  uint32_t node = 0;
  std::string method, target;
  Kind kind = Kind::kOther;
  bool absolute_form = false, throttled = false;
  int64_t fault = -1;                           // The rule that fired.
  int status = 0;                               // 0: no answer was sent.
  uint64_t bytes_received = 0, bytes_sent = 0;  // Of bodies.
  Headers headers;                              // The interesting ones.
  double start_s = 0, end_s = -1;               // -1: still in progress.
  std::string_view end = "open";  // done, reset, cut, stalled, lost, client_closed, ...
};

// Thread: confined (the server's lock guards it).
class Record {
 public:
  explicit Record(size_t capacity) : capacity_(capacity) {}

  // Returns the request's number.
  uint64_t begin(Entry entry);
  struct Finish {
    int status = 0;
    uint64_t bytes_received = 0, bytes_sent = 0;
    double end_s = 0;
    std::string_view end;
  };
  void finish(uint64_t n, const Finish& result);
  uint64_t in_flight() const { return in_flight_; }

  void connection_opened(uint64_t id);
  // `end` is fin or rst (what the client did), or what the server did: closed, reset, refused.
  void connection_closed(uint64_t id, std::string_view end, uint64_t bytes_in, uint64_t bytes_out);
  void handshake_done(uint64_t id, bool resumed);
  // Bytes of a body that was answered before it came, and then read for nothing.
  void unread(uint32_t node, uint64_t bytes) { counts_of(node).bytes_unread += bytes; }
  void refused() { ++connections_["refused"]; }

  std::string log_json(uint64_t since, uint64_t limit) const;
  Json stats() const;
  void clear();

 private:
  struct Connection {
    uint64_t id = 0, requests = 0, bytes_in = 0, bytes_out = 0;
    bool tls_resumed = false;
    std::string_view end = "open";
  };
  Connection* find_connection(uint64_t id);

  size_t capacity_;
  std::deque<Entry> entries_;
  uint64_t next_n_ = 1, in_flight_ = 0, max_in_flight_ = 0, throttled_ = 0;
  uint64_t bytes_in_ = 0, bytes_out_ = 0, handshakes_ = 0, resumed_ = 0;
  struct NodeCounts {
    uint64_t requests = 0, bytes_received = 0, bytes_unread = 0, bytes_sent = 0;
  };
  NodeCounts& counts_of(uint32_t node);

  std::vector<NodeCounts> by_node_;
  std::array<uint64_t, kKindCount> by_kind_{};
  std::map<int, uint64_t> by_status_;
  std::map<std::string, uint64_t, std::less<>> by_end_, connections_;
  std::unordered_map<std::string, uint64_t> success_by_agent_, success_by_client_;
  uint64_t open_ = 0, opened_ = 0;
  std::deque<Connection> connection_log_;  // By rising id.
};

}  // namespace faultserver
