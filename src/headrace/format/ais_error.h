// The errors of AIStore: JSON in the body, and for HEAD, which has none, in the header Hdr-Error.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

// Each "" or 0 where it is missing. The texts are for people: one line of printable characters, at
// most 200 of them.
struct AisError {
  std::string type = {};  // "ErrBckNotFound"
  std::string message = {};
  std::string node = {};  // which said no: "t[id]" or "p[id]"
  int status = 0;
};

// Never fails: what is no such JSON (a proxy's HTML, nothing) is the message.
AisError parse_ais_error(std::string_view text);

// The body's, if it has one, else the header's.
AisError parse_ais_error(std::string_view body, std::string_view hdr_error);

// What it means, from the status of the response and the type.
Code ais_code_of(int status, std::string_view type);

// Whether a 404 is about the bucket and not about the object.
bool is_ais_bucket_missing(const AisError& error);

}  // namespace headrace
