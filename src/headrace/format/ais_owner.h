// Which target of an AIStore cluster owns an object: the one that rendezvous hashing gives the
// greatest weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/format/ais_map.h"

namespace headrace {

// What the hash takes for a bucket, up to the '/' before an object's name: "ais/@#/bucket/".
// `provider` as AIStore writes it: ais, aws, gcp, azure, oci, ht.
std::string ais_bucket_uname(std::string_view provider, std::string_view uuid,
                             std::string_view name_space, std::string_view bucket);

// The targets of one map, ready to be asked.
// Thread: any (immutable).
class AisOwners {
 public:
  AisOwners() = default;
  explicit AisOwners(const AisMap& map);

  // The index of the owner in `map.targets`; none if no target is there to own anything. Makes no
  // allocation.
  std::optional<size_t> owner(std::string_view bucket_uname, std::string_view name) const;

 private:
  struct Target {
    uint64_t digest;
    size_t index;
  };
  std::vector<Target> targets_;
};

}  // namespace headrace
