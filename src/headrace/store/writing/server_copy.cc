#include "headrace/store/writing/server_copy.h"

#include <algorithm>
#include <utility>

#include "headrace/store/part_sizes.h"
#include "headrace/store/read_batch.h"
#include "headrace/store/writing/multipart_upload.h"
#include "headrace/store/writing/uploads.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {

ServerCopy::ServerCopy(std::shared_ptr<RemoteRoot> remote, std::shared_ptr<ObjectStore> stored,
                       CopyRequest request)
    : Change(remote, remote->url_of(request.name), next_thread(*remote)),
      stored_(std::move(stored)),
      copies_(remote_->protocol().copies() != nullptr),
      request_(std::move(request)) {}

std::shared_ptr<Pending<ObjectInfo>> ServerCopy::start(std::shared_ptr<RemoteRoot> remote,
                                                       std::shared_ptr<ObjectStore> stored,
                                                       CopyRequest request,
                                                       std::optional<CopySource> source) {
  auto pending = std::make_shared<Pending<ObjectInfo>>();
  const std::shared_ptr<ServerCopy> copy(
      new ServerCopy(std::move(remote), std::move(stored), std::move(request)));
  pending->set_on_cancel([weak = std::weak_ptr(copy)] {
    if (const std::shared_ptr<ServerCopy> alive = weak.lock()) alive->abort();
  });
  copy->Change::start<ObjectInfo>([&] { return copy->copy(std::move(source)); },
                                  [copy, pending](Result<ObjectInfo> outcome) {
                                    copy->ended();
                                    pending->complete(std::move(outcome));
                                  });
  return pending;
}

Error ServerCopy::at_source(Code code, std::string message) const {
  return Error(code, std::move(message)).with_url(remote_->url_of(request_.source_name));
}

awaitable<Result<ObjectInfo>> ServerCopy::copy(std::optional<CopySource> source) {
  if (!source) {
    Result<CopySource> found =
        co_await request(remote_->run<CopySourceAttempt>(request_.source_name));
    if (!found) co_return std::unexpected(std::move(found.error()));
    source = std::move(*found);
  }
  const std::string source_url = remote_->url_of(request_.source_name);
  if (Result<void> good = check_copy_source(request_, source->info, source_url); !good) {
    co_return std::unexpected(std::move(good.error()).with_url(source_url).with_attempts(1));
  }
  if (copies_ && source->info.size_bytes <= remote_->write_limits().max_copy_bytes) {
    co_return co_await request(remote_->run<CopyAttempt>(request_, std::move(source->info)));
  }
  co_return co_await copy_in_parts(std::move(*source));
}

awaitable<Result<ObjectInfo>> ServerCopy::copy_in_parts(CopySource source) {
  if (Result<void> good = plan_parts(source.info); !good) {
    co_return std::unexpected(std::move(good.error()));
  }
  source_ = source.info;
  Result<std::shared_ptr<Upload>> upload = upload_of(std::move(source));
  if (!upload) co_return std::unexpected(std::move(upload.error()).with_url(url_));
  upload_ = std::move(*upload);
  if (!remote_->engine().writers->add(std::static_pointer_cast<ServerCopy>(shared_from_this()))) {
    co_return std::unexpected(Error(Code::kCancelled, "the engine was stopped").with_url(url_));
  }
  Result<ObjectInfo> outcome;
  try {
    outcome = co_await publish();
  } catch (const std::exception&) {  // out of memory: what has been sent must not stay
    outcome = fail(Code::kInternal, "no memory");
    fail_with(outcome.error());
    upload_->cancel();
  }
  while (in_flight_ > 0) co_await park();
  const Result<void> cleaned = co_await completion<Result<void>>(
      [this](Upload::Done done) { upload_->clean(std::move(done)); });
  if (!outcome && !cleaned) {
    Error error = std::move(outcome.error());
    outcome =
        std::unexpected(std::move(error).with_words("", cat("; ", cleaned.error().message())));
  }
  co_return outcome;
}

Result<void> ServerCopy::plan_parts(const ObjectInfo& source) {
  // Parts could be those of different objects. One part is read by one request.
  const bool in_one_part = source.generation.empty();
  if (in_one_part && (copies_ || source.size_bytes > kRelayedWholeBytes)) {
    const std::string_view most = copies_ ? "" : ", and it is too large for one part";
    return std::unexpected(
        at_source(copies_ ? Code::kCorrupt : Code::kInvalidArgument,
                  cat("the server tells no generation of it, so that the parts of a copy could be "
                      "those of different objects",
                      most, copies_ ? "" : ": read it, and write what was read")));
  }
  const WriteLimits& limits = remote_->write_limits();
  const uint64_t most_bytes = limits.max_multipart_parts * limits.max_multipart_part_bytes;
  if (copies_ && source.size_bytes > most_bytes) {
    return std::unexpected(at_source(
        Code::kInvalidArgument,
        cat("it has ", source.size_bytes, " bytes, and parts can only make ", most_bytes)));
  }
  request_.source_generation = source.generation;
  uint64_t least_bytes = limits.copied_part_bytes;
  if (!copies_) least_bytes = std::min(least_bytes, kRelayedPartBytes);
  if (in_one_part) least_bytes = kRelayedWholeBytes;
  part_bytes_ = equal_part_bytes(source.size_bytes, least_bytes, limits.max_multipart_parts);
  if (!copies_) {
    // Each is held.
    const uint64_t fitting = remote_->engine().pool->budget_bytes() / part_bytes_;
    parts_in_flight_ = static_cast<uint32_t>(std::clamp<uint64_t>(fitting, 1, kRelayedInFlight));
  }
  part_count_ = static_cast<uint32_t>((source.size_bytes + part_bytes_ - 1) / part_bytes_);
  read_.resize(part_count_);
  return {};
}

