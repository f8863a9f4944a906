// URLs that carry their own permission.
#pragma once

#include <chrono>
#include <string>

#include "headrace/base/result.h"
#include "headrace/store/credential.h"
#include "headrace/store/options.h"

namespace headrace {

// URLs that let anyone who has them send one request, without credentials.
// Thread: any.
class UrlSigning {
 public:
  virtual ~UrlSigning() = default;
  // Whether it is known where the bucket is, which is part of a signature. If not, the answer to
  // any request tells.
  virtual bool knows_place() const = 0;
  // Errors: kInvalidArgument for what no URL can say.
  virtual Result<std::string> signed_url(const UrlRequest& request, const Credential& credential,
                                         std::chrono::system_clock::time_point now) const = 0;
};

}  // namespace headrace
