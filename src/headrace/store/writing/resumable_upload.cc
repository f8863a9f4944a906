#include "headrace/store/writing/resumable_upload.h"

#include <utility>

#include "headrace/store/writing/resumable_attempts.h"

namespace headrace {

ResumableUpload::ResumableUpload(std::shared_ptr<RemoteRoot> remote, WriteRequest target)
    : HttpUpload(std::move(remote), std::move(target)) {}

ResumableUpload::Limits ResumableUpload::limits() const {
  Limits limits = HttpUpload::limits();
  limits.part_unit_bytes = kUnitBytes;
  return limits;
}

void ResumableUpload::send(std::shared_ptr<const UploadPart> part, Done done) {
  {
    const Lock lock(mutex_);
    waiting_.push_back({std::move(part), std::move(done)});
  }
  advance();
}

void ResumableUpload::publish(const Whole& whole, Published done) {
  begin_publishing(whole, std::move(done));
  finish_stream();
}

void ResumableUpload::publish_single(std::shared_ptr<const UploadPart> part, Published done) {
  if (part->size_bytes < kResumeFromBytes) {
    HttpUpload::publish_single(std::move(part), std::move(done));
    return;
  }
  begin_publishing({.part_count = 1, .size_bytes = part->size_bytes, .crc32c = part->crc32c},
                   std::move(done));
  {
    const Lock lock(mutex_);
    rest_ = std::move(part);
  }
  track<std::string>(remote_->run<StartResumableAttempt>(target_),
                     [this](Result<std::string> session) {
                       if (!session) {
                         finish(std::unexpected(with_url(std::move(session.error()))));
                         return;
                       }
                       {
                         const Lock lock(mutex_);
                         session_ = std::move(*session);
                       }
                       finish_stream();
                     });
}

void ResumableUpload::advance() {
  enum class Next : uint8_t { kNothing, kStart, kSend, kFail } next = Next::kNothing;
  Waiting waiting;
  std::optional<Error> error;
  {
    const Lock lock(mutex_);
    if (busy_ || waiting_.empty()) return;
    busy_ = true;
    if (error_) {
      next = Next::kFail;
      error = *error_;
      busy_ = false;
    } else if (session_.empty()) {
      next = Next::kStart;
    } else {
      next = Next::kSend;
    }
    if (next != Next::kStart) {
      waiting = std::move(waiting_.front());
      waiting_.pop_front();
    }
  }
  switch (next) {
    case Next::kNothing: return;
    case Next::kStart:
      track<std::string>(remote_->run<StartResumableAttempt>(target_),
                         [this](Result<std::string> session) {
                           {
                             const Lock lock(mutex_);
                             busy_ = false;
                             if (session) {
                               session_ = std::move(*session);
                             } else {
                               error_ = with_url(std::move(session.error()));
                             }
                           }
                           advance();
                         });
      return;
    case Next::kSend: send_next(std::move(waiting)); return;
    case Next::kFail:
      waiting.done(std::unexpected(std::move(*error)));
      advance();
      return;
  }
}

void ResumableUpload::send_next(Waiting waiting) {
  std::shared_ptr<const UploadPart> part = std::move(waiting.part);
  const uint64_t end = part->offset_bytes + part->size_bytes;
  const uint64_t unit_end = end / kUnitBytes * kUnitBytes;
  auto sent = [this, part, unit_end, end,
               done = std::move(waiting.done)](Result<ObjectInfo> result) mutable {
    std::optional<Error> error;
    {
      const Lock lock(mutex_);
      busy_ = false;
      sent_bytes_ = std::max(part->offset_bytes, unit_end);
      if (sent_bytes_ < end) rest_ = part;
      if (!result) error = error_ = in_part(part->part_number, std::move(result.error()));
    }
    part.reset();
    if (error) {
      done(std::unexpected(std::move(*error)));
    } else {
      done({});
    }
    advance();
  };
  if (unit_end <= part->offset_bytes) {
    std::move_only_function<void(Result<ObjectInfo>)>(std::move(sent))(ObjectInfo{});
    return;
  }
  std::string session;
  {
    const Lock lock(mutex_);
    session = session_;
  }
  track<ObjectInfo>(remote_->run<SendStreamAttempt>(StreamPiece{.session = std::move(session),
                                                                .name = target_.name,
                                                                .part = part,
                                                                .begin = part->offset_bytes,
                                                                .end = unit_end}),
                    std::move(sent));
}

// Sends the remaining bytes, and the end.
void ResumableUpload::finish_stream() {
  const Whole all = whole();
  StreamPiece piece{.name = target_.name, .end = all.size_bytes, .whole = all};
  {
    const Lock lock(mutex_);
    piece.session = session_;
    piece.part = std::exchange(rest_, nullptr);
    piece.begin = sent_bytes_;
  }
  track<ObjectInfo>(remote_->run<SendStreamAttempt>(std::move(piece)),
                    [this](Result<ObjectInfo> info) {
                      if (info) {
                        const Lock lock(mutex_);
                        ended_ = true;
                      }
                      take_published(std::move(info));
                    });
}

void ResumableUpload::begin_cleaning() {
  std::string session;
  {
    const Lock lock(mutex_);
    rest_.reset();
    if (!ended_) session = session_;
  }
  if (session.empty()) {
    cleaned({});
    return;
  }
  remote_->run<CancelResumableAttempt>(target_.name, std::move(session))
      ->then([this, self = shared_from_this()](Result<bool> cancelled) {
        if (cancelled) {
          cleaned({});
        } else {
          cleaned(std::unexpected(with_url(std::move(cancelled.error()))));
        }
      });
}

}  // namespace headrace
