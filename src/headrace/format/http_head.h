// The head of an HTTP/1.1 response: status line and header fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"

namespace headrace {

inline constexpr size_t kMaxResponseHeadBytes = size_t{64} * 1024;
inline constexpr size_t kMaxResponseHeadFields = 100;

struct HeaderField {
  std::string_view name, value;
};

// Filled by parse_response_head for one response of a connection after another. The vector of
// fields keeps its capacity, so that only the first head costs an allocation.
// Thread: confined. Borrows the parsed bytes; its views are valid as long as they are.
class ResponseHead {
 public:
  int status = 0;
  // As the head says, even if no body follows (an answer to HEAD, 304).
  std::optional<uint64_t> content_length;
  bool chunked = false;
  // The connection can carry another request after this body. False if the body ends only with
  // the connection, which is how a response with neither length nor chunks is framed.
  bool keep_alive = false;

  // The first field of that name; letter case does not matter.
  std::optional<std::string_view> find(std::string_view name) const;
  std::span<const HeaderField> fields() const { return fields_; }

  // No body follows a head with this status, whatever its fields say: 1xx, 204, 304. (Nor after a
  // HEAD request, but only the caller knows about that.)
  bool never_has_body() const { return status / 100 == 1 || status == 204 || status == 304; }

  void clear();

 private:
  friend Result<size_t> parse_response_head(std::string_view bytes, ResponseHead& head);
  friend class OwnedHead;
  const char* take(std::string_view whole, std::span<const uint16_t> feeds);
  std::vector<HeaderField> fields_;
};

// A copy of a head, with its text. Thread: confined.
class OwnedHead {
 public:
  OwnedHead() = default;
  OwnedHead(const OwnedHead&) = delete;
  OwnedHead& operator=(const OwnedHead&) = delete;

  void assign(const ResponseHead& head);
  const ResponseHead& head() const { return head_; }

 private:
  std::string text_;
  ResponseHead head_;
};

// Parses the head at the beginning of `bytes` into `head`. Returns its size in bytes, or 0 if it is
// not complete: read more and call again with all of it. A 1xx head is reported as it is; the
// caller continues after it.
//
// Strict where laxness lets two parsers disagree about where a body ends (request smuggling): both
// Content-Length and Transfer-Encoding, a repeated or malformed Content-Length, a transfer coding
// other than chunked, folded lines, bare line feeds and control characters are errors.
// Errors: kUnavailable (another attempt, on another connection, may go well) for bytes that are not
// an HTTP/1 head, or exceed kMaxResponseHeadBytes or kMaxResponseHeadFields.
Result<size_t> parse_response_head(std::string_view bytes, ResponseHead& head);

}  // namespace headrace
