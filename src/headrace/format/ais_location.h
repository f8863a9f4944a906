// Where a redirect of an AIStore proxy leads.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/format/url.h"

namespace headrace {

struct AisLocation {
  Endpoint endpoint = {};  // of the target, without a base path
  // Without '?': the query of the request, followed by what proves that a proxy sent us (`pid`,
  // `utm`, and a signature if the cluster signs). To be sent as it is.
  std::string query = {};
};

// The value of a Location header. Its path is not looked at: up to 3.27, servers write it decoded,
// so that a '#' or '?' of the name cuts it off. What goes to the target is our own path with this
// query.
// Errors: kUnavailable for what is no redirect of an AIStore proxy. A gateway that sends clients to
// its login page, for example, must not get our credentials.
Result<AisLocation> parse_ais_location(std::string_view value);

}  // namespace headrace
