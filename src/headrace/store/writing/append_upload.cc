#include "headrace/store/writing/append_upload.h"

#include <utility>

#include "headrace/store/appends.h"
#include "headrace/store/transfer/retry.h"
#include "headrace/store/transfer/stat_attempt.h"
#include "headrace/store/writing/append_attempts.h"
#include "headrace/store/writing/rename_attempt.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {

AppendUpload::AppendUpload(std::shared_ptr<RemoteRoot> remote, WriteRequest target)
    : HttpUpload(std::move(remote), std::move(target)) {}

std::string AppendUpload::temporary() {
  const Lock lock(mutex_);
  return temporary_;
}

std::string AppendUpload::full_target() const { return remote_->root().full_name(target_.name); }

void AppendUpload::choose_name(Result<bool> known) {
  std::string name;
  if (known) {
    name = bucket_->name_beside(cat(new_temporary_prefix(*remote_), "stream-"), full_target());
    if (name.empty()) known = fail(Code::kUnavailable, "the cluster has no target for it");
  }
  {
    const Lock lock(mutex_);
    busy_ = false;
    if (!known) error_ = with_url(std::move(known.error()));
    temporary_ = std::move(name);
  }
  advance();
}

void AppendUpload::send(std::shared_ptr<const UploadPart> part, Done done) {
  const uint32_t number = part->part_number;
  {
    const Lock lock(mutex_);
    waiting_.emplace(number, Waiting{std::move(part), std::move(done)});
  }
  advance();
}

void AppendUpload::advance() {
  Waiting next;
  std::string handle;
  std::optional<Error> error;
  bool choose = false;
  {
    const Lock lock(mutex_);
    if (busy_ || waiting_.empty()) return;
    choose = !std::exchange(named_, true);
    if (choose) busy_ = true;
  }
  if (choose) {
    track<bool>(bucket_->know_map(), [this](Result<bool> known) { choose_name(std::move(known)); });
    return;
  }
  {
    const Lock lock(mutex_);
    if (busy_ || waiting_.empty()) return;
    const auto first = waiting_.begin();
    if (!error_ && first->first != next_part_) return;
    next = std::move(first->second);
    waiting_.erase(first);
    error = error_;
    if (!error) {
      busy_ = true;
      ++next_part_;
      handle = handle_;
      for (const std::span<const std::byte> span : next.part->spans) sum_.extend(span);
    }
  }
  if (error) {
    next.done(std::unexpected(std::move(*error)));
    advance();
    return;
  }
  const uint32_t number = next.part->part_number;
  track<std::string>(
      bucket_->run<AppendAttempt>(temporary(), std::move(handle), std::move(next.part)),
      [this, number, done = std::move(next.done)](Result<std::string> result) mutable {
        appended(number, std::move(done), std::move(result));
      });
}

void AppendUpload::appended(uint32_t part_number, Done done, Result<std::string> handle) {
  std::optional<Error> error;
  {
    const Lock lock(mutex_);
    busy_ = false;
    if (handle) {
      handle_ = std::move(*handle);
    } else {
      Error failed = std::move(handle.error());
      if (is_retryable(failed)) {
        failed = Error(failed.code(), cat(failed.message(),
                                          "; a piece of a stream cannot be sent twice, so the "
                                          "object has to be written again"))
                     .with_http_status(failed.http_status())
                     .with_attempts(failed.attempts());
      }
      error_ = in_part(part_number, std::move(failed));
      error = *error_;
    }
  }
  if (error) {
    done(std::unexpected(std::move(*error)));
  } else {
    done({});
  }
  advance();
}

// ── Publishing ───────────────────────────────────────────────────────────────────────────────

void AppendUpload::publish(const Whole& whole, Published done) {
  begin_publishing(whole, std::move(done));
  std::string handle;
  {
    const Lock lock(mutex_);
    handle = handle_;
    flushed_ = true;
  }
  track<bool>(bucket_->run<FlushAttempt>(temporary(), std::move(handle)),
              [this](Result<bool> result) {
                look_at_temporary(result ? std::nullopt : std::optional(std::move(result.error())));
              });
}

