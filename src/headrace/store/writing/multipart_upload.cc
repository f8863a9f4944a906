#include "headrace/store/writing/multipart_upload.h"

#include <algorithm>
#include <utility>

#include "headrace/format/running_sum.h"
#include "headrace/store/writing/plain_attempt.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {

MultipartUpload::MultipartUpload(const std::shared_ptr<RemoteRoot>& remote,
                                 std::shared_ptr<RemoteRoot> uploader, WriteRequest target,
                                 WriteRequest at, IoThread& thread)
    : HttpUpload(remote, std::move(target), thread),
      uploader_(std::move(uploader)),
      at_(std::move(at)),
      sums_(uploader_->part_sums()),
      tells_xxh64_(remote_->stored_protocol().sum_told_with_parts() == ChecksumKind::kXxh64) {}

MultipartUpload::Limits MultipartUpload::limits() const {
  Limits limits = HttpUpload::limits();
  if (multipart().bounds_parts()) {
    limits.min_part_bytes =
        std::max(limits.min_part_bytes, remote_->write_limits().min_multipart_part_bytes);
  }
  limits.max_part_bytes = remote_->write_limits().max_multipart_part_bytes;
  limits.max_parts = remote_->write_limits().max_multipart_parts;
  limits.equal_parts = has_equal_parts();
  limits.rereads = !tells_xxh64_;  // which is of all bytes in their order
  return limits;
}

bool MultipartUpload::has_equal_parts() const {
  return multipart().has_equal_parts().value_or(
      remote_->learned().unequal_parts.at(std::chrono::steady_clock::now()) ==
      Learned::Treatment::kRefused);
}

// ── Parts ────────────────────────────────────────────────────────────────────────────────────

HttpUpload::Outgoing MultipartUpload::prepare(std::shared_ptr<const UploadPart> part) {
  if (tells_xxh64_) {
    for (const std::span<const std::byte> span : part->spans) xxh64_.extend(span);
  }
  if (!sums_->now().known) return {std::move(part)};  // the first part tells which ones
  SumsOfPart sums(part, sums_);
  return {std::move(part), std::move(sums)};
}

awaitable<Result<void>> MultipartUpload::send_part(Outgoing outgoing) {
  const uint32_t number = outgoing.part->part_number;
  const uint64_t size_bytes = outgoing.part->size_bytes;
  const bool is_first = !std::exchange(starting_, true);
  const FirstPart first(is_first ? this : nullptr);
  if (is_first) {
    Result<std::string> id = co_await request(request_start());
    if (id) {
      id_ = std::move(*id);
      trying_ = !sums_->now().known;
    } else {
      error_ = with_url(std::move(id.error()));
    }
    wake();
  }
  while (!is_first && !error_ && (id_.empty() || trying_)) co_await park();
  if (error_) co_return std::unexpected(*error_);
  Result<SentPart> sent = co_await request(request_part(std::move(outgoing)));
  if (sent) {
    sent_.resize(std::max<size_t>(sent_.size(), number));
    sent_[number - 1] = std::move(*sent);
    sizes_.resize(sent_.size());
    sizes_[number - 1] = size_bytes;
  } else if (trying_) {
    error_ = in_part(number, sent.error());
  }
  if (!sent) co_return std::unexpected(in_part(number, std::move(sent.error())));
  co_return Result<void>();
}

void MultipartUpload::first_part_ended() {
  if (!error_ && id_.empty()) error_ = Error(Code::kInternal, "no memory");
  trying_ = false;
  wake();
}

std::shared_ptr<Pending<std::string>> MultipartUpload::request_start() {
  return uploader_->run<StartMultipartAttempt>(at_, sums_);
}

std::shared_ptr<Pending<SentPart>> MultipartUpload::request_part(Outgoing outgoing) {
  if (!outgoing.sums) outgoing.sums.emplace(outgoing.part, sums_);
  return uploader_->run<SendPartAttempt>(at_.name, id_, std::move(outgoing.part),
                                         std::move(*outgoing.sums), uploader_->engine().compute);
}

WholeSums MultipartUpload::whole_sums(const std::optional<Crc32c>& crc32c) const {
  const UploadSums sums = sums_->now();
  WholeSums whole{.crc32c = crc32c, .always_told = sums.always_told};
  if (tells_xxh64_) whole.xxh64 = Checksum(ChecksumKind::kXxh64, xxh64_.value());
  if (sums.level == SumLevel::kCrc64Nvme && !sent_.empty()) {
    whole.crc64nvme = sent_[0].ours;
    for (size_t i = 1; i < sent_.size(); ++i) {
      whole.crc64nvme = joined(whole.crc64nvme, sent_[i].ours, sizes_[i]);
    }
  }
  if (crc32c && sums.sends_whole) {
    whole.sent = sums.level == SumLevel::kCrc64Nvme ? whole.crc64nvme : Checksum(crc32c);
  }
  return whole;
}

awaitable<Result<ObjectInfo>> MultipartUpload::complete(uint64_t size_bytes,
                                                        std::optional<Crc32c> crc32c,
                                                        Precondition precondition) {
  return request(uploader_->run<CompleteMultipartAttempt>(
      at_.name, id_, sent_, size_bytes, whole_sums(crc32c), std::move(precondition),
      uploader_->learned().conditions));
}

