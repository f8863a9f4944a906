#include "headrace/store/writing/sums_of_part.h"

#include <utility>

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

Result<SumsOfPart::Told> SumsOfPart::told(const Protocol& protocol,
                                          const ResponseHead& head) const {
  Result<Checksum> sum = protocol.told_sum(head, kind());
  if (!sum) return std::unexpected(std::move(sum.error()));
  Told told{.sum = *sum, .crc32c = *sum, .md5 = protocol.told_md5(head)};
  if (kind() == ChecksumKind::kCrc32c) return told;
  // Nobody asked for this one: if it is none, it is not compared.
  told.crc32c = protocol.told_sum(head, ChecksumKind::kCrc32c).value_or(Checksum());
  return told;
}

Checksum SumsOfPart::contradiction(const Told& told) {
  const bool compares_md5 = now_.level == SumLevel::kMd5 && now_.etags == Etags::kMd5;
  for (const Checksum& each : {told.sum, told.crc32c, compares_md5 ? told.md5 : Checksum()}) {
    if (each.empty() || each == of(each.kind())) continue;
    spoilt_ = !has_changed();
    return each;
  }
  spoilt_ = false;
  return {};
}

bool SumsOfPart::accepted(const Told& told) {
  const bool is_told = !told.sum.empty();
  const bool etags_are_asked = now_.level == SumLevel::kMd5 && now_.etags == Etags::kUnknown;
  // A service that has said that it takes sums, or is told to, is believed.
  if (now_.known && !etags_are_asked) return true;
  // That there are no bytes proves nothing, and teaches nothing about ETags.
  if (part_->size_bytes == 0 && !is_told) return true;
  // One that tells its sum does not have to be asked for more.
  const bool is_md5 = !is_told && !told.md5.empty() && told.md5 == of(ChecksumKind::kMd5);
  const UploadSums next = after_bytes(now_, is_told, is_md5);
  if (next.known) {
    ladder_->settle(next);
  } else {
    ladder_->try_next(next);
  }
  return next.known;
}

void SumsOfPart::accepted_for_good(const Told& told) {
  if (accepted(told)) return;
  UploadSums next = ladder_->now();
  next.known = true;
  ladder_->settle(next);
}

bool SumsOfPart::refused(Error& error) {
  const bool may_be_sums = may_be_about_sums(error);
  const std::optional<UploadSums> next =
      may_be_sums ? after_refused_bytes(now_) : std::optional<UploadSums>();
  // A service may have words of its own for bytes that arrived as others. Those that were spoilt
  // once are right when they are sent again: only a refusal that comes again is about the sum. 501
  // is about no bytes.
  const bool may_be_bytes = next && error.http_status() == 400 && part_->size_bytes > 0;
  if (error.code() == Code::kCorrupt || may_be_bytes) {
    if (error.code() == Code::kCorrupt) was_repeated_ = false;  // the sum is understood
    const bool has_changed_meanwhile = has_changed();
    spoilt_ = error.code() == Code::kCorrupt && !has_changed_meanwhile;
    if (has_changed_meanwhile) {
      error =
          Error(Code::kCorrupt, cat("its bytes have changed since they were given to be written, "
                                    "which must wait until they are sent (",
                                    error.message(), ")"))
              .with_http_status(error.http_status())
              .with_request_id(error.request_id());
    }
    if (!may_be_bytes || has_changed_meanwhile) return false;
  }
  if (!may_be_sums) return false;
  if (!next) {
    if (first_refusal_) error = *first_refusal_;  // it may be asked for again
    return false;
  }
  if (!first_refusal_) first_refusal_ = std::move(error);
  was_repeated_ = may_be_bytes && !was_repeated_;
  if (!was_repeated_) ladder_->try_next(*next);
  return true;
}

}  // namespace headrace
