// The x-goog-hash header of Google Cloud Storage.
#pragma once

#include <optional>
#include <string_view>

#include "headrace/format/crc32c.h"

namespace headrace {

// The CRC32C in "crc32c=AAAAAA==,md5=...", in any order, with or without the other. None if it is
// missing or malformed: the header is optional, and without it the check is made elsewhere or not
// at all. Servers may send the header twice, so call this for each field.
std::optional<Crc32c> crc32c_of_goog_hash(std::string_view header_value);

}  // namespace headrace
