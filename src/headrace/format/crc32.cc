#include "headrace/format/crc32.h"

#include <isa-l/crc.h>

namespace headrace {

Crc32 Crc32::extended(std::span<const std::byte> bytes) const {
  return Crc32(
      crc32_gzip_refl(value_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

}  // namespace headrace
