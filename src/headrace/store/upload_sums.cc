#include "headrace/store/upload_sums.h"

namespace headrace {

ChecksumKind sum_kind(SumLevel level) {
  switch (level) {
    case SumLevel::kCrc32c:
    case SumLevel::kComposite: return ChecksumKind::kCrc32c;
    case SumLevel::kCrc64Nvme: return ChecksumKind::kCrc64Nvme;
    case SumLevel::kMd5: return ChecksumKind::kMd5;
    case SumLevel::kSize: return ChecksumKind::kNone;
  }
  return ChecksumKind::kNone;
}

std::string_view label(SumLevel level) {
  switch (level) {
    case SumLevel::kCrc32c: return "the CRC-32C of the whole object";
    case SumLevel::kCrc64Nvme: return "the CRC-64/NVME of the whole object";
    case SumLevel::kComposite: return "the CRC-32C of each part";
    case SumLevel::kMd5: return "the Content-MD5 of each request";
    case SumLevel::kSize: return "the size alone";
  }
  return "";
}

std::string_view to_string(SumLevel level) {
  switch (level) {
    case SumLevel::kCrc32c: return "crc32c";
    case SumLevel::kCrc64Nvme: return "crc64nvme";
    case SumLevel::kComposite: return "composite";
    case SumLevel::kMd5: return "md5";
    case SumLevel::kSize: return "none";
  }
  return "";
}

std::optional<SumLevel> sum_level(std::string_view name) {
  for (const SumLevel level : {SumLevel::kCrc32c, SumLevel::kCrc64Nvme, SumLevel::kComposite,
                               SumLevel::kMd5, SumLevel::kSize}) {
    if (to_string(level) == name) return level;
  }
  return std::nullopt;
}

UploadSums after_start(UploadSums sums, AnnouncedSum said) {
  if (sums.known || sums.ignored || said == AnnouncedSum::kNone) return sums;
  // Some only repeat what they were asked for: the first part shows.
  sums.sends_whole = said == AnnouncedSum::kWhole;
  if (said == AnnouncedSum::kOfParts) sums.level = SumLevel::kComposite;
  return sums;
}

std::optional<UploadSums> after_refused_start(const UploadSums& sums) {
  if (sums.ignored) return UploadSums{.level = SumLevel::kMd5, .etags = sums.etags};
  if (sums.fixed) return std::nullopt;
  switch (sums.level) {
    case SumLevel::kCrc32c: return UploadSums{.level = SumLevel::kCrc64Nvme};
    case SumLevel::kCrc64Nvme: return UploadSums{.level = SumLevel::kComposite};
    case SumLevel::kComposite: return UploadSums{.level = SumLevel::kMd5};
    case SumLevel::kMd5:
    case SumLevel::kSize: return std::nullopt;
  }
  return std::nullopt;
}

UploadSums after_bytes(UploadSums sums, bool told, bool etag_is_md5) {
  const Etags etags = etag_is_md5 ? Etags::kMd5 : Etags::kOther;
  if (sums.level == SumLevel::kMd5) {
    if (sums.etags == Etags::kUnknown) sums.etags = etags;
    sums.known = true;
    return sums;
  }
  if (sums.known || told || sums.level == SumLevel::kSize) {
    sums.known = true;
    return sums;
  }
  // It was ignored. What the ETag proves is known; else the bytes are sent with their MD5.
  const bool is_crc32c = sum_kind(sums.level) == ChecksumKind::kCrc32c;
  return {.level = SumLevel::kMd5,
          .known = etag_is_md5,
          .ignored = is_crc32c ? std::optional(sums.level) : std::nullopt,
          .etags = etag_is_md5 ? Etags::kMd5 : Etags::kUnknown};
}

std::optional<UploadSums> after_refused_bytes(const UploadSums& sums) {
  if (sums.ignored) return UploadSums{.level = SumLevel::kMd5, .etags = sums.etags};
  if (sums.fixed || sums.level == SumLevel::kSize) return std::nullopt;
  if (sums.level == SumLevel::kMd5) return UploadSums{.level = SumLevel::kSize};
  return UploadSums{.level = SumLevel::kMd5};
}

bool may_be_about_sums(const UploadSums& sums, const Error& refusal, bool blames_taken) {
  if (sums.known && !sums.ignored && !blames_taken) return false;
  if (refusal.code() != Code::kInvalidArgument) return false;
  if (refusal.message().contains("InvalidDigest")) return false;
  return refusal.http_status() == 400 || refusal.http_status() == 501;
}

std::optional<UploadSums> SumsRecord::at(TimePoint now) const {
  const Lock lock(mutex_);
  const bool lasts =
      sums_ && (sums_->level == SumLevel::kCrc32c || now - since_ < Learned::kForgottenAfter);
  return lasts ? sums_ : std::nullopt;
}

bool SumsRecord::learn(const UploadSums& sums, TimePoint now) {
  const Lock lock(mutex_);
  const bool is_new = !sums_ || sums_->level != sums.level;
  // An upload that lasts longer than that must not keep from trying again.
  if (is_new || now - since_ >= Learned::kForgottenAfter) since_ = now;
  sums_ = sums;
  return is_new;
}

}  // namespace headrace
