#include "headrace/store/writing/server_copy.h"

#include <algorithm>
#include <utility>

#include "headrace/store/part_sizes.h"
#include "headrace/store/writing/relayed_upload.h"
#include "headrace/store/writing/uploads.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {

ServerCopy::ServerCopy(std::shared_ptr<RemoteRoot> remote, std::shared_ptr<ObjectStore> stored,
                       CopyRequest request, std::shared_ptr<Pending<ObjectInfo>> pending)
    : remote_(std::move(remote)),
      stored_(std::move(stored)),
      copies_(remote_->protocol().copies() != nullptr),
      request_(std::move(request)),
      pending_(std::move(pending)) {}

std::shared_ptr<Pending<ObjectInfo>> ServerCopy::start(std::shared_ptr<RemoteRoot> remote,
                                                       std::shared_ptr<ObjectStore> stored,
                                                       CopyRequest request,
                                                       std::optional<CopySource> source) {
  auto pending = std::make_shared<Pending<ObjectInfo>>();
  const std::shared_ptr<ServerCopy> copy(
      new ServerCopy(std::move(remote), std::move(stored), std::move(request), pending));
  pending->set_on_cancel([weak = std::weak_ptr(copy)] {
    if (const std::shared_ptr<ServerCopy> alive = weak.lock()) alive->abort();
  });
  if (source) {
    copy->took_source(std::move(*source));
    return pending;
  }
  copy->wait_for<CopySource>(
      copy->remote_->run<CopySourceAttempt>(copy->request_.source_name),
      [copy](Result<CopySource> found) { copy->took_source(std::move(found)); });
  return pending;
}

template <class T>
void ServerCopy::wait_for(std::shared_ptr<Pending<T>> pending,
                          std::move_only_function<void(Result<T>)> then) {
  bool aborted = false;
  {
    const Lock lock(mutex_);
    cancel_step_ = [pending] { pending->cancel(); };
    aborted = error_.has_value();
  }
  if (aborted) pending->cancel();
  pending->then([self = shared_from_this(), then = std::move(then)](Result<T> result) mutable {
    std::function<void()> dropped;  // destroyed outside the lock: it may own the request
    {
      const Lock lock(self->mutex_);
      dropped.swap(self->cancel_step_);
    }
    then(std::move(result));
  });
}

void ServerCopy::took_source(Result<CopySource> source) {
  if (!source) {
    finish(std::unexpected(std::move(source.error())));
    return;
  }
  const std::string source_url = remote_->url_of(request_.source_name);
  if (Result<void> good = check_copy_source(request_, source->info, source_url); !good) {
    finish(std::unexpected(std::move(good.error()).with_url(source_url).with_attempts(1)));
    return;
  }
  if (!copies_ || source->info.size_bytes > remote_->write_limits().max_copy_bytes) {
    begin_parts(std::move(*source));
    return;
  }
  wait_for<ObjectInfo>(
      remote_->run<CopyAttempt>(request_, std::move(source->info)),
      [self = shared_from_this()](Result<ObjectInfo> copy) { self->finish(std::move(copy)); });
}

void ServerCopy::begin_parts(CopySource source) {
  // Parts could be those of different objects. One part is read by one request.
  const bool in_one_part = source.info.generation.empty();
  if (in_one_part && (copies_ || source.info.size_bytes > kRelayedWholeBytes)) {
    const std::string_view most = copies_ ? "" : ", and it is too large for one part";
    finish(std::unexpected(
        Error(copies_ ? Code::kCorrupt : Code::kInvalidArgument,
              cat("the server tells no generation of it, so that the parts of a copy could be "
                  "those of different objects",
                  most, copies_ ? "" : ": read it, and write what was read"))
            .with_url(remote_->url_of(request_.source_name))));
    return;
  }
  const WriteLimits& limits = remote_->write_limits();
  const uint64_t most_bytes = limits.max_multipart_parts * limits.max_multipart_part_bytes;
  if (copies_ && source.info.size_bytes > most_bytes) {
    finish(std::unexpected(
        Error(Code::kInvalidArgument, cat("it has ", source.info.size_bytes,
                                          " bytes, and parts can only make ", most_bytes))
            .with_url(remote_->url_of(request_.source_name))));
    return;
  }
  request_.source_generation = source.info.generation;
  size_bytes_ = source.info.size_bytes;
  checksum_ = source.info.checksum;
  uint64_t least_bytes = limits.copied_part_bytes;
  if (!copies_) least_bytes = std::min(least_bytes, kRelayedPartBytes);
  if (in_one_part) least_bytes = kRelayedWholeBytes;
  part_bytes_ = equal_part_bytes(size_bytes_, least_bytes, limits.max_multipart_parts);
  if (!copies_) {
    // Each is held.
    const uint64_t fitting = remote_->engine().pool->budget_bytes() / part_bytes_;
    parts_in_flight_ = static_cast<uint32_t>(std::clamp<uint64_t>(fitting, 1, kRelayedInFlight));
  }
  part_count_ = static_cast<uint32_t>((size_bytes_ + part_bytes_ - 1) / part_bytes_);
  Result<std::shared_ptr<Upload>> upload = upload_of(std::move(source));
  if (!upload) {
    finish(std::unexpected(std::move(upload.error()).with_url(remote_->url_of(request_.name))));
    return;
  }
  {
    const Lock lock(mutex_);
    upload_ = std::move(*upload);
  }
  if (!remote_->engine().writers->add(shared_from_this())) {
    finish(std::unexpected(Error(Code::kCancelled, "the engine was stopped")
                               .with_url(remote_->url_of(request_.name))));
    return;
  }
  advance();
}

