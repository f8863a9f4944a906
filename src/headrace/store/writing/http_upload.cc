#include "headrace/store/writing/http_upload.h"

#include <utility>

#include "headrace/store/transfer/stat_attempt.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {

HttpUpload::HttpUpload(std::shared_ptr<RemoteRoot> remote, WriteRequest target)
    : remote_(std::move(remote)),
      bucket_(remote_->bucket()),
      target_(std::move(target)),
      url_(remote_->url_of(target_.name)) {}

HttpUpload::Limits HttpUpload::limits() const {
  return {.max_object_bytes = remote_->write_limits().max_object_bytes};
}

std::string HttpUpload::new_temporary_prefix(const RemoteRoot& remote) {
  return remote.temporaries().new_upload();
}

Error HttpUpload::with_url(Error error) const { return std::move(error).with_url(url_); }

Error HttpUpload::in_part(uint32_t part_number, Error error) const {
  const std::string where = error.url().empty() ? "" : cat(" (", error.url(), ")");
  return with_url(std::move(error).with_words(cat("its part ", part_number, where, ": ")));
}

// ── Publishing ───────────────────────────────────────────────────────────────────────────────

HttpUpload::Whole HttpUpload::whole() {
  const Lock lock(mutex_);
  return whole_;
}

void HttpUpload::begin_publishing(const Whole& whole, Published done) {
  const Lock lock(mutex_);
  whole_ = whole;
  publish_done_ = std::move(done);
}

void HttpUpload::publish_joined(Sources sources) {
  Whole sum;
  for (const ComposeSource& source : sources) {
    sum.crc32c = sum.crc32c.joined(source.crc32c, source.size_bytes);
    sum.size_bytes += source.size_bytes;
  }
  const Whole wanted = whole();
  if (sum.size_bytes != wanted.size_bytes || sum.crc32c != wanted.crc32c) {
    finish(std::unexpected(
        Error(Code::kInternal, "its parts are not what was written").with_url(url_)));
    return;
  }
  track<ObjectInfo>(
      bucket_->run<ComposeAttempt>(ComposeRequest{.sources = std::move(sources),
                                                  .name = remote_->root().full_name(target_.name),
                                                  .content_type = target_.content_type,
                                                  .content_encoding = target_.content_encoding,
                                                  .precondition = target_.precondition,
                                                  .linger = kLinger}),
      [this](Result<ObjectInfo> info) {
        if (info) {
          if (Result<void> below = remote_->root().strip(*info); !below) {
            info = std::unexpected(std::move(below.error()).with_url(url_));
          }
        }
        take_published(std::move(info));
      });
}

std::shared_ptr<Pending<ObjectInfo>> HttpUpload::write(const std::shared_ptr<RemoteRoot>& remote,
                                                       WriteRequest request,
                                                       std::shared_ptr<const UploadPart> part) {
  return remote->run<WriteAttempt>(std::move(request), std::move(part), remote->write_facts());
}

void HttpUpload::publish_single(std::shared_ptr<const UploadPart> part, Published done) {
  begin_publishing({.part_count = 1, .size_bytes = part->size_bytes, .crc32c = part->crc32c},
                   std::move(done));
  track<ObjectInfo>(write(remote_, target_, std::move(part)),
                    [this](Result<ObjectInfo> info) { take_published(std::move(info)); });
}

void HttpUpload::take_published(Result<ObjectInfo> info) {
  if (!info && info.error().code() == Code::kCorrupt) {
    look_again(std::move(info.error()));
  } else {
    finish(std::move(info));
  }
}

void HttpUpload::look_again(Error error) {
  track<ObjectInfo>(remote_->run<StatAttempt>(target_.name), [this, error = std::move(error)](
                                                                 Result<ObjectInfo> found) mutable {
    const Whole wanted = whole();
    if (found && found->size_bytes == wanted.size_bytes && found->crc32c() == wanted.crc32c) {
      finish(std::move(found));
    } else {
      finish(std::unexpected(std::move(error)));
    }
  });
}

void HttpUpload::finish(Result<ObjectInfo> result) {
  Published done;
  {
    const Lock lock(mutex_);
    done = std::exchange(publish_done_, nullptr);
  }
  done(std::move(result));
}

// ── Ending ───────────────────────────────────────────────────────────────────────────────────

void HttpUpload::cancel() {
  std::vector<std::function<void()>> running;
  {
    const Lock lock(mutex_);
    cancelled_ = true;
    for (const auto& [key, cancel] : running_) running.push_back(cancel);
  }
  for (const std::function<void()>& cancel : running) cancel();
}

void HttpUpload::clean(Done done) {
  {
    const Lock lock(mutex_);
    clean_done_ = std::move(done);
    // A request of ours is still running, and its end will come back here.
    if (!running_.empty() || std::exchange(cleaning_, true)) return;
  }
  begin_cleaning();
}

void HttpUpload::cleaned(Result<void> result) {
  Done done;
  {
    const Lock lock(mutex_);
    done = std::exchange(clean_done_, nullptr);
  }
  done(std::move(result));
}

}  // namespace headrace
