#include "headrace/format/ais_owner.h"

#include <bit>

#include "headrace/base/result.h"
#include "headrace/base/split_mix.h"
#include "headrace/format/xxh64.h"

namespace headrace {
namespace {

constexpr uint64_t kSeed = 1'103'515'245;

// The first number of a xoshiro256** generator (Blackman and Vigna 2018) whose state is filled by
// SplitMix64 from `seed`. The second word of the state alone decides it.
uint64_t weight_of(uint64_t seed) {
  const uint64_t word = split_mix(split_mix(seed + kSplitMixStep) + kSplitMixStep);
  return std::rotl(word * 5, 7) * 9;
}

}  // namespace

std::string ais_bucket_uname(std::string_view provider, std::string_view uuid,
                             std::string_view name_space, std::string_view bucket) {
  return cat(provider, "/@", uuid, "#", name_space, "/", bucket, "/");
}

AisOwners::AisOwners(const AisMap& map) {
  for (size_t i = 0; i < map.targets.size(); ++i) {
    if (map.targets[i].is_leaving()) continue;
    targets_.push_back({.digest = xxh64(map.targets[i].id, kSeed), .index = i});
  }
}

std::optional<size_t> AisOwners::owner(std::string_view bucket_uname, std::string_view name) const {
  if (targets_.empty()) return std::nullopt;
  Xxh64 hash(kSeed);
  hash.extend(bucket_uname);
  hash.extend(name);
  const uint64_t digest = hash.value();
  const Target* best = nullptr;
  uint64_t greatest = 0;
  for (const Target& target : targets_) {
    const uint64_t weight = weight_of(target.digest ^ digest);
    if (best == nullptr || weight > greatest) {
      best = &target;
      greatest = weight;
    }
  }
  return best->index;
}

}  // namespace headrace