void AppendUpload::look_at_temporary(std::optional<Error> flush_error) {
  track<ObjectInfo>(
      bucket_->run<StatAttempt>(temporary()),
      [this, flush_error = std::move(flush_error)](Result<ObjectInfo> found) {
        if (!found) {
          finish(std::unexpected(with_url(flush_error ? *flush_error : found.error())));
        } else {
          check(*found);
        }
      });
}

void AppendUpload::check(const ObjectInfo& temporary) {
  const Whole wanted = whole();
  Checksum sum(wanted.crc32c);
  if (temporary.checksum.kind() == ChecksumKind::kXxh64) {
    const Lock lock(mutex_);
    sum = Checksum(ChecksumKind::kXxh64, sum_.value());
  }
  const bool comparable = temporary.checksum.kind() == sum.kind();
  if (temporary.size_bytes != wanted.size_bytes || (comparable && temporary.checksum != sum)) {
    finish(std::unexpected(Error(Code::kCorrupt, cat("the server has ", temporary.size_bytes,
                                                     " bytes of the stream, "
                                                     "which are not the ",
                                                     wanted.size_bytes, " that were sent"))
                               .with_url(url_)));
    return;
  }
  if (!bucket_->are_together(temporary.name, full_target()) &&
      !bucket_->protocol().appends()->moves_to(full_target())) {
    finish(std::unexpected(Error(Code::kUnavailable,
                                 "the cluster has changed while it was written, and cannot move an "
                                 "object of such a name: it has to be written again")
                               .with_url(url_)));
    return;
  }
  if (!has_to_describe(bucket_->protocol(), temporary, target_)) {
    rename(temporary);
    return;
  }
  track<bool>(bucket_->run<DescribeAttempt>(temporary.name, target_),
              [this, temporary](Result<bool> described) {
                if (described) {
                  rename(temporary);
                } else {
                  finish(std::unexpected(with_url(std::move(described.error()))));
                }
              });
}

void AppendUpload::rename(ObjectInfo temporary) {
  // Nobody else writes under this name, and a server may count a description as a version.
  temporary.generation.clear();
  temporary.content_type = target_.content_type;
  temporary.content_encoding = target_.content_encoding;
  CopyRequest request{
      .source_name = temporary.name, .name = full_target(), .precondition = target_.precondition};
  track<ObjectInfo>(bucket_->run<RenameAttempt>(std::move(request), std::move(temporary)),
                    [this](Result<ObjectInfo> info) {
                      if (info) {
                        {
                          const Lock lock(mutex_);
                          renamed_ = true;
                        }
                        if (Result<void> below = remote_->root().strip(*info); !below) {
                          info = std::unexpected(std::move(below.error()).with_url(url_));
                        }
                      } else {
                        info = std::unexpected(with_url(std::move(info.error())));
                      }
                      take_published(std::move(info));
                    });
}

// ── Ending ───────────────────────────────────────────────────────────────────────────────────

// A stream that was never flushed is flushed first: only an object can be removed.
void AppendUpload::begin_cleaning() {
  std::string handle;
  bool flushed = false, nothing = false;
  {
    const Lock lock(mutex_);
    handle = handle_;
    flushed = flushed_;
    nothing = handle_.empty() || renamed_;
  }
  if (nothing) {
    cleaned({});
    return;
  }
  const auto remove = [this, self = shared_from_this()] {
    bucket_->run<RemoveAttempt>(temporary(), Precondition{}, bucket_->learned().removal_conditions)
        ->then([this, self](Result<bool> removed) {
          if (removed || removed.error().code() == Code::kNotFound) {
            cleaned({});
          } else {
            cleaned(
                std::unexpected(Error(removed.error().code(),
                                      cat("the temporary object ", temporary(),
                                          " could not be removed: ", removed.error().message()))));
          }
        });
  };
  if (flushed) {
    remove();
  } else {
    bucket_->run<FlushAttempt>(temporary(), std::move(handle))->then([remove](const Result<bool>&) {
      remove();
    });
  }
}

}  // namespace headrace
