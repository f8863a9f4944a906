#include "route.h"

#include <array>

namespace faultserver {

std::string_view kind_name(Kind kind) {
#define FAULTSERVER_KIND(kind, name) std::string_view(name),
  static constexpr std::array kNames = {FAULTSERVER_KINDS(FAULTSERVER_KIND)};
#undef FAULTSERVER_KIND
  static_assert(kNames.size() == kKindCount);
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace faultserver
