// Objects that are stored gzip-compressed (Content-Encoding: gzip), decompressed whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/result.h"

namespace headrace {

// Decompresses one or more consecutive gzip members into `out`, and returns the size of the result.
// Errors: kCorrupt for a bad or truncated stream and for bytes other than zeros after the last
// member; kExhausted if
// the result does not fit into `out` (a few bytes of gzip can expand to gigabytes).
Result<uint64_t> gunzip(std::span<const std::byte> in, std::span<std::byte> out);

// The size of what gunzip() would produce, found by decompressing without keeping anything. Errors:
// the same; kExhausted above `max_bytes`.
Result<uint64_t> gunzipped_bytes(std::span<const std::byte> in, uint64_t max_bytes);

// The size that the data claims, which is right for a single member of less than 4 GiB that does
// not lie.
uint64_t gunzipped_bytes_hint(std::span<const std::byte> in);

}  // namespace headrace
