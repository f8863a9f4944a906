// Objects that are stored gzip-compressed (Content-Encoding: gzip), decompressed whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/base/result.h"

namespace headrace {

// One or more gzip members, one behind the other.
// Errors: kCorrupt for a bad or cut stream and for bytes behind the last member; kExhausted if more
// than `max_bytes` come out (a few bytes of gzip can hold gigabytes).
Result<std::vector<std::byte>> gunzip(std::span<const std::byte> in, uint64_t max_bytes);

}  // namespace headrace
