#include "headrace/format/ais_location.h"

#include "headrace/base/ascii.h"

namespace headrace {
namespace {

bool has_parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    if (field.size() > name.size() && field.starts_with(name)) return true;
    query.remove_prefix(std::min(query.size(), field.size() + 1));
  }
  return false;
}

}  // namespace

Result<AisLocation> parse_ais_location(std::string_view value) {
  const auto refused = [value](std::string_view why) {
    return fail(Code::kUnavailable, "a redirect to '", printable_line(value), "', ", why,
                "; is the endpoint an AIStore proxy?");
  };
  const size_t scheme_end = value.find("://");
  if (scheme_end == value.npos) return refused("which names no host");
  const size_t path = value.find_first_of("/?#", scheme_end + 3);
  // A query has no '?' of its own, since ours are percent-encoded: the last one begins it.
  const size_t mark = value.rfind('?');
  if (path == value.npos || value[path] != '/' || mark == value.npos || mark < path) {
    return refused("which has no query");
  }
  const std::string_view query = value.substr(mark + 1);
  if (!is_visible_ascii(query) || query.contains('#')) return refused("with a malformed query");
  if (!has_parameter(query, "pid=")) return refused("which no AIStore proxy has made");
  Result<Endpoint> endpoint = parse_endpoint(value.substr(0, path), /*default_tls=*/false);
  if (!endpoint) return refused(endpoint.error().message());
  return AisLocation{.endpoint = std::move(*endpoint), .query = std::string(query)};
}

}  // namespace headrace
