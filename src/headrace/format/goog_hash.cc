#include "headrace/format/goog_hash.h"

#include "headrace/base/ascii.h"

namespace headrace {

std::optional<Crc32c> crc32c_of_goog_hash(std::string_view header_value) {
  constexpr std::string_view kPrefix = "crc32c=";
  while (!header_value.empty()) {
    const size_t comma = header_value.find(',');
    const std::string_view item = trimmed(header_value.substr(0, comma));
    header_value.remove_prefix(comma == std::string_view::npos ? header_value.size() : comma + 1);
    if (!item.starts_with(kPrefix)) continue;
    if (const Result<Crc32c> sum = Crc32c::from_base64(item.substr(kPrefix.size()))) return *sum;
  }
  return std::nullopt;
}

}  // namespace headrace
