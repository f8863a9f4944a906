// Percent-encoding (RFC 3986). Only the unreserved characters stay as they are; what comes out is
// safe in a path segment and in a query value, of every store.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

std::string percent_encode(std::string_view text);
void percent_encode_to(std::string& out, std::string_view text);  // appends; '/' becomes %2F

// Keeps '/', for the services (S3, the XML API) that take a name as a path.
std::string percent_encode_path(std::string_view text);
void percent_encode_path_to(std::string& out, std::string_view text);

// '+' stays '+': this is not form decoding. Errors: kInvalidArgument for a '%' without two digits.
Result<std::string> percent_decode(std::string_view text);

// The same of form decoding, in which '+' is a blank: how S3 lists names with `encoding-type=url`.
// Appends. False, and nothing appended, for a '%' without two digits.
bool form_decode_to(std::string& out, std::string_view text);
Result<std::string> form_decode(std::string_view text);

}  // namespace headrace
