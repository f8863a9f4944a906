// One HTTP request, and the sink of its response.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/ascii.h"
#include "headrace/base/result.h"
#include "headrace/format/http_head.h"

namespace headrace {

// Bytes of a body that are not in memory, but are read while it is sent.
// Thread: any.
class BodySource {
 public:
  // What there is from `offset_bytes` on, as much as suits the source: never empty, and valid until
  // the next read. Errors: those of the source; the exchange ends with them.
  using Done = std::move_only_function<void(Result<std::span<const std::byte>>)>;
  virtual ~BodySource() = default;
  virtual uint64_t size_bytes() const = 0;
  // One at a time, in order, from the beginning. `done` runs once, on any thread.
  virtual void read(uint64_t offset_bytes, Done done) = 0;
};

// A request in the form in which it is sent. Reused from attempt to attempt: clear() keeps the
// capacity.
struct HttpRequest {
  std::string_view method = "GET";  // a literal
  std::string target;               // path and query, percent-encoded
  std::string header_lines;  // "Name: value\r\n"..., without Host, User-Agent, Content-Length
  uint8_t optional = 0;      // those that it would do without, as bits that the builder names
  std::shared_ptr<BodySource> body_source;       // sent first; null: there is none
  std::vector<std::span<const std::byte>> body;  // sent one after the other; not owned
  std::string body_text;                         // what own_body() was given
  bool has_body = false;                         // send a Content-Length even for an empty body
  // The body is sent once the server has asked for it (100 Continue), as it may send us elsewhere;
  // or after a second, as a server need not ask.
  bool waits_for_continue = false;
  bool* body_begun = nullptr;      // if not null, set before the first byte of the body is sent
  bool on_new_connection = false;  // it must not be sent twice, which an idle one may lead to
  std::string_view object;         // which it is about, for those who know who has it. Borrowed
  std::optional<Error> refused;    // why it must not be sent

  void clear() {
    method = "GET";
    target.clear();
    header_lines.clear();
    optional = 0;
    body_source.reset();
    body.clear();
    has_body = waits_for_continue = on_new_connection = false;
    body_begun = nullptr;
    object = {};
    refused.reset();
  }
  // Keeps the text and makes it the body.
  void own_body(std::string text) {
    body_text = std::move(text);
    body.assign(1, std::as_bytes(std::span(body_text)));
    has_body = true;
  }
  uint64_t body_bytes() const {
    uint64_t total = body_source != nullptr ? body_source->size_bytes() : 0;
    for (const std::span<const std::byte> part : body) total += part.size();
    return total;
  }
  // A value that could end its line and begin another header or request makes the request invalid.
  void add_header(std::string_view name, std::string_view value) {
    if (!check_text(name, value)) return;
    header_lines.append(name).append(": ").append(value).append("\r\n");
  }
  // For texts that become headers elsewhere, such as inside a multipart body.
  bool check_text(std::string_view what, std::string_view text) {
    if (is_printable_ascii(text)) return true;
    if (!refused) refused = not_printable(what);  // without the text: it may be a secret
    return false;
  }
  static Error not_printable(std::string_view what) {
    return Error(Code::kInvalidArgument,
                 cat(what, " must consist of printable ASCII characters, without line breaks"));
  }
};

// Takes one response, in this order: on_head, then space and on_bytes in turn until the body ends.
// An error from any of them ends the exchange with that error and closes the connection.
// Thread: I/O.
class ResponseSink {
 public:
  // The head is valid only during the call.
  virtual Result<void> on_head(const ResponseHead& head) = 0;
  // Where the next bytes of the body go; never empty while bytes are outstanding.
  // `outstanding_bytes` is 0 if the length is unknown (chunked, or until the connection ends).
  virtual Result<std::span<std::byte>> space(uint64_t outstanding_bytes) = 0;
  // The first `count` bytes of space() are filled.
  virtual Result<void> on_bytes(size_t count) = 0;

 protected:
  ~ResponseSink() = default;
};

}  // namespace headrace
