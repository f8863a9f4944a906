// Many objects by one request.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/http/message.h"

namespace headrace {

// One of the things that one request gets.
struct BatchGetEntry {
  std::string_view name = {};
  std::string_view member = {};         // of the shard with this name; "": the object itself
  std::optional<ByteRange> range = {};  // within its known size, and not empty
};

// Gets objects, ranges of them and members of shards by one request, which is answered with one tar
// of them all, in the order of the request. Nothing in it tells a generation or a checksum.
// Thread: any (immutable).
class BatchGets {
 public:
  virtual ~BatchGets() = default;
  // Whether a request can name it.
  virtual bool can_name(const BatchGetEntry& entry) const = 0;
  virtual void build_get(HttpRequest& request, std::span<const BatchGetEntry> entries) const = 0;
  // What the tar calls it: if it comes, and if it is missing.
  virtual std::string member_name(const BatchGetEntry& entry) const = 0;
  virtual std::string missing_name(const BatchGetEntry& entry) const = 0;
  // Whether this refusal says that the service has no such request.
  virtual bool is_absent(const Error& refusal) const = 0;
};

}  // namespace headrace
