// AIStore's request for many objects (GetBatch), and how its answer names them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/units.h"
#include "headrace/format/object_info.h"

namespace headrace {

// An object, a member of the shard of that name, or a range of either.
struct AisBatchEntry {
  std::string name = {};  // in the bucket
  std::string_view member = {};
  std::optional<ByteRange> range = {};  // within its size, and not empty
};

// The body of the request, which goes to the bucket that the entries are in. It asks for a stream:
// a tar with a member for each entry, in this order. In place of an entry that is missing comes an
// empty member with another name, unless too many are missing: then the tar ends early, without a
// word.
std::string ais_batch_body(std::span<const AisBatchEntry> entries);

// The names of the members.
std::string ais_batch_member_name(const AisBatchEntry& entry);
std::string ais_batch_missing_name(const AisBatchEntry& entry);

// The path of the Location header with which a proxy sends this request to a target, where it is
// known by that path alone; "" of other redirects, whose path is that of their request.
std::string_view ais_batch_redirect_path(std::string_view location);

// Whether an answer means that this version of AIStore has no such request. It is that to a path
// which is not known, not to a bucket or an object that is missing.
bool is_ais_batch_unknown(int http_status, std::string_view message);

}  // namespace headrace
