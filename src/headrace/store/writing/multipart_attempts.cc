#include "headrace/store/writing/multipart_attempts.h"

#include <utility>

#include "headrace/format/multipart_xml.h"

namespace headrace {

StartMultipartAttempt::StartMultipartAttempt(const Protocol& protocol, WriteRequest request)
    : TextAttempt(protocol), request_(std::move(request)) {}

Result<Attempt::Verdict> StartMultipartAttempt::finish() {
  Result<std::string> id = parse_upload_id(text());
  if (!id) return std::unexpected(std::move(id.error()));
  result = std::move(id);
  return Verdict::kDone;
}

SendPartAttempt::SendPartAttempt(const Protocol& protocol, std::string name, std::string upload_id,
                                 std::shared_ptr<const UploadPart> part)
    : TextAttempt(protocol),
      name_(std::move(name)),
      upload_id_(std::move(upload_id)),
      part_(std::move(part)) {}

void SendPartAttempt::build(HttpRequest& request) {
  protocol().multipart()->build_part(request, name_, upload_id_, part_->part_number, part_->spans,
                                     part_->crc32c);
}

Result<Attempt::Verdict> SendPartAttempt::finish() {
  const ResponseHead& head = response().head;
  SentPart sent{.part_number = part_->part_number,
                .etag = std::string(head.find("etag").value_or(""))};
  if (sent.etag.empty()) return corrupt("the answer to a part of an upload has no ETag");
  const Result<std::optional<Crc32c>> stored = protocol().multipart()->part_crc32c(head);
  if (!stored) return std::unexpected(stored.error());
  if (*stored) {
    if (**stored != part_->crc32c) {
      return corrupt("the server stored a part with CRC32C ", (*stored)->to_base64(),
                     " of which CRC32C ", part_->crc32c.to_base64(), " was sent");
    }
    sent.checksum = Checksum(**stored);
  }
  result = std::move(sent);
  return Verdict::kDone;
}

CompleteMultipartAttempt::CompleteMultipartAttempt(const Protocol& protocol, std::string name,
                                                   std::string upload_id,
                                                   std::vector<SentPart> parts, Upload::Whole whole,
                                                   Precondition precondition)
    : PublishAttempt(protocol, name, std::move(precondition)),
      name_(std::move(name)),
      upload_id_(std::move(upload_id)),
      parts_(std::move(parts)),
      whole_(whole) {}

void CompleteMultipartAttempt::build_change(HttpRequest& request,
                                            const Precondition& precondition) {
  protocol().multipart()->build_complete(request,
                                         {.name = name_,
                                          .upload_id = upload_id_,
                                          .parts = parts_,
                                          .size_bytes = whole_.size_bytes,
                                          .crc32c = whole_.crc32c,
                                          .precondition = precondition},
                                         scratch_);
}

Result<Attempt::Verdict> CompleteMultipartAttempt::finish_change() {
  if (Result<void> good = check_completion(text()); !good) {
    return std::unexpected(std::move(good.error()));
  }
  return look_at_result();
}

Match CompleteMultipartAttempt::compare(const ObjectInfo& found) const {
  return compare_bytes(found, whole_.size_bytes, whole_.crc32c);
}

std::optional<Error> CompleteMultipartAttempt::wrong_result(const ObjectInfo& found) const {
  return Error(
      Code::kCorrupt,
      cat("the server made ", found.size_bytes, " bytes", crc32c_text(found), " of ", parts_.size(),
          " parts with ", whole_.size_bytes, " bytes and CRC32C ", whole_.crc32c.to_base64()));
}

AbortMultipartAttempt::AbortMultipartAttempt(const Protocol& protocol, std::string name,
                                             std::string upload_id)
    : TextAttempt(protocol), name_(std::move(name)), upload_id_(std::move(upload_id)) {}

void AbortMultipartAttempt::build(HttpRequest& request) {
  protocol().multipart()->build_abort(request, name_, upload_id_);
}

Result<Attempt::Verdict> AbortMultipartAttempt::finish() {
  result = true;
  return Verdict::kDone;
}

Result<Attempt::Verdict> AbortMultipartAttempt::refused(Error error) {
  if (error.code() != Code::kNotFound) return std::unexpected(std::move(error));
  result = false;
  return Verdict::kDone;
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
