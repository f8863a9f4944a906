#include "headrace/store/file/file_upload.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "headrace/base/units.h"
#include "headrace/format/url.h"

namespace headrace {
namespace {

constexpr uint64_t kWriteAtOnceBytes = 8 * kMiB;  // of one pwrite; then cancel is looked at

}  // namespace

FileUpload::FileUpload(std::string path, WriteRequest target, std::shared_ptr<ThreadPool> threads,
                       std::shared_ptr<Metrics> metrics)
    : path_(std::move(path)),
      url_(Url{.scheme = Scheme::kFile, .bucket = {}, .name = path_}.to_string()),
      target_(std::move(target)),
      threads_(std::move(threads)),
      metrics_(std::move(metrics)) {}

template <class T, class Work>
void FileUpload::start(std::move_only_function<void(Result<T>)> done, Work work) {
  // Shared: if no thread takes the job, it is completed here.
  auto shared = std::make_shared<std::move_only_function<void(Result<T>)>>(std::move(done));
  ThreadPool::Job job = [self = shared_from_this(), shared, work = std::move(work)]() mutable {
    Result<T> result = self->cancelled() ? std::unexpected(cancelled_error()) : work(*self);
    if (!result) result = std::unexpected(std::move(result.error()).with_url(self->url_));
    count(self->metrics_->requests_total);
    (*shared)(std::move(result));
  };
  if (!threads_->post(std::move(job))) {
    Error error = threads_->stopping()
                      ? Error(Code::kCancelled, "the engine has stopped")
                      : Error(Code::kExhausted, "the system gives no thread to write files with");
    (*shared)(std::unexpected(std::move(error).with_url(url_)));
  }
}

void FileUpload::send(std::shared_ptr<const UploadPart> part, Done done) {
  start<void>(std::move(done), [part = std::move(part)](FileUpload& self) -> Result<void> {
    return self.write(*part);
  });
}

void FileUpload::publish(const Whole& whole, Published done) {
  start<ObjectInfo>(std::move(done), [size_bytes = whole.size_bytes](FileUpload& self) {
    return self.publish_now(size_bytes);
  });
}

void FileUpload::publish_single(std::shared_ptr<const UploadPart> part, Published done) {
  start<ObjectInfo>(std::move(done),
                    [part = std::move(part)](FileUpload& self) -> Result<ObjectInfo> {
                      if (Result<void> written = self.write(*part); !written) {
                        return std::unexpected(std::move(written.error()));
                      }
                      return self.publish_now(part->size_bytes);
                    });
}

void FileUpload::clean(Done done) {
  std::unique_ptr<TempFile> file;
  {
    const Lock lock(mutex_);
    file = std::move(file_);
  }
  file.reset();
  done({});
}

Result<int> FileUpload::descriptor() {
  const Lock lock(mutex_);
  if (!file_) {
    // Checked before anything is written, so that a condition that already fails costs nothing.
    if (Result<void> met = check_precondition(path_, target_.precondition); !met) {
      return std::unexpected(std::move(met.error()));
    }
    Result<TempFile> made = TempFile::create(path_);
    if (!made) return std::unexpected(std::move(made.error()));
    file_ = std::make_unique<TempFile>(std::move(*made));
  }
  return file_->descriptor();
}

Result<void> FileUpload::write(const UploadPart& part) {
  const Result<int> file = descriptor();
  if (!file) return std::unexpected(file.error());
  auto offset = static_cast<off_t>(part.offset_bytes);
  for (std::span<const std::byte> bytes : part.spans) {
    while (!bytes.empty()) {
      if (cancelled()) return std::unexpected(cancelled_error());
      ssize_t written = 0;
      int error = 0;
      {
        // The kernel admits one writer at a time while the others spin; here they sleep.
        const Lock one_at_a_time(writing_);
        written = ::pwrite(*file, bytes.data(), std::min<size_t>(bytes.size(), kWriteAtOnceBytes),
                           offset);
        if (written < 0) error = errno;
      }
      if (written < 0) {
        if (error == EINTR) continue;
        return std::unexpected(file_error(error, Access::kWrite));
      }
      bytes = bytes.subspan(static_cast<size_t>(written));
      offset += written;
    }
  }
  // Starts writing to disk now, so that little is left for the sync at the end. Only a hint.
  static_cast<void>(::sync_file_range(*file, static_cast<off_t>(part.offset_bytes),
                                      static_cast<off_t>(part.size_bytes), SYNC_FILE_RANGE_WRITE));
  return {};
}

Result<ObjectInfo> FileUpload::publish_now(uint64_t size_bytes) {
  const Result<int> made = descriptor();
  if (!made) return std::unexpected(made.error());
  struct stat before{};
  if (::fstat(*made, &before) != 0) return std::unexpected(file_error(errno, Access::kWrite));
  if (static_cast<uint64_t>(before.st_size) != size_bytes) {
    return corrupt("the file has ", before.st_size, " of the ", size_bytes, " bytes written to it");
  }
  std::unique_ptr<TempFile> file;
  {
    const Lock lock(mutex_);
    file = std::move(file_);
  }
  const Result<struct stat> status =
      file->publish(target_.precondition, [this] { return cancelled(); });
  if (!status) return std::unexpected(status.error());
  return info_of(target_.name, *status);
}

}  // namespace headrace
