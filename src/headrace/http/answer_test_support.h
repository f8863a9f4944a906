// Answers of transports that a test plays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/format/http_head.h"
#include "headrace/http/transport.h"

namespace headrace {

// The head of such an answer. `headers`: lines, each with its end.
inline Result<void> give_head(ResponseSink& sink, std::string_view status, std::string_view headers,
                              uint64_t content_length) {
  ResponseHead head;
  const std::string text =
      cat("HTTP/1.1 ", status, "\r\n", headers, "Content-Length: ", content_length, "\r\n\r\n");
  if (const Result<size_t> size = parse_response_head(text, head); !size) {
    return std::unexpected(size.error());
  }
  return sink.on_head(head);
}

inline Result<void> give_body(ResponseSink& sink, std::string_view body) {
  while (!body.empty()) {
    const Result<std::span<std::byte>> space = sink.space(body.size());
    if (!space) return std::unexpected(space.error());
    const size_t count = std::min(space->size(), body.size());
    std::memcpy(space->data(), body.data(), count);
    if (Result<void> taken = sink.on_bytes(count); !taken) return taken;
    body.remove_prefix(count);
  }
  return {};
}

}  // namespace headrace
