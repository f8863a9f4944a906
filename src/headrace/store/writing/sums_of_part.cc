#include "headrace/store/writing/sums_of_part.h"

#include "headrace/format/running_sum.h"
#include "headrace/store/part_body.h"

namespace headrace {

Checksum SumsOfPart::of(ChecksumKind kind) const {
  if (kind == ChecksumKind::kNone) return {};
  if (kind == ChecksumKind::kCrc32c) return part_->crc32c;
  Checksum& kept = kind == ChecksumKind::kMd5 ? md5_ : other_;
  if (kept.kind() != kind) {
    RunningSum sum(kind);
    // What cannot be read now gives a sum that no service takes for right.
    static_cast<void>(
        for_each_piece(*part_, [&sum](std::span<const std::byte> piece) { sum.extend(piece); }));
    kept = sum.value();
  }
  return kept;
}

SentSums SumsOfPart::next() {
  now_ = ladder_->now();
  spoilt_ = false;
  const Checksum beside = now_.ignored ? of(ChecksumKind::kCrc32c) : Checksum();
  return {of(kind()), beside};
}

bool SumsOfPart::has_changed() const {
  if (part_->source != nullptr) return false;  // it is compared while it is sent
  Crc32c now;
  for (const std::span<const std::byte> span : part_->spans) now = now.extended(span);
  return now != part_->crc32c;
}

std::optional<Checksum> SumsOfPart::contradicted(const Checksum& told, const Checksum& md5) {
  std::optional<Checksum> ours;
  const bool compares = now_.level == SumLevel::kMd5 && now_.etags == Etags::kMd5 && !md5.empty();
  if (!told.empty() && told != of(told.kind())) {
    ours = of(told.kind());
  } else if (compares && md5 != of(ChecksumKind::kMd5)) {
    ours = of(ChecksumKind::kMd5);
  }
  spoilt_ = ours && !has_changed();
  return ours;
}

bool SumsOfPart::accepted(const Checksum& told, const Checksum& md5) {
  const bool is_told = !told.empty() && told.kind() == kind();
  const bool etags_are_asked = now_.level == SumLevel::kMd5 && now_.etags == Etags::kUnknown;
  // A service that has said that it takes sums, or is told to, is believed.
  if (now_.known && !etags_are_asked) return true;
  // That there are no bytes proves nothing, and teaches nothing about ETags.
  if (part_->size_bytes == 0 && !is_told) return true;
  // One that tells its sum does not have to be asked for more.
  const bool is_md5 = !is_told && !md5.empty() && md5 == of(ChecksumKind::kMd5);
  const UploadSums next = after_bytes(now_, is_told, is_md5);
  if (next.known) {
    ladder_->settle(next);
  } else {
    ladder_->try_next(next);
  }
  return next.known;
}

void SumsOfPart::accepted_for_good(const Checksum& told, const Checksum& md5) {
  if (accepted(told, md5)) return;
  UploadSums next = ladder_->now();
  next.known = true;
  ladder_->settle(next);
}

bool SumsOfPart::refused(Error& error) {
  if (error.code() == Code::kCorrupt) {
    spoilt_ = !has_changed();
    if (!spoilt_) {
      error =
          Error(Code::kCorrupt, cat("its bytes have changed since they were given to be written, "
                                    "which must wait until they are sent (",
                                    error.message(), ")"))
              .with_http_status(error.http_status())
              .with_request_id(error.request_id());
    }
    return false;
  }
  if (!may_be_about_sums(error)) return false;
  const std::optional<UploadSums> next = after_refused_bytes(now_);
  if (!next) {
    if (first_refusal_) error = std::move(*first_refusal_);
    return false;
  }
  if (!first_refusal_) first_refusal_ = std::move(error);
  ladder_->try_next(*next);
  return true;
}

}  // namespace headrace
