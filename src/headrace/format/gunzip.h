// Objects that are stored gzip-compressed (Content-Encoding: gzip), decompressed whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/result.h"

namespace headrace {

// One or more gzip members, one behind the other, decompressed into `out`. How many bytes they are.
// Errors: kCorrupt for a bad or cut stream and for bytes behind the last member; kExhausted if they
// are more than `out` holds (a few bytes of gzip can stand for gigabytes).
Result<uint64_t> gunzip(std::span<const std::byte> in, std::span<std::byte> out);

// How many bytes gunzip() gives, found by decompressing and keeping nothing. Errors: the same;
// kExhausted above `max_bytes`.
Result<uint64_t> gunzipped_bytes(std::span<const std::byte> in, uint64_t max_bytes);

// How many they are if they are one member of less than 4 GiB, and it does not lie.
uint64_t gunzipped_bytes_hint(std::span<const std::byte> in);

}  // namespace headrace
