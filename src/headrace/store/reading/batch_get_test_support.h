// A service that answers requests for many objects from a text, without a connection.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/format/tar_test_support.h"
#include "headrace/store/ais/ais_protocol.h"
#include "headrace/store/reading/batch_get_attempt.h"

namespace headrace {

inline const Protocol& batch_get_protocol() {
  static const AisProtocol protocol({.scheme = Scheme::kAis, .bucket = "bucket"}, /*tls=*/false,
                                    {});
  return protocol;
}

struct BatchGetAnswer {
  std::string body;
  std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string then_fails = {};  // the connection, after the body
  size_t piece_bytes = SIZE_MAX;
};

// Lets an attempt take the answer, and returns what it makes of it.
inline Result<void> take_answer(BatchGetAttempt& attempt, const BatchGetAnswer& answer) {
  ResponseHead head;
  if (const Result<size_t> size = parse_response_head(answer.head, head); !size) {
    return std::unexpected(size.error());
  }
  if (Result<void> taken = attempt.on_head(head); !taken) return taken;
  for (std::string_view rest = answer.body; !rest.empty();) {
    const Result<std::span<std::byte>> space = attempt.space(0);
    if (!space) return std::unexpected(space.error());
    const size_t count = std::min({space->size(), rest.size(), answer.piece_bytes});
    std::memcpy(space->data(), rest.data(), count);
    if (Result<void> taken = attempt.on_bytes(count); !taken) return taken;
    rest.remove_prefix(count);
  }
  if (!answer.then_fails.empty()) return fail(Code::kUnavailable, answer.then_fails);
  const Result<Attempt::Verdict> verdict = attempt.end();
  if (!verdict) return std::unexpected(verdict.error());
  return {};
}

}  // namespace headrace
