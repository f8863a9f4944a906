// Base64 as in RFC 4648 section 4: the usual alphabet, padded.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

std::string base64_encode(std::span<const std::byte> bytes);

// Strict, so that every byte string has one spelling: no white space, no missing padding, no bits
// set behind the last byte. Decodes into memory of the caller's, without an allocation, and returns
// how many bytes it wrote.
// Errors: kInvalidArgument, also when `into` is too small.
Result<size_t> base64_decode(std::string_view text, std::span<std::byte> into);

}  // namespace headrace
