// The checksums and generations of AIStore, from headers (Ais-Checksum-Type, Ais-Checksum-Value,
// Ais-Version) and from listings.
#pragma once

#include <string>
#include <string_view>

#include "headrace/format/checksum.h"

namespace headrace {

// Of no kind for types that nothing here computes (sha512) and for "none".
ChecksumKind ais_checksum_kind(std::string_view type);
// "" for kinds that AIStore does not have. What "xxhash" names is XXH64 with the seed 0, and so is
// "xxhash2", a second implementation of it in newer servers.
std::string_view ais_checksum_type(ChecksumKind kind);

// Of no kind if the type is none of ours, or if `hex` is no value of it.
Checksum ais_checksum(std::string_view type, std::string_view hex);

// A listing tells the value alone. 8 digits are a CRC32C, 16 an XXH64 and 64 a SHA-256; 32 digits
// are taken for none: they may be an MD5, or what a cloud keeps in its place for an encrypted
// object.
Checksum ais_listed_checksum(std::string_view hex);

// "VERSION-CHECKSUM", or the checksum alone where a bucket keeps no versions. Versions count from 1
// again when an object is deleted and written anew, so one without a checksum tells nothing: "".
// Heads and listings of one object give the same.
std::string ais_generation(std::string_view version, std::string_view checksum_hex);

}  // namespace headrace
