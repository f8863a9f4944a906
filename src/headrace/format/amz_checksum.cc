#include "headrace/format/amz_checksum.h"

#include <algorithm>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/format/running_sum.h"

namespace headrace {
namespace {

// The best first: what can be joined costs nothing.
constexpr std::array kKinds = {ChecksumKind::kCrc32c, ChecksumKind::kCrc64Nvme,
                               ChecksumKind::kCrc32, ChecksumKind::kSha256, ChecksumKind::kSha1};
constexpr uint32_t kMostParts = 10'000;

// "-3" at the end of a value. 0 if it is something else, such as "-0" or "-03".
uint32_t part_count(std::string_view digits) {
  const uint32_t count = parse_number<uint32_t>(digits).value_or(0);
  return !digits.starts_with('0') && count <= kMostParts ? count : 0;
}

}  // namespace

AmzNames amz_names(ChecksumKind kind) {
  switch (kind) {
    case ChecksumKind::kCrc32: return {"x-amz-checksum-crc32", "ChecksumCRC32", "CRC32"};
    case ChecksumKind::kCrc32c: return {"x-amz-checksum-crc32c", "ChecksumCRC32C", "CRC32C"};
    case ChecksumKind::kCrc64Nvme:
      return {"x-amz-checksum-crc64nvme", "ChecksumCRC64NVME", "CRC64NVME"};
    case ChecksumKind::kSha1: return {"x-amz-checksum-sha1", "ChecksumSHA1", "SHA1"};
    case ChecksumKind::kSha256: return {"x-amz-checksum-sha256", "ChecksumSHA256", "SHA256"};
    case ChecksumKind::kNone:
    case ChecksumKind::kMd5:
    case ChecksumKind::kXxh64: return {};
  }
  return {};
}

std::string_view amz_checksum_suffix(std::string_view name) {
  constexpr std::string_view kPrefix = "x-amz-checksum-";
  // The seventh character tells it from all but few headers.
  if (name.size() <= kPrefix.size() || ascii_lower(name[6]) != kPrefix[6]) return "";
  const bool is_sum = same_ignoring_case(name.substr(0, kPrefix.size()), kPrefix);
  return is_sum ? name.substr(kPrefix.size()) : "";
}

ChecksumKind kind_of_amz_suffix(std::string_view suffix) {
  for (const ChecksumKind kind : kKinds) {
    // Algorithms have the names that headers end with, in capitals.
    if (same_ignoring_case(suffix, amz_names(kind).algorithm)) return kind;
  }
  return ChecksumKind::kNone;
}

ChecksumKind kind_of_amz_element(std::string_view name) {
  for (const ChecksumKind kind : kKinds) {
    if (name == amz_names(kind).element) return kind;
  }
  return ChecksumKind::kNone;
}

std::optional<CompositeChecksum> CompositeChecksum::of(std::span<const Checksum> parts) {
  if (parts.empty() || parts.size() > kMostParts) return std::nullopt;
  RunningSum sum(parts[0].kind());
  if (sum.kind() == ChecksumKind::kNone) return std::nullopt;
  for (const Checksum& part : parts) {
    if (part.kind() != sum.kind()) return std::nullopt;
    sum.extend(part.bytes());
  }
  const Checksum of_sums = sum.value();
  if (of_sums.kind() == ChecksumKind::kNone) return std::nullopt;
  return CompositeChecksum(of_sums, static_cast<uint32_t>(parts.size()));
}

bool CompositeChecksum::is_of(std::span<const Checksum> parts) const {
  if (part_count_ != 0 && part_count_ != parts.size()) return false;
  const std::optional<CompositeChecksum> found = of(parts);
  return found && found->of_sums_ == of_sums_;
}

Result<StoredChecksum> parse_amz_checksum(ChecksumKind kind, std::string_view value,
                                          std::string_view type) {
  const auto malformed = [&] {
    return corrupt("a malformed ", to_string(kind), " checksum: ", printable_line(value, 80),
                   type.empty() ? "" : ", of type ", printable_line(type, 20));
  };
  if (kind == ChecksumKind::kNone) return malformed();
  // '-' is no letter of base64.
  const size_t dash = value.find('-');
  const Result<Checksum> sum = checksum_from_base64(kind, value.substr(0, dash));
  if (!sum) return malformed();
  const bool is_full = type == "FULL_OBJECT", is_composite = type == "COMPOSITE";
  if (!is_full && !is_composite && !type.empty()) return malformed();
  if (dash == value.npos) {
    if (is_composite) return StoredChecksum(CompositeChecksum(*sum, 0));
    return StoredChecksum(*sum);
  }
  const uint32_t count = part_count(value.substr(dash + 1));
  if (is_full || count == 0) return malformed();
  return StoredChecksum(CompositeChecksum(*sum, count));
}

void ToldSums::add(ChecksumKind kind, std::string_view value) {
  const auto rank = [](ChecksumKind of) { return std::ranges::find(kKinds, of); };
  if (rank(kind) == kKinds.end()) return;
  size_t at = count_;
  for (; at > 0 && rank(told_[at - 1].kind) >= rank(kind); --at) {
    if (told_[at - 1].kind == kind) return add_another(told_[at - 1], value);
  }
  std::ranges::move_backward(told_.begin() + at, told_.begin() + count_,
                             told_.begin() + count_ + 1);
  told_[at] = {.kind = kind, .value = value};
  ++count_;
}

// What is malformed hides nothing, and a sum of parts contradicts no sum of the whole.
void ToldSums::add_another(Told& told, std::string_view value) {
  if (told.value == value) return;
  const Result<StoredChecksum> before = parse_amz_checksum(told.kind, told.value, "");
  const Result<StoredChecksum> now = parse_amz_checksum(told.kind, value, "");
  if (!now) return;
  const bool is_of_parts = std::holds_alternative<CompositeChecksum>(*now);
  if (before && before->index() == now->index()) {
    if (to_text(*before) != to_text(*now)) contradicted_ = told.kind;
  } else if (!before || !is_of_parts) {
    told.value = value;
  }
}

Result<void> ToldSums::agree() const {
  if (contradicted_ == ChecksumKind::kNone) return {};
  return corrupt("the answer tells two different checksums of the kind ", to_string(contradicted_));
}

Result<std::vector<StoredChecksum>> ToldSums::all() const {
  if (Result<void> good = agree(); !good) return std::unexpected(std::move(good.error()));
  std::vector<StoredChecksum> sums, of_parts;
  std::optional<Error> malformed;
  for (const Told& told : std::span(told_).first(count_)) {
    Result<StoredChecksum> sum = parse_amz_checksum(told.kind, told.value, type_);
    if (sum) {
      (std::holds_alternative<Checksum>(*sum) ? sums : of_parts).push_back(*sum);
    } else if (!malformed) {
      malformed = std::move(sum.error());
    }
  }
  sums.insert(sums.end(), of_parts.begin(), of_parts.end());
  if (sums.empty() && malformed) return std::unexpected(std::move(*malformed));
  return sums;
}

Result<Checksum> ToldSums::whole() const {
  if (Result<void> good = agree(); !good) return std::unexpected(std::move(good.error()));
  for (const Told& told : std::span(told_).first(count_)) {
    const Result<StoredChecksum> sum = parse_amz_checksum(told.kind, told.value, type_);
    if (!sum) continue;
    if (const auto* const whole = std::get_if<Checksum>(&*sum)) return *whole;
  }
  return Checksum();
}

std::string to_text(const StoredChecksum& sum) {
  if (const auto* whole = std::get_if<Checksum>(&sum)) return to_base64(*whole);
  const auto& composite = std::get<CompositeChecksum>(sum);
  if (composite.part_count() == 0) return to_base64(composite.of_sums());
  return cat(to_base64(composite.of_sums()), "-", composite.part_count());
}

std::string_view unquoted_etag(std::string_view etag) {
  const bool is_quoted = etag.size() >= 2 && etag.front() == '"' && etag.back() == '"';
  return is_quoted ? etag.substr(1, etag.size() - 2) : etag;
}

std::string quoted_etag(std::string_view etag) {
  return etag.starts_with("W/\"") ? std::string(etag) : cat("\"", etag, "\"");
}

std::optional<Checksum> md5_of_etag(std::string_view etag) {
  const Result<Checksum> sum = checksum_from_hex(ChecksumKind::kMd5, unquoted_etag(etag));
  return sum ? std::optional(*sum) : std::nullopt;
}

std::optional<CompositeChecksum> composite_md5_of_etag(std::string_view etag) {
  etag = unquoted_etag(etag);
  const size_t dash = etag.find('-');
  if (dash == etag.npos) return std::nullopt;
  const std::optional<Checksum> sum = md5_of_etag(etag.substr(0, dash));
  const uint32_t count = part_count(etag.substr(dash + 1));
  if (!sum || count == 0) return std::nullopt;
  return CompositeChecksum(*sum, count);
}

}  // namespace headrace
