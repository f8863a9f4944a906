// Errors are for people and always say something that can be printed; a redirect is followed only
// to a host, with a query that can be sent; checksums are read back.
#include <string>

#include "fuzz/check.h"
#include "headrace/base/ascii.h"
#include "headrace/format/ais_checksum.h"
#include "headrace/format/ais_error.h"
#include "headrace/format/ais_location.h"

using namespace headrace;
using fuzz::check;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::Choices choices(text);

  const AisError error = parse_ais_error(text);
  for (const std::string* each : {&error.type, &error.message, &error.node}) {
    check(each->size() <= 200);
    for (const char c : *each) check(c >= ' ' && c < 0x7F);
  }
  check(error.status >= 0 && error.status < 1000);
  to_string(ais_code_of(error.status, error.type));

  if (const Result<AisLocation> location = parse_ais_location(text)) {
    check(!location->endpoint.host.empty() && location->endpoint.base_path.empty());
    check(is_visible_ascii(location->query) && !location->query.contains('?'));
    // Whatever the path is.
    const std::string plain = cat(location->endpoint.tls ? "https://" : "http://",
                                  location->endpoint.authority(), "/o?", location->query);
    const Result<AisLocation> again = parse_ais_location(plain);
    check(again.has_value() && again->endpoint == location->endpoint &&
          again->query == location->query);
  } else {
    check(location.error().code() == Code::kUnavailable);
  }
  // A name that was decoded ends the path of a good one nowhere.
  const std::string good = cat("http://h:1/v1/objects/b/", text, "?provider=ais&pid=p&utm=1");
  const Result<AisLocation> location = parse_ais_location(good);
  check(location.has_value() && location->query == "provider=ais&pid=p&utm=1");

  const Checksum listed = ais_listed_checksum(text);
  check(listed.empty() || same_ignoring_case(to_hex(listed), text));
  const std::string_view type = text.substr(0, text.find(' '));
  const Checksum sum = ais_checksum(type, text.substr(std::min(text.size(), type.size() + 1)));
  check(sum.empty() || ais_checksum(ais_checksum_type(sum.kind()), to_hex(sum)) == sum);
  return 0;
}
