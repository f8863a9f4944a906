// Requests that carry a token.
#pragma once

#include "headrace/store/credential.h"

namespace headrace {

// Thread: I/O.
class BearerSigner final : public Signer {
 public:
  void sign(HttpRequest& request, const Credential& credential, const Destination&,
            std::chrono::system_clock::time_point) override {
    request.add_header("Authorization", credential.authorization);
  }
};

}  // namespace headrace
