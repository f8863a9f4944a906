// HTTP/1.1 messages: bytes in, values out, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "body.h"

namespace faultserver {

using Headers = std::vector<std::pair<std::string, std::string>>;

// The value of the first header called `name` (any case); empty when there is none.
std::string_view find_header(const Headers& headers, std::string_view name);
bool has_header(const Headers& headers, std::string_view name);

// The answer of `parse_head`.
enum class Parsed { kIncomplete, kDone, kBad };

struct Request {
  std::string method;
  std::string target;  // As it came.
  bool absolute_form = false;
  bool at_proxy = true;  // Whether the node is a proxy.
  std::string path;      // Still percent-encoded.
  std::string query;     // Still percent-encoded.
  int minor_version = 1;
  uint32_t node = 0;  // Which of the server's nodes it came to.
  std::string peer;   // Who sent it, as "127.0.0.1:port".
  Headers headers;
  std::string body;

  std::string_view header(std::string_view name) const { return find_header(headers, name); }
  bool has_parameter(std::string_view name) const;
  // Decoded; empty when missing.
  std::string parameter(std::string_view name) const;
  std::vector<std::string> parameters(std::string_view name) const;
  bool wants_close() const;
};

// Reads the head at the start of `bytes`; `head_bytes` becomes its length.
Parsed parse_head(std::string_view bytes, Request& request, size_t& head_bytes);

// Takes a chunked body apart.
class ChunkedDecoder {
 public:
  // Appends to `out`; returns how many bytes of `bytes` were used. Check `done` and `bad` after.
  size_t feed(std::string_view bytes, std::string& out);
  bool done() const { return state_ == State::kDone; }
  bool bad() const { return state_ == State::kBad; }

 private:
  enum class State { kSize, kData, kDataEnd, kTrailer, kDone, kBad };
  State state_ = State::kSize;
  std::string line_;
  uint64_t left_bytes_ = 0;
};

// One range of `Range:`, half-open, within an object of `size_bytes`.
struct Range {
  enum class Kind { kNone, kSatisfiable, kUnsatisfiable } kind = Kind::kNone;
  uint64_t begin = 0, end = 0;
};
// Anything that is not one well-formed range of bytes is no range at all, as the standard asks.
Range parse_range(std::string_view header, uint64_t size_bytes);

struct Response {
  int status = 200;
  Headers headers{};
  Body body{};
  bool chunked = false;
  bool head_only = false;  // An answer to HEAD: the length is told, the body is not sent.
  bool without_length = false;
  bool stalls = false;  // After the body that there is, silence.
  bool without_reason = false;
  // How the connection ends, without a word: not at all, after the answer, or as soon as the head
  // of the next request has come.
  enum class Ends : uint8_t { kNot, kCloses, kResets, kResetsNext };
  Ends ends = Ends::kNot;
  double idle_close_s = 0;  // The connection, when so long nothing is asked; 0: the server's time.

  void set(std::string_view name, std::string value);
  void remove(std::string_view name);
};

Response json_response(int status, std::string body);

std::string_view reason_phrase(int status);
// The status line and headers; `content_length` is left out for chunked answers and 204, 304.
std::string serialise_head(const Response& response, uint64_t content_length);
std::string chunk_encoded(const Body& body);

}  // namespace faultserver
