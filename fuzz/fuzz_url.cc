// What parse_url and parse_endpoint accept is read back from what they write; percent-encoding
// gives every byte back.
#include <string>

#include "fuzz/check.h"
#include "headrace/format/percent.h"
#include "headrace/format/url.h"

using namespace headrace;
using fuzz::check;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);

  if (const Result<Url> url = parse_url(text)) {
    check(url->scheme == Scheme::kFile ? url->bucket.empty() : !url->bucket.empty());
    check(url->name.find('\0') == std::string::npos);
    const Result<Url> again = parse_url(url->to_string());
    check(again.has_value() && *again == *url);
  } else {
    check(url.error().code() == Code::kInvalidArgument);
    for (const char c : url.error().message()) check(c >= ' ' && c < 0x7F);
  }

  for (const bool default_tls : {false, true}) {
    const Result<Endpoint> endpoint = parse_endpoint(text, default_tls);
    if (!endpoint) continue;
    check(!endpoint->host.empty() && endpoint->port != 0);
    const std::string authority = endpoint->authority();
    // It goes into a request head as it is.
    for (const char c : authority + endpoint->base_path) check(c > ' ' && c < 0x7F);
    const Result<Endpoint> again = parse_endpoint(
        cat(endpoint->tls ? "https://" : "http://", authority, endpoint->base_path), !default_tls);
    check(again.has_value() && *again == *endpoint);
  }

  const std::string encoded = percent_encode(text), path = percent_encode_path(text);
  for (const char c : encoded) check(c > ' ' && c < 0x7F && c != '/' && c != '?' && c != '#');
  check(percent_decode(encoded).value() == text);
  check(percent_decode(path).value() == text);
  if (const Result<std::string> decoded = percent_decode(text)) {
    check(decoded->size() <= text.size());
    check(percent_decode(percent_encode(*decoded)).value() == *decoded);
  }
  return 0;
}
