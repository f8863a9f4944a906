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
    Crc32c crc32c;  // in the same pass: the sum must be that of the bytes that were given
    const Result<void> read = for_each_piece(*part_, [&](std::span<const std::byte> piece) {
      sum.extend(piece);
      crc32c = crc32c.extended(piece);
    });
    // What cannot be read now gives a sum that no service takes for right.
    changed_ |= read && crc32c != part_->crc32c;
    kept = sum.value();
  }
  return kept;
}

SentSums SumsOfPart::next() {
  if (!is_own_) now_ = ladder_->now();
  spoilt_ = false;
  const Checksum beside = now_.ignored ? of(ChecksumKind::kCrc32c) : Checksum();
  return {of(kind()), beside};
}

void SumsOfPart::supervise(HttpRequest& request, const std::shared_ptr<ThreadPool>& readers,
                           BlockPool* pool) const {
  if (changed_ && !request.refused) request.refused = bytes_changed(*part_);
  const bool is_compared =
      kind() != ChecksumKind::kNone && (kind() != ChecksumKind::kMd5 || has_md5_etags());
  const bool holds_all = part_->is_lent() && !is_compared;
  if (part_->source == nullptr && !holds_all) return;
  request.body_source = std::make_shared<PartBody>(
      part_, holds_all ? PartBody::Holds::kAll : PartBody::Holds::kSource, readers,
      pool->shared_from_this());
  if (holds_all) request.body.clear();
}

bool SumsOfPart::has_changed() const {
  // Bytes of a source are compared while they are sent.
  Crc32c now = part_->source_crc32c;
  for (const std::span<const std::byte> span : part_->spans) now = now.extended(span);
  return changed_ || now != part_->crc32c;
}

SumsOfPart::Told SumsOfPart::told(const Protocol& protocol, const ResponseHead& head) const {
  const Checksum crc32c = protocol.told_sum(head, ChecksumKind::kCrc32c);
  return {
      .sum = kind() == ChecksumKind::kCrc32c ? crc32c : protocol.told_sum(head, kind()),
      .crc32c = crc32c,
      .md5 = protocol.told_md5(head),
  };
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

void SumsOfPart::descend_to(const UploadSums& next) {
  now_ = next;
  is_own_ = true;
}

Result<bool> SumsOfPart::accepted(const Told& told) {
  const bool is_told = !told.sum.empty();
  const bool etags_are_asked = now_.level == SumLevel::kMd5 && now_.etags == Etags::kUnknown;
  // A service that has said that it takes sums, or is told to, is believed.
  if (now_.known && !etags_are_asked) return true;
  // That there are no bytes proves nothing, and teaches nothing about ETags.
  if (part_->size_bytes == 0 && !is_told) return true;
  // One that tells its sum does not have to be asked for more.
  const bool is_md5 = !is_told && !told.md5.empty() && told.md5 == of(ChecksumKind::kMd5);
  if (changed_) return std::unexpected(bytes_changed(*part_));
  const UploadSums next = after_bytes(now_, is_told, is_md5);
  if (next.known) {
    now_ = next;
    is_own_ = false;
    ladder_->settle(next);
  } else {
    descend_to(next);
  }
  return next.known;
}

Result<void> SumsOfPart::accepted_for_good(const Told& told) {
  const Result<bool> is_known = accepted(told);
  if (!is_known) return std::unexpected(is_known.error());
  if (*is_known) return {};
  // Nothing has proved them.
  if (has_changed()) return std::unexpected(bytes_changed(*part_));
  now_.known = true;
  ladder_->settle(now_);
  return {};
}

bool SumsOfPart::refused(Error& error, bool blames_taken) {
  const bool is_spoilt = error.code() == Code::kCorrupt;
  const bool may_be_sums = may_be_about_sums(now_, error, blames_taken);
  const bool is_400 = error.http_status() == 400;
  // A service may have words of its own for bytes that arrived as others. Those that were spoilt
  // once are right when they are sent again: only a refusal that comes again is about the sum. 501
  // is about no bytes.
  const bool may_be_bytes =
      may_be_sums && is_400 && now_.level != SumLevel::kSize && part_->size_bytes > 0;
  if (is_spoilt || may_be_bytes) {
    const bool has_changed_meanwhile = has_changed();
    spoilt_ = is_spoilt && !has_changed_meanwhile;
    if (has_changed_meanwhile) {
      error = bytes_changed(*part_)
                  .with_words("", cat(" (", error.message(), ")"))
                  .with_http_status(error.http_status())
                  .with_request_id(error.request_id());
    }
    if (is_spoilt) was_repeated_ = false;  // the sum is understood
    if (is_spoilt || has_changed_meanwhile) return false;
  }
  if (!may_be_sums) return false;
  if (!first_refusal_) first_refusal_ = error;
  if (may_be_bytes && !std::exchange(was_repeated_, true)) return true;
  was_repeated_ = false;
  was_compared_ |= now_.known && now_.level != SumLevel::kSize;
  std::optional<UploadSums> next = after_refused_bytes(now_);
  // A file must not be read here, on an I/O thread.
  if (next && next->level == SumLevel::kMd5 && part_->source != nullptr && md5_.empty()) {
    next.reset();
  }
  // Bytes that the service has compared before are not given to it without any sum for a refusal
  // that may be about them.
  const bool is_bare = next && next->level == SumLevel::kSize && was_compared_ && is_400;
  if (!next || is_bare) {
    error = *first_refusal_;  // it may be asked for again
    return false;
  }
  descend_to(*next);
  return true;
}

}  // namespace headrace
