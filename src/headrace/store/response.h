// What a service answers, and what a refusal means.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/format/http_head.h"
#include "headrace/format/url.h"

namespace headrace {

// An accepted response that has come whole. Views, valid for the call.
struct Response {
  const ResponseHead& head;
  std::string_view body;
};

// A response that says no.
struct ErrorResponse {
  const ResponseHead& head;
  std::string_view body;  // its beginning
  bool of_removal = false;
  // Of a request that is to replace one known generation.
  bool of_replacement = false;
};

// Where one request is sent instead. Credentials go there, too: the protocol answers for the place.
struct Elsewhere {
  Endpoint endpoint = {};   // without a base path
  std::string target = {};  // path and query, sent as they are; "": the request's own path ...
  std::string query = {};   // ... with this query instead of its own
  bool operator==(const Elsewhere&) const = default;
};

// What the provider means by it.
struct Refusal {
  Error error;  // without URL and attempts
  // The credentials were refused, and others, or the same ones signed anew, may be accepted.
  bool stale_credentials = false;
  // What time it is there, if ours was refused.
  std::optional<std::chrono::system_clock::time_point> server_time = {};
  // Of the whole object, if a range was refused because it begins beyond its end.
  std::optional<uint64_t> object_bytes = {};
  // The protocol has learned where the bucket is: the same request is to be sent there.
  bool moved = false;
  // It may be about a header that the service does not know, and that the request would do without.
  bool blames_headers = false;
  // Even about one that the service has taken before: it names it, knows something not, or has
  // words that nobody knows.
  bool blames_taken = false;
  // This request alone is to be sent there; what comes after it goes where it always went. A
  // pointer, since refusals are part of the frames of reads, which are recycled up to 1 KiB.
  std::shared_ptr<const Elsewhere> elsewhere = nullptr;
};

}  // namespace headrace
