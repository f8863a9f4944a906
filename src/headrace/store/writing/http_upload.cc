#include "headrace/store/writing/http_upload.h"

#include <utility>

#include "headrace/store/transfer/stat_attempt.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {

HttpUpload::HttpUpload(const std::shared_ptr<RemoteRoot>& remote, WriteRequest target,
                       IoThread& thread)
    : Change(remote, remote->url_of(target.name), thread),
      bucket_(remote->bucket()),
      target_(std::move(target)) {}

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

HttpUpload::Whole HttpUpload::whole_of(const UploadPart& part) {
  return {.part_count = 1, .size_bytes = part.size_bytes, .crc32c = part.crc32c};
}

// ── Steps ────────────────────────────────────────────────────────────────────────────────────

void HttpUpload::send(std::shared_ptr<const UploadPart> part, Done done) {
  start<void>([&] { return send_part(prepare(std::move(part))); }, std::move(done));
}

void HttpUpload::publish(const Whole& whole, Published done) {
  start<ObjectInfo>([&] { return publish_parts(whole); }, std::move(done));
}

void HttpUpload::publish_single(std::shared_ptr<const UploadPart> part, Published done) {
  // The attempt is made here: it sums the bytes, which must not keep an I/O thread.
  start<ObjectInfo>(
      [&] {
        const Whole whole = whole_of(*part);
        return publish_by(
            remote_->run<WriteAttempt>(target_, std::move(part), remote_->write_facts()), whole);
      },
      std::move(done));
}

void HttpUpload::clean(Done done) {
  start<void>([this] { return clean_up(); }, std::move(done));
}

awaitable<Result<void>> HttpUpload::clean_up() {
  // What is in progress could still make objects.
  while (running_count() > 1) co_await park();
  co_return co_await remove_rest();
}

awaitable<Result<void>> HttpUpload::wait_for_turn(uint32_t part_number) {
  while (part_number != next_part_) {
    if (cancelled()) co_return std::unexpected(with_url(Error(Code::kCancelled, "cancelled")));
    co_await park();
  }
  co_return Result<void>();
}

// ── Publishing ───────────────────────────────────────────────────────────────────────────────

awaitable<Result<ObjectInfo>> HttpUpload::publish_composed(Sources sources, Whole whole) {
  Whole sum;
  for (const ComposeSource& source : sources) {
    sum.crc32c = sum.crc32c.joined(source.crc32c, source.size_bytes);
    sum.size_bytes += source.size_bytes;
  }
  if (sum.size_bytes != whole.size_bytes || sum.crc32c != whole.crc32c) {
    co_return std::unexpected(
        with_url(Error(Code::kInternal, "its parts are not what was written")));
  }
  ComposeRequest last{.sources = std::move(sources),
                      .name = remote_->root().full_name(target_.name),
                      .content_type = target_.content_type,
                      .content_encoding = target_.content_encoding,
                      .precondition = target_.precondition,
                      .linger = kLinger};
  Result<ObjectInfo> info = co_await request(bucket_->run<ComposeAttempt>(std::move(last)));
  if (info) {
    if (Result<void> below = remote_->root().strip(*info); !below) {
      info = std::unexpected(with_url(std::move(below.error())));
    }
  }
  co_return co_await published(std::move(info), whole);
}

awaitable<Result<ObjectInfo>> HttpUpload::publish_by(std::shared_ptr<Pending<ObjectInfo>> last,
                                                     Whole whole) {
  Result<ObjectInfo> info = co_await request(std::move(last));
  co_return co_await published(std::move(info), whole);
}

awaitable<Result<ObjectInfo>> HttpUpload::published(Result<ObjectInfo> info, Whole whole) {
  if (info || info.error().code() != Code::kCorrupt) co_return info;
  // The server says that it has stored something else: it is asked once more what it has.
  Result<ObjectInfo> found = co_await request(remote_->run<StatAttempt>(target_.name));
  if (found && found->size_bytes == whole.size_bytes && found->crc32c() == whole.crc32c) {
    co_return found;
  }
  co_return info;
}

}  // namespace headrace
