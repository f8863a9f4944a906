// The headers of tar archives, written: ustar, and before it an extended header (pax) where ustar
// has no room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

// How many bytes the headers of a file take.
// Errors: kInvalidArgument for a name that a file in a tar cannot have.
Result<size_t> tar_header_bytes(std::string_view name, uint64_t size_bytes);

// Writes these headers; `into` has as many bytes. The same name and size give the same bytes: owner
// and time are 0, and anybody may read the file.
void write_tar_headers(std::string_view name, uint64_t size_bytes, std::span<std::byte> into);

}  // namespace headrace
