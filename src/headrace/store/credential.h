// Who a request comes from, and how it proves it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/http/message.h"

namespace headrace {

// Either the value of an Authorization header, or keys that requests are signed with.
struct Credential {
  std::string authorization = {};  // "Bearer ..."
  std::string access_key = {}, secret_key = {}, session_token = {};
  // None: never. Once it has expired, requests wait for a new one. A quarter of its life (at most
  // five minutes) earlier, a new one is requested while the old one is still in use.
  std::optional<std::chrono::steady_clock::time_point> expires_at = {};
};

// Where a request is about to be sent.
struct Destination {
  std::string_view authority;  // the Host header
  std::string_view base_path;  // precedes the target
};

// Adds to a finished request what proves who sends it.
// Thread: I/O. It may remember what it derives from a credential.
class Signer {
 public:
  virtual ~Signer() = default;
  virtual void sign(HttpRequest& request, const Credential& credential,
                    const Destination& destination, std::chrono::system_clock::time_point now) = 0;
};

}  // namespace headrace