awaitable<Result<bool>> MultipartUpload::abort() {
  return result_of(uploader_->run<PlainAttempt>(at_.name, abort_of_multipart(at_.name, id_),
                                                PlainAttempt::Ends::kUpload));
}

// ── Directly ─────────────────────────────────────────────────────────────────────────────────

DirectMultipartUpload::DirectMultipartUpload(const std::shared_ptr<RemoteRoot>& remote,
                                             WriteRequest target, IoThread& thread)
    : MultipartUpload(remote, remote, target, target, thread) {}

awaitable<Result<ObjectInfo>> DirectMultipartUpload::publish_parts(Whole whole) {
  Result<ObjectInfo> info =
      co_await complete(whole.size_bytes, sum_of(whole), target_.precondition);
  if (!info) {
    info = std::unexpected(with_url(learn_from_refusal(std::move(info.error()))));
    co_return co_await published(std::move(info), whole);
  }
  completed_ = true;
  if (has_to_describe(uploader_->protocol(), *info, target_)) {
    // Until it is described, readers find the object without its type.
    Result<bool> described =
        co_await request(uploader_->run<PlainAttempt>(at_.name, description_of(at_.name, target_)));
    if (!described) {
      co_return std::unexpected(with_url(std::move(described.error()))
                                    .with_words("it was written, but its content type and encoding "
                                                "could not be set: "));
    }
    info->content_type = target_.content_type;
    info->content_encoding = target_.content_encoding;
  } else if (info->content_type.empty()) {
    info->content_type = content_type_or_default(target_.content_type);
    info->content_encoding = target_.content_encoding;
  }
  co_return info;
}

Error DirectMultipartUpload::learn_from_refusal(Error error) {
  if (multipart().has_equal_parts() || !multipart().wants_equal_parts(error)) return error;
  remote_->learned().unequal_parts.note(Learned::Treatment::kRefused,
                                        std::chrono::steady_clock::now());
  return std::move(error).with_words(
      "",
      "; from now on this process sends it parts of one size, as the option equal_parts does: "
      "write it again");
}

awaitable<Result<void>> DirectMultipartUpload::remove_rest() {
  if (id_.empty() || completed_) co_return Result<void>();
  const Result<bool> aborted = co_await abort();
  if (aborted) co_return Result<void>();
  co_return std::unexpected(
      Error(aborted.error().code(), cat("the unfinished upload of ", at_.name,
                                        " could not be aborted: ", aborted.error().message())));
}

// ── Copied by the server ─────────────────────────────────────────────────────────────────────

CopyUpload::CopyUpload(const std::shared_ptr<RemoteRoot>& remote, CopyRequest request,
                       ObjectMetadata metadata)
    : DirectMultipartUpload(remote, {.name = request.name, .precondition = request.precondition},
                            next_thread(*remote)),
      request_(std::move(request)),
      metadata_(std::move(metadata)) {
  sums_ = std::make_shared<SumLadder>(UploadSums{.known = true});  // nothing is sent
}

std::shared_ptr<Pending<std::string>> CopyUpload::request_start() {
  return uploader_->run<StartMultipartAttempt>(at_, sums_, metadata_);
}

std::shared_ptr<Pending<SentPart>> CopyUpload::request_part(Outgoing outgoing) {
  return uploader_->run<CopyPartAttempt>(request_, id_, std::move(outgoing.part));
}

// ── By a temporary object ────────────────────────────────────────────────────────────────────

StagedMultipartUpload::StagedMultipartUpload(const std::shared_ptr<RemoteRoot>& remote,
                                             WriteRequest target)
    : MultipartUpload(remote, remote->bucket(), target,
                      {.name = cat(new_temporary_prefix(*remote), "000001"),
                       .content_type = target.content_type},
                      next_thread(*remote)) {}

awaitable<Result<ObjectInfo>> StagedMultipartUpload::publish_parts(Whole whole) {
  completing_ = true;
  // Nobody else uses this name, so what is there can only be ours.
  Result<ObjectInfo> made =
      co_await complete(whole.size_bytes, whole.crc32c, Precondition{.generation = ""});
  if (!made) co_return std::unexpected(with_url(std::move(made.error())));
  generation_ = made->generation;
  Sources sources(1, {.name = at_.name,
                      .generation = generation_,
                      .size_bytes = whole.size_bytes,
                      .crc32c = whole.crc32c});
  co_return co_await publish_composed(std::move(sources), whole);
}

awaitable<Result<void>> StagedMultipartUpload::remove_rest() {
  Result<bool> aborted, removed;
  if (!id_.empty() && generation_.empty()) aborted = co_await abort();
  if (completing_) {
    Precondition condition;
    if (!generation_.empty()) condition.generation = generation_;
    removed = co_await result_of(uploader_->run<RemoveAttempt>(
        at_.name, std::move(condition), uploader_->learned().removal_conditions));
  }
  for (const Result<bool>& each : {aborted, removed}) {
    if (each || each.error().code() == Code::kNotFound) continue;
    co_return std::unexpected(Error(
        each.error().code(),
        cat("the temporary object ", at_.name, " could not be removed: ", each.error().message())));
  }
  co_return Result<void>();
}

}  // namespace headrace
