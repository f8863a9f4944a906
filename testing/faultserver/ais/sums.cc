// The checksums that the server keeps and verifies.
#include <algorithm>
#include <array>

#include "ais/ais.h"
#include "digest.h"
#include "text.h"

namespace faultserver::ais {
namespace {

constexpr size_t kMaxMadeSums = 1'000'000;

std::string hex8(uint32_t value) { return hex16(value).substr(8); }

}  // namespace

bool is_checksum_type(const Call& call, std::string_view type) {
  constexpr auto kTypes =
      std::to_array<std::string_view>({"crc32c", "md5", "sha256", "sha512", "xxhash", "none"});
  return std::ranges::find(kTypes, type) != kTypes.end() || (!call.is_a() && type == "xxhash2");
}

std::string checksum_of(std::string_view type, const Body& body) {
  if (type == "xxhash" || type == "xxhash2") {
    Xxh64 state;
    for (uint64_t at = 0; at < body.size_bytes();) {
      const std::string_view piece = body.view(at);
      state.update(piece);
      at += piece.size();
    }
    return hex16(state.sum());
  }
  if (type == "crc32c") {
    uint32_t crc = 0;
    for (uint64_t at = 0; at < body.size_bytes();) {
      const std::string_view piece = body.view(at);
      crc = crc32c(piece, crc);
      at += piece.size();
    }
    return hex8(crc);
  }
  if (type == "md5") return hex(md5(body.copy()));
  if (type == "sha256") return hex(sha256(body.copy()));
  if (type == "sha512") return hex(sha512(body.copy()));
  return {};
}

Checksum checksum_of(Bucket& bucket, const Object& object) {
  if (!object.is_made) return {.type = object.ais.checksum_type, .value = object.ais.checksum};
  const std::string& type = bucket.ais.checksum_type;
  if (type == "none") return {};
  if (type == "crc32c") return {.type = type, .value = hex8(object.crc)};
  auto& sums = bucket.ais.made_sums;
  auto found = sums.find(object.generation);
  if (found == sums.end()) {
    if (sums.size() >= kMaxMadeSums) sums.clear();
    found = sums.emplace(object.generation, checksum_of(type, object.body)).first;
  }
  return {.type = type, .value = found->second};
}

}  // namespace faultserver::ais
