// The members of a tar that is in memory as a whole.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/format/tar.h"

namespace headrace {

// All members, in the order of the archive; their data lie in `archive` at `data_offset`.
// Errors: kCorrupt: it is no tar, or it ends within a member.
Result<std::vector<TarMember>> tar_members(std::span<const std::byte> archive);

}  // namespace headrace