Result<std::shared_ptr<Upload>> ServerCopy::upload_of(CopySource source) {
  if (copies_) return std::make_shared<CopyUpload>(remote_, request_, std::move(source.metadata));
  return new_upload(remote_, UploadMethod::kDefault,
                    {.name = request_.name,
                     .content_type = source.info.content_type,
                     .content_encoding = source.info.content_encoding,
                     .precondition = request_.precondition});
}

// ── Parts ────────────────────────────────────────────────────────────────────────────────────

void ServerCopy::fail_with(const Error& error) {
  if (error_) return;
  error_ = error;
  cancel_requests();
}

awaitable<Result<void>> ServerCopy::send_parts() {
  for (uint32_t number = 1; number <= part_count_ && !error_; ++number) {
    ++in_flight_;
    Change::start<void>([this, number] { return send_part(number); },
                        [this, self = shared_from_this()](Result<void> sent) {
                          --in_flight_;
                          if (!sent) fail_with(sent.error());
                        });
    while (in_flight_ >= parts_in_flight_) co_await park();
  }
  while (in_flight_ > 0) co_await park();
  if (error_) co_return std::unexpected(*error_);
  co_return Result<void>();
}

awaitable<Result<void>> ServerCopy::send_part(uint32_t part_number) {
  const uint64_t offset = uint64_t{part_number - 1} * part_bytes_;
  auto part = std::make_shared<UploadPart>(
      UploadPart{.part_number = part_number,
                 .offset_bytes = offset,
                 .size_bytes = std::min(part_bytes_, source_.size_bytes - offset)});
  if (!copies_) {
    if (Result<void> read = co_await read_part(*part); !read) co_return read;
    // An upload is given its parts in turn, whichever was read first.
    while (part_number != next_part_ && !error_) co_await park();
    if (error_) co_return std::unexpected(*error_);
    ++next_part_;
    wake();
    if (part_count_ == 1) {
      single_ = std::move(part);
      co_return Result<void>();
    }
  }
  co_return co_await completion<Result<void>>(
      [upload = upload_, part = std::move(part)](Upload::Done done) mutable {
        upload->send(std::move(part), std::move(done));
      });
}

awaitable<Result<void>> ServerCopy::read_part(UploadPart& part) {
  part.blocks.push_back(remote_->engine().pool->allocate(part.size_bytes));
  const Block& block = part.blocks.back();
  if (block.data() == nullptr) {
    co_return std::unexpected(
        Error(Code::kExhausted, cat("the system has no memory for ", part.size_bytes, " bytes"))
            .with_url(url_));
  }
  part.spans.push_back(block.bytes());
  const ByteRange range{part.offset_bytes, part.offset_bytes + part.size_bytes};
  const std::shared_ptr<ReadBatch> batch = ReadBatch::create(1);
  const std::string name = remote_->root().full_name(request_.source_name);
  batch->add({.name = name,
              .generation = source_.generation,
              .size_bytes = source_.size_bytes,
              .range = part_count_ == 1 ? std::nullopt : std::optional(range),
              .into = block.bytes(),
              .has_into = true,
              .wanted_sum = ChecksumKind::kCrc32c});
  const Cancellable here(*this, [batch] { batch->cancel(); });
  co_await completion<bool>([this, &batch](std::move_only_function<void(bool)> resume) {
    // A std::function must be copyable.
    auto kept = std::make_shared<std::move_only_function<void(bool)>>(std::move(resume));
    batch->then([kept = std::move(kept)](ReadBatch&) { (*kept)(true); });
    batch->want();
    stored_->read(batch);
  });
  ReadSlot& slot = batch->slot(0);
  if (slot.error) co_return std::unexpected(*slot.error);
  part.crc32c = slot.sum().crc32c().value_or(Crc32c());
  read_[part.part_number - 1] = {.size_bytes = part.size_bytes, .crc32c = part.crc32c};
  co_return Result<void>();
}

awaitable<Result<ObjectInfo>> ServerCopy::publish() {
  const Cancellable here(*this, [this] {
    fail_with(Error(Code::kCancelled, "it was cancelled").with_url(url_));
    upload_->cancel();
  });
  if (Result<void> sent = co_await send_parts(); !sent) {
    co_return std::unexpected(std::move(sent.error()));
  }
  Upload::Whole whole{.part_count = part_count_, .size_bytes = source_.size_bytes};
  for (const Upload::Whole& part : read_) {
    whole.crc32c = whole.crc32c.joined(part.crc32c, part.size_bytes);
  }
  Result<ObjectInfo> copy = co_await completion<Result<ObjectInfo>>([&](Upload::Published done) {
    if (copies_ || part_count_ > 1) {
      upload_->publish(whole, std::move(done));
    } else if (single_ != nullptr) {
      upload_->publish_single(std::exchange(single_, nullptr), std::move(done));
    } else {
      upload_->publish_single(std::make_shared<const UploadPart>(), std::move(done));
    }
  });
  // The service may keep other sums of uploads than of what was written by one request.
  if (copy && compare_bytes(*copy, source_.size_bytes, source_.checksum) == Match::kOther) {
    copy =
        std::unexpected(Error(Code::kCorrupt, cat("the copy is not equal to its source: it has ",
                                                  copy->size_bytes, " bytes", crc32c_text(*copy)))
                            .with_url(url_));
  }
  co_return copy;
}

// ── Ending ───────────────────────────────────────────────────────────────────────────────────

void ServerCopy::ended() {
  remote_->engine().writers->forget(this);
  const Lock lock(mutex_);
  cleaned_ = true;
  changed_.notify_all();
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
