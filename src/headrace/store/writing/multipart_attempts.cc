#include "headrace/store/writing/multipart_attempts.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "headrace/base/ascii.h"
#include "headrace/format/amz_checksum.h"
#include "headrace/store/multipart_uploads.h"

namespace headrace {

namespace {

// S3 gives the object the MD5 of the MD5s of its parts, which are their ETags, unless it encrypts.
bool is_of_parts(const ObjectInfo& found, std::span<const SentPart> parts) {
  const std::optional<CompositeChecksum> whole = composite_md5_of_etag(found.generation);
  if (!whole) return false;
  std::vector<Checksum> sums;
  for (const SentPart& part : parts) {
    const std::optional<Checksum> sum = md5_of_etag(unquoted_etag(part.etag));
    if (!sum) return false;
    sums.push_back(*sum);
  }
  return whole->is_of(sums);
}

// Longer than any that a service gives, and short enough for a request line.
constexpr size_t kMaxUploadIdBytes = 2048;

// An empty one would be taken for none yet; anything else that is no word is a page of a proxy's.
Result<void> check_upload_id(std::string_view id) {
  const auto is_odd = [](char each) {
    return each <= ' ' || each > '~' || each == '<' || each == '>' || each == '"';
  };
  if (!id.empty() && id.size() <= kMaxUploadIdBytes && std::ranges::none_of(id, is_odd)) return {};
  return corrupt("the answer to the start of an upload has no usable upload id, but ", id.size(),
                 " bytes: ", printable_line(id));
}

}  // namespace

StartMultipartAttempt::StartMultipartAttempt(const Protocol& protocol, WriteRequest request,
                                             std::shared_ptr<SumLadder> sums,
                                             std::optional<ObjectMetadata> copied)
    : TextAttempt(protocol),
      request_(std::move(request)),
      ladder_(std::move(sums)),
      now_(ladder_->now()),
      copied_(std::move(copied)) {}

void StartMultipartAttempt::build(HttpRequest& request) {
  if (copied_) {
    protocol().copies()->in_parts()->build_start(request, request_.name, *copied_);
  } else {
    protocol().multipart()->build_start(request, request_, level());
  }
}

Result<Attempt::Verdict> StartMultipartAttempt::finish() {
  Result<std::string> id = protocol().multipart()->parse_started(response());
  if (!id) return std::unexpected(std::move(id.error()));
  if (Result<void> good = check_upload_id(*id); !good) return std::unexpected(good.error());
  if (!copied_) {
    const UploadSums next =
        after_start(now_, protocol().multipart()->announced_sum(response().head, level()));
    if (next != now_) {
      ladder_->settle(next);
    } else {
      ladder_->begin_with(now_);
    }
  }
  result = std::move(id);
  return Verdict::kDone;
}

Result<Attempt::Verdict> StartMultipartAttempt::refused(Error error) {
  if (copied_ || !may_be_about_sums(now_, error, refusal()->blames_taken)) {
    return std::unexpected(std::move(error));
  }
  const std::optional<UploadSums> next = after_refused_start(now_);
  if (!first_refusal_) first_refusal_ = std::move(error);
  if (!next) return std::unexpected(*first_refusal_);
  now_ = *next;
  return Verdict::kAgain;
}

SendPartAttempt::SendPartAttempt(const Protocol& protocol, std::string name, std::string upload_id,
                                 std::shared_ptr<const UploadPart> part, SumsOfPart sums,
                                 std::shared_ptr<ThreadPool> readers)
    : TextAttempt(protocol),
      name_(std::move(name)),
      upload_id_(std::move(upload_id)),
      part_(std::move(part)),
      readers_(std::move(readers)),
      sums_(std::move(sums)) {}

void SendPartAttempt::build(HttpRequest& request) {
  protocol().multipart()->build_part(request, name_, upload_id_, part_->part_number, part_->spans,
                                     sums_.next());
  sums_.supervise(request, readers_, pool());
}

Result<Attempt::Verdict> SendPartAttempt::finish() {
  const ResponseHead& head = response().head;
  SentPart sent{.part_number = part_->part_number,
                .etag = std::string(head.find("etag").value_or(""))};
  if (sent.etag.empty() && protocol().multipart()->names_parts())
    return corrupt("the answer to a part of an upload has no ETag");
  const SumsOfPart::Told told = sums_.told(protocol(), head);
  if (const Checksum wrong = sums_.contradiction(told); !wrong.empty()) {
    return corrupt("the server stored a part with ", label(wrong.kind()), " ", to_base64(wrong),
                   " of which ", label(wrong.kind()), " ", to_base64(sums_.of(wrong.kind())),
                   " was sent");
  }
  const Result<bool> is_proved = sums_.accepted(told);
  if (!is_proved) return std::unexpected(is_proved.error());
  if (!*is_proved) return Verdict::kAgain;
  sent.checksum = told.sum;
  sent.ours = sums_.of(sums_.kind());
  result = std::move(sent);
  return Verdict::kDone;
}

Result<Attempt::Verdict> SendPartAttempt::refused(Error error) {
  if (sums_.refused(error, refusal()->blames_taken)) return Verdict::kAgain;
  return std::unexpected(std::move(error));
}

CopySourceAttempt::CopySourceAttempt(const Protocol& protocol, std::string name)
    : TextAttempt(protocol), name_(std::move(name)) {}

Result<Attempt::Verdict> CopySourceAttempt::finish() {
  Result<ObjectInfo> info = found_object(name_);
  if (!info) return std::unexpected(std::move(info.error()));
  result = CopySource{.info = std::move(*info)};
  if (const Copies* const copies = protocol().copies(); copies && copies->in_parts()) {
    result->metadata = copies->in_parts()->metadata(response().head);
  }
  return Verdict::kDone;
}

CopyPartAttempt::CopyPartAttempt(const Protocol& protocol, CopyRequest request,
                                 std::string upload_id, std::shared_ptr<const UploadPart> part)
    : TextAttempt(protocol),
      request_(std::move(request)),
      upload_id_(std::move(upload_id)),
      part_(std::move(part)) {}

void CopyPartAttempt::build(HttpRequest& request) {
  const uint64_t begin = part_->offset_bytes;
  protocol().copies()->in_parts()->build_part(request,
                                              {.source_name = request_.source_name,
                                               .source_generation = request_.source_generation,
                                               .range = {begin, begin + part_->size_bytes},
                                               .name = request_.name,
                                               .upload_id = upload_id_,
                                               .part_number = part_->part_number});
}

Result<Attempt::Verdict> CopyPartAttempt::finish() {
  Result<SentPart> sent =
      protocol().copies()->in_parts()->parse_part(response(), part_->part_number);
  if (!sent) return std::unexpected(std::move(sent.error()));
  result = std::move(sent);
  return Verdict::kDone;
}

// The one condition of this request is that on the source.
Result<Attempt::Verdict> CopyPartAttempt::refused(Error error) {
  if (error.code() != Code::kPreconditionFailed) return std::unexpected(std::move(error));
  return std::unexpected(std::move(error).with_message(
      cat(protocol().url_of(request_.source_name), " has changed while it was copied")));
}

CompleteMultipartAttempt::CompleteMultipartAttempt(const Protocol& protocol, std::string name,
                                                   std::string upload_id,
                                                   std::vector<SentPart> parts, uint64_t size_bytes,
                                                   WholeSums sums, Precondition precondition,
                                                   WriteConditions& conditions)
    : PublishAttempt(protocol, name, std::move(precondition), &conditions),
      name_(std::move(name)),
      upload_id_(std::move(upload_id)),
      parts_(std::move(parts)),
      size_bytes_(size_bytes),
      sums_(sums) {}

void CompleteMultipartAttempt::build_change(HttpRequest& request,
                                            const Precondition& precondition) {
  protocol().multipart()->build_complete(request,
                                         {.name = name_,
                                          .upload_id = upload_id_,
                                          .parts = parts_,
                                          .size_bytes = size_bytes_,
                                          .sum = sums_.sent,
                                          .precondition = precondition},
                                         scratch_);
}

Result<Attempt::Verdict> CompleteMultipartAttempt::finish_change() {
  Result<CompletedUpload> completed = protocol().multipart()->parse_completed(response());
  if (!completed) return take_refusal(std::move(completed.error()));
  made_generation_ = completed->generation;
  if (!sums_.crc32c || completed->generation.empty()) return look_at_result();
  // All but the time is known, as after a write by one request. A stat could only fail, and turn a
  // success into an error.
  bool is_proved = false;
  Checksum whole;
  for (const StoredChecksum& told : completed->checksums) {
    const Match match = compare_told(told);
    const auto* const of_whole = std::get_if<Checksum>(&told);
    if (match == Match::kOther && of_whole == nullptr) {
      return corrupt("the server made an object with a composite ",
                     label(std::get<CompositeChecksum>(told).kind()), " of ", to_text(told), " of ",
                     parts_.size(), " parts that have another one");
    }
    contradicted_ |= match == Match::kOther;
    is_proved |= match == Match::kSame;
    if (of_whole != nullptr && whole.empty() && sum_like(*of_whole) == *of_whole) whole = *of_whole;
  }
  if (contradicted_ || !is_proved) return look_at_result();
  return end_with_sum(std::move(completed->generation), whole);
}

Match CompleteMultipartAttempt::compare_told(const StoredChecksum& told) const {
  if (const auto* const whole = std::get_if<Checksum>(&told)) {
    const Checksum ours = sum_like(*whole);
    if ((!ours.empty() && ours == *whole) || is_composite(*whole)) return Match::kSame;
    return ours.empty() ? Match::kUnknown : Match::kOther;
  }
  const auto& composite = std::get<CompositeChecksum>(told);
  // Some call that of the whole one of the parts.
  const bool may_be_whole = composite.part_count() == 0 && !composite.of_sums().empty();
  if (may_be_whole && sum_like(composite.of_sums()) == composite.of_sums()) return Match::kSame;
  const std::vector<Checksum> parts = part_sums();
  // Where the service has told nothing of a part, there is nothing to compare with.
  const bool all_told = std::ranges::all_of(
      parts, [&](const Checksum& sum) { return sum.kind() == composite.kind(); });
  if (!all_told) return Match::kUnknown;
  return composite.is_of(parts) ? Match::kSame : Match::kOther;
}

std::vector<Checksum> CompleteMultipartAttempt::part_sums() const {
  std::vector<Checksum> sums;
  sums.reserve(parts_.size());
  for (const SentPart& part : parts_) sums.push_back(part.checksum);
  return sums;
}

bool CompleteMultipartAttempt::is_composite(const Checksum& told) const {
  return CompositeChecksum(told, static_cast<uint32_t>(parts_.size())).is_of(part_sums());
}

Attempt::Verdict CompleteMultipartAttempt::end_with_sum(std::string generation, Checksum sum) {
  ObjectInfo info;
  info.name = name_;
  info.size_bytes = size_bytes_;
  info.generation = std::move(generation);
  info.checksum = sum;
  result = std::move(info);
  return Verdict::kDone;
}

Checksum CompleteMultipartAttempt::sum_like(const Checksum& told) const {
  switch (told.kind()) {
    case ChecksumKind::kXxh64: return sums_.xxh64;
    case ChecksumKind::kCrc64Nvme: return sums_.crc64nvme;
    case ChecksumKind::kCrc32c: return sums_.crc32c;
    default: return {};
  }
}

Match CompleteMultipartAttempt::compare(const ObjectInfo& found) const {
  const Match match = compare_bytes(found, size_bytes_, sum_like(found.checksum));
  if (match == Match::kOther && found.size_bytes == size_bytes_ && is_composite(found.checksum)) {
    return Match::kSame;
  }
  return match == Match::kUnknown && is_of_parts(found, parts_) ? Match::kSame : match;
}

bool CompleteMultipartAttempt::is_good(Match match) const {
  return match == Match::kSame ||
         (match == Match::kUnknown && !contradicted_ && (!sums_.crc32c || !sums_.always_told));
}

// What is there is another writer's, if it is not what the answer named.
std::optional<ObjectInfo> CompleteMultipartAttempt::made_object(const ObjectInfo& found) const {
  // Where each sum is told, the answer's ETag need not be the generation.
  const bool is_told = !made_generation_.empty() && !sums_.always_told && !contradicted_;
  if (!is_told || found.generation == made_generation_) return {};
  return ObjectInfo{.name = name_, .size_bytes = size_bytes_, .generation = made_generation_};
}

std::optional<Error> CompleteMultipartAttempt::wrong_result(const ObjectInfo& found) const {
  return Error(Code::kCorrupt,
               cat("the server made ", found.size_bytes, " bytes", crc32c_text(found), " of ",
                   parts_.size(), " parts with ", size_bytes_, " bytes",
                   sums_.crc32c ? cat(" and CRC32C ", sums_.crc32c->to_base64()) : ""));
}

ListMultipartAttempt::ListMultipartAttempt(const Protocol& protocol, std::string prefix,
                                           std::string after_name, std::string after_upload_id)
    : TextAttempt(protocol),
      prefix_(std::move(prefix)),
      after_name_(std::move(after_name)),
      after_upload_id_(std::move(after_upload_id)) {}

void ListMultipartAttempt::build(HttpRequest& request) {
  protocol().multipart()->build_list(request, prefix_, after_name_, after_upload_id_);
}

Result<Attempt::Verdict> ListMultipartAttempt::finish() {
  Result<UploadsPage> page = parse_uploads(text());
  if (!page) return std::unexpected(std::move(page.error()));
  if (Result<void> below = protocol().root().strip(*page); !below) {
    return std::unexpected(std::move(below.error()));
  }
  result = std::move(page);
  return Verdict::kDone;
}

}  // namespace headrace
