// Signatures of requests, checked as the service does.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "http.h"
#include "route.h"
#include "world.h"

namespace faultserver::s3 {

// What a request says of who signed it, from its Authorization header or its query.
struct Credential {
  bool is_given = false;      // False: an anonymous request.
  bool is_presigned = false;  // By query parameters.
  std::string access_key{}, day{}, region{}, service{};
};
// A credential that cannot be read is given, and empty.
Credential credential_of(const Request& request);

// An answer when the signature is missing parts, wrong, too old or by an unknown key. `region` is
// the one that the signature must name; empty: any.
std::optional<Response> failed_signature(const World& world, const Request& request,
                                         const Route& route, std::string_view region);

}  // namespace faultserver::s3
