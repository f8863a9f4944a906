#include "headrace/store/writing/multipart_upload.h"

#include <algorithm>
#include <utility>

#include "headrace/format/running_sum.h"
#include "headrace/store/writing/append_attempts.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {

MultipartUpload::MultipartUpload(std::shared_ptr<RemoteRoot> remote,
                                 std::shared_ptr<RemoteRoot> uploader, WriteRequest target,
                                 WriteRequest at)
    : HttpUpload(std::move(remote), std::move(target)),
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

void MultipartUpload::send(std::shared_ptr<const UploadPart> part, Done done) {
  Waiting waiting{std::move(part), std::move(done)};
  std::string id;
  std::optional<Error> error;
  bool start = false;
  {
    const Lock lock(mutex_);
    if (tells_xxh64_) {
      for (const std::span<const std::byte> span : waiting.part->spans) xxh64_.extend(span);
    }
    if (start_error_) {
      error = *start_error_;
    } else if (id_.empty() || trying_) {
      start = !std::exchange(starting_, true);
      waiting_.push_back(std::exchange(waiting, {}));
    } else {
      id = id_;
    }
  }
  if (error) {
    waiting.done(std::unexpected(std::move(*error)));
  } else if (!id.empty()) {
    send_now(id, std::move(waiting));
  } else if (start) {
    track<std::string>(request_start(),
                       [this](Result<std::string> result) { started(std::move(result)); });
  }
}

std::shared_ptr<Pending<std::string>> MultipartUpload::request_start() {
  return uploader_->run<StartMultipartAttempt>(at_, sums_);
}

std::shared_ptr<Pending<SentPart>> MultipartUpload::request_part(
    const std::string& id, std::shared_ptr<const UploadPart> part) {
  return uploader_->run<SendPartAttempt>(at_.name, id, std::move(part), sums_,
                                         uploader_->engine().compute);
}

void MultipartUpload::started(Result<std::string> id) {
  std::deque<Waiting> waiting;
  std::optional<Error> error;
  {
    const Lock lock(mutex_);
    if (id) {
      id_ = *id;
      trying_ = !sums_->now().known;
    }
    if (trying_ && waiting_.size() > 1) {
      waiting.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    } else {
      waiting.swap(waiting_);
    }
    if (!id) {
      start_error_ = with_url(std::move(id.error()));
      error = *start_error_;
    }
  }
  for (Waiting& each : waiting) {
    if (error) {
      each.done(std::unexpected(*error));
    } else {
      send_now(*id, std::move(each));
    }
  }
}

void MultipartUpload::send_now(const std::string& id, Waiting waiting) {
  const uint32_t number = waiting.part->part_number;
  const uint64_t size_bytes = waiting.part->size_bytes;
  track<SentPart>(
      request_part(id, std::move(waiting.part)),
      [this, number, size_bytes, done = std::move(waiting.done)](Result<SentPart> sent) mutable {
        if (!sent) {
          done(std::unexpected(in_part(number, std::move(sent.error()))));
          end_trial();
          return;
        }
        {
          const Lock lock(mutex_);
          sent_.resize(std::max<size_t>(sent_.size(), number));
          sent_[number - 1] = std::move(*sent);
          sizes_.resize(sent_.size());
          sizes_[number - 1] = size_bytes;
        }
        done({});
        end_trial();
      });
}

void MultipartUpload::end_trial() {
  std::string id;
  std::deque<Waiting> waiting;
  {
    const Lock lock(mutex_);
    if (!std::exchange(trying_, false)) return;
    id = id_;
    waiting.swap(waiting_);
  }
  for (Waiting& each : waiting) send_now(id, std::move(each));
}

