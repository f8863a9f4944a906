// The x-goog-hash header of Google Cloud Storage.
#pragma once

#include <optional>
#include <string_view>

#include "headrace/format/crc32c.h"

namespace headrace {

// The CRC32C in "crc32c=AAAAAA==,md5=...", in any order, also without the other. None if there is
// none, or none that can be read: the header is an offer, and a check that it cannot serve is made
// elsewhere or not at all. Servers also send the header twice; ask for each field.
std::optional<Crc32c> crc32c_of_goog_hash(std::string_view header_value);

}  // namespace headrace
