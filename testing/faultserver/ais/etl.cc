// Transformations that are there from the start.
#include <algorithm>

#include "ais/ais.h"
#include "digest.h"
#include "text.h"

namespace faultserver::ais {

std::optional<std::string> transformed(std::string_view etl_name, std::string_view arguments,
                                       const Body& body) {
  std::string bytes = body.copy();
  if (etl_name == "echo") return bytes;
  if (etl_name == "upper") {
    std::ranges::transform(bytes, bytes.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    return bytes;
  }
  if (etl_name == "md5") return hex(md5(bytes));
  // The arguments, then the bytes: shows what came along.
  if (etl_name == "arguments") return std::string(arguments) + bytes;
  if (etl_name == "empty") return std::string();
  return std::nullopt;
}

}  // namespace faultserver::ais