WholeSums MultipartUpload::whole_sums(const std::optional<Crc32c>& crc32c) {
  const UploadSums sums = sums_->now();
  WholeSums whole{.crc32c = crc32c, .always_told = sums.always_told};
  const Lock lock(mutex_);
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

std::string MultipartUpload::id() {
  const Lock lock(mutex_);
  return id_;
}

void MultipartUpload::complete(uint64_t size_bytes, std::optional<Crc32c> crc32c,
                               Precondition precondition, Published done) {
  std::string id;
  std::vector<SentPart> sent;
  WholeSums sums = whole_sums(crc32c);
  {
    const Lock lock(mutex_);
    id = id_;
    sent = sent_;
  }
  track<ObjectInfo>(uploader_->run<CompleteMultipartAttempt>(
                        at_.name, std::move(id), std::move(sent), size_bytes, sums,
                        std::move(precondition), uploader_->learned().conditions),
                    std::move(done));
}

void MultipartUpload::abort(std::string id, std::move_only_function<void(Result<bool>)> done) {
  uploader_->run<AbortMultipartAttempt>(at_.name, std::move(id))
      ->then([self = shared_from_this(), done = std::move(done)](Result<bool> result) mutable {
        done(std::move(result));
      });
}

// ── Directly ─────────────────────────────────────────────────────────────────────────────────

DirectMultipartUpload::DirectMultipartUpload(std::shared_ptr<RemoteRoot> remote,
                                             WriteRequest target)
    : MultipartUpload(remote, remote, target, target) {}

void DirectMultipartUpload::publish(const Whole& whole, Published done) {
  begin_publishing(whole, std::move(done));
  complete(whole.size_bytes, sum_of(whole), target_.precondition, [this](Result<ObjectInfo> info) {
    if (info) {
      {
        const Lock lock(mutex_);
        completed_ = true;
      }
      if (has_to_describe(uploader_->protocol(), *info, target_)) {
        describe(std::move(*info));
        return;
      }
      if (info->content_type.empty()) {
        info->content_type = content_type_or_default(target_.content_type);
        info->content_encoding = target_.content_encoding;
      }
    } else {
      info = std::unexpected(with_url(learn_from_refusal(std::move(info.error()))));
    }
    take_published(std::move(info));
  });
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

// The object is there, and whoever looks before it is described finds it without its type.
void DirectMultipartUpload::describe(ObjectInfo info) {
  track<bool>(uploader_->run<DescribeAttempt>(at_.name, target_),
              [this, info = std::move(info)](Result<bool> described) mutable {
                if (!described) {
                  Error error = with_url(std::move(described.error()));
                  finish(std::unexpected(std::move(error).with_words(
                      "it was written, but its content type and encoding could not be set: ")));
                  return;
                }
                info.content_type = target_.content_type;
                info.content_encoding = target_.content_encoding;
                take_published(std::move(info));
              });
}

void DirectMultipartUpload::begin_cleaning() {
  std::string id = this->id();
  bool completed = false;
  {
    const Lock lock(mutex_);
    completed = completed_;
  }
  if (id.empty() || completed) {
    cleaned({});
    return;
  }
  abort(std::move(id), [this](Result<bool> aborted) {
    if (aborted) {
      cleaned({});
    } else {
      cleaned(std::unexpected(Error(aborted.error().code(),
                                    cat("the unfinished upload of ", at_.name,
                                        " could not be aborted: ", aborted.error().message()))));
    }
  });
}

// ── Copied by the server ─────────────────────────────────────────────────────────────────────

CopyUpload::CopyUpload(std::shared_ptr<RemoteRoot> remote, CopyRequest request,
                       ObjectMetadata metadata)
    : DirectMultipartUpload(std::move(remote),
                            {.name = request.name, .precondition = request.precondition}),
      request_(std::move(request)),
      metadata_(std::move(metadata)) {
  sums_ = std::make_shared<SumLadder>(UploadSums{.known = true});  // nothing is sent
}

std::shared_ptr<Pending<std::string>> CopyUpload::request_start() {
  return uploader_->run<StartMultipartAttempt>(at_, sums_, metadata_);
}

std::shared_ptr<Pending<SentPart>> CopyUpload::request_part(
    const std::string& id, std::shared_ptr<const UploadPart> part) {
  return uploader_->run<CopyPartAttempt>(request_, id, std::move(part));
}

// ── By a temporary object ────────────────────────────────────────────────────────────────────

StagedMultipartUpload::StagedMultipartUpload(std::shared_ptr<RemoteRoot> remote,
                                             WriteRequest target)
    : MultipartUpload(remote, remote->bucket(), target,
                      {.name = cat(new_temporary_prefix(*remote), "000001"),
                       .content_type = target.content_type}) {}

void StagedMultipartUpload::publish(const Whole& whole, Published done) {
  begin_publishing(whole, std::move(done));
  {
    const Lock lock(mutex_);
    completing_ = true;
  }
  // Nobody else uses this name, so what is there can only be ours.
  complete(whole.size_bytes, whole.crc32c, {.generation = ""},
           [this, whole](Result<ObjectInfo> info) {
             if (!info) {
               finish(std::unexpected(with_url(std::move(info.error()))));
               return;
             }
             {
               const Lock lock(mutex_);
               generation_ = info->generation;
             }
             publish_joined({{.name = at_.name,
                              .generation = info->generation,
                              .size_bytes = whole.size_bytes,
                              .crc32c = whole.crc32c}});
           });
}

void StagedMultipartUpload::begin_cleaning() {
  std::string id = this->id(), generation;
  bool remove = false, unfinished = false;
  {
    const Lock lock(mutex_);
    generation = generation_;
    remove = completing_;
    unfinished = !id.empty() && generation_.empty();
    cleaning_steps_ = size_t{remove} + size_t{unfinished};
  }
  if (!remove && !unfinished) cleaned({});
  if (unfinished)
    abort(std::move(id), [this](Result<bool> result) { step_cleaned(std::move(result)); });
  if (remove) {
    Precondition condition;
    if (!generation.empty()) condition.generation = std::move(generation);
    uploader_
        ->run<RemoveAttempt>(at_.name, std::move(condition),
                             uploader_->learned().removal_conditions)
        ->then([this, self = shared_from_this()](Result<bool> result) {
          step_cleaned(std::move(result));
        });
  }
}

void StagedMultipartUpload::step_cleaned(Result<bool> result) {
  Result<void> all;
  {
    const Lock lock(mutex_);
    if (!result && result.error().code() != Code::kNotFound && !clean_error_) {
      clean_error_ = std::move(result.error());
    }
    if (--cleaning_steps_ > 0) return;
    if (clean_error_) {
      all = std::unexpected(
          Error(clean_error_->code(), cat("the temporary object ", at_.name,
                                          " could not be removed: ", clean_error_->message())));
    }
  }
  cleaned(std::move(all));
}

}  // namespace headrace