Result<std::shared_ptr<Upload>> ServerCopy::upload_of(CopySource source) {
  if (copies_) return std::make_shared<CopyUpload>(remote_, request_, std::move(source.metadata));
  Result<std::shared_ptr<Upload>> to = new_upload(remote_, UploadMethod::kDefault,
                                                  {.name = request_.name,
                                                   .content_type = source.info.content_type,
                                                   .content_encoding = source.info.content_encoding,
                                                   .precondition = request_.precondition});
  if (!to) return to;
  return std::make_shared<RelayedUpload>(remote_, stored_, std::move(*to), request_,
                                         std::move(source.info), part_count_);
}

void ServerCopy::advance() {
  while (true) {
    std::shared_ptr<Upload> upload;
    std::shared_ptr<const UploadPart> part;
    std::optional<Error> error;
    {
      const Lock lock(mutex_);
      upload = upload_;
      const bool is_more = next_part_ <= part_count_ && !error_;
      if (is_more && in_flight_ < parts_in_flight_) {
        const uint64_t offset = uint64_t{next_part_ - 1} * part_bytes_;
        part = std::make_shared<UploadPart>(
            UploadPart{.part_number = next_part_,
                       .offset_bytes = offset,
                       .size_bytes = std::min(part_bytes_, size_bytes_ - offset)});
        ++next_part_;
        ++in_flight_;
      } else if (is_more || in_flight_ > 0 || std::exchange(parts_ended_, true)) {
        return;
      }
      error = error_;
    }
    if (part != nullptr) {
      upload->send(std::move(part), [self = shared_from_this()](Result<void> result) {
        self->part_done(std::move(result));
      });
    } else if (error) {
      clean(std::unexpected(std::move(*error)));
      return;
    } else {
      upload->publish({.part_count = part_count_, .size_bytes = size_bytes_},
                      [self = shared_from_this()](Result<ObjectInfo> copy) {
                        self->published(std::move(copy));
                      });
      return;
    }
  }
}

void ServerCopy::part_done(Result<void> result) {
  std::shared_ptr<Upload> failed;
  {
    const Lock lock(mutex_);
    --in_flight_;
    if (!result && !error_) {
      error_ = std::move(result.error());
      failed = upload_;
    }
  }
  if (failed != nullptr) failed->cancel();
  advance();
}

// The service may keep other sums of uploads than of what was written by one request.
void ServerCopy::published(Result<ObjectInfo> copy) {
  if (copy && compare_bytes(*copy, size_bytes_, checksum_) == Match::kOther) {
    copy =
        std::unexpected(Error(Code::kCorrupt, cat("the copy is not equal to its source: it has ",
                                                  copy->size_bytes, " bytes", crc32c_text(*copy)))
                            .with_url(remote_->url_of(request_.name)));
  }
  clean(std::move(copy));
}

void ServerCopy::clean(Result<ObjectInfo> outcome) {
  std::shared_ptr<Upload> upload;
  {
    const Lock lock(mutex_);
    upload = upload_;
  }
  upload->clean([self = shared_from_this(),
                 outcome = std::move(outcome)](Result<void> cleaned) mutable {
    if (!outcome && !cleaned) {
      Error error = std::move(outcome.error());
      outcome =
          std::unexpected(std::move(error).with_words("", cat("; ", cleaned.error().message())));
    }
    self->finish(std::move(outcome));
  });
}

void ServerCopy::finish(Result<ObjectInfo> outcome) {
  remote_->engine().writers->forget(this);
  {
    const Lock lock(mutex_);
    cleaned_ = true;
    changed_.notify_all();
  }
  pending_->complete(std::move(outcome));
}

void ServerCopy::abort() {
  std::function<void()> cancel_step;
  std::shared_ptr<Upload> upload;
  {
    const Lock lock(mutex_);
    if (!error_) {
      error_ = Error(Code::kCancelled, "it was cancelled").with_url(remote_->url_of(request_.name));
    }
    cancel_step = cancel_step_;
    upload = upload_;
  }
  if (cancel_step) cancel_step();
  if (upload != nullptr) upload->cancel();
}

bool ServerCopy::wait_cleaned(std::chrono::steady_clock::time_point until, MayBlock) {
  const Lock lock(mutex_);
  while (!cleaned_) {
    if (changed_.wait_until(mutex_, until) == std::cv_status::timeout) break;
  }
  return cleaned_;
}

std::shared_ptr<Pending<ObjectInfo>> copy_object(const std::shared_ptr<RemoteRoot>& remote,
                                                 std::shared_ptr<ObjectStore> stored,
                                                 CopyRequest request,
                                                 std::optional<CopySource> source) {
  const Copies* const copies = remote->protocol().copies();
  if (copies == nullptr || copies->in_parts() != nullptr) {
    return ServerCopy::start(remote, std::move(stored), std::move(request), std::move(source));
  }
  if (!source) return remote->run<CopyAttempt>(std::move(request));
  return remote->run<CopyAttempt>(std::move(request), std::move(source->info));
}

}  // namespace headrace
