#include "headrace/format/ais_checksum.h"

#include "headrace/base/result.h"

namespace headrace {
namespace {

Checksum sum_of_hex(ChecksumKind kind, std::string_view hex) {
  if (kind == ChecksumKind::kNone) return {};
  return checksum_from_hex(kind, hex).value_or(Checksum());
}

}  // namespace

ChecksumKind ais_checksum_kind(std::string_view type) {
  if (type == "xxhash" || type == "xxhash2") return ChecksumKind::kXxh64;
  if (type == "crc32c") return ChecksumKind::kCrc32c;
  if (type == "md5") return ChecksumKind::kMd5;
  if (type == "sha256") return ChecksumKind::kSha256;
  return ChecksumKind::kNone;
}

std::string_view ais_checksum_type(ChecksumKind kind) {
  switch (kind) {
    case ChecksumKind::kXxh64: return "xxhash";
    case ChecksumKind::kCrc32c: return "crc32c";
    case ChecksumKind::kMd5: return "md5";
    case ChecksumKind::kSha256: return "sha256";
    case ChecksumKind::kNone:
    case ChecksumKind::kCrc32:
    case ChecksumKind::kCrc64Nvme:
    case ChecksumKind::kSha1: return "";
  }
  return "";
}

Checksum ais_checksum(std::string_view type, std::string_view hex) {
  return sum_of_hex(ais_checksum_kind(type), hex);
}

Checksum ais_listed_checksum(std::string_view hex) {
  for (const ChecksumKind kind :
       {ChecksumKind::kCrc32c, ChecksumKind::kXxh64, ChecksumKind::kSha256}) {
    if (hex.size() == 2 * checksum_size(kind)) return sum_of_hex(kind, hex);
  }
  return {};
}

std::string ais_generation(std::string_view version, std::string_view checksum_hex) {
  if (checksum_hex.empty()) return "";
  return cat(version, version.empty() ? "" : "-", checksum_hex);
}

}  // namespace headrace
