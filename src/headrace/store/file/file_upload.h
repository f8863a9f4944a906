// A file that is written in parts.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/metrics.h"
#include "headrace/base/mutex.h"
#include "headrace/base/thread_pool.h"
#include "headrace/store/file/file_io.h"
#include "headrace/store/options.h"
#include "headrace/store/upload.h"

namespace headrace {

// File threads write the parts at their places in a temporary file of the same directory, several
// at a time; publish() makes it durable and renames it.
// Thread: any. Owns the temporary file.
class FileUpload final : public Upload, public std::enable_shared_from_this<FileUpload> {
 public:
  FileUpload(std::string path, WriteRequest target, std::shared_ptr<ThreadPool> threads,
             std::shared_ptr<Metrics> metrics);

  Limits limits() const override { return {}; }
  void send(std::shared_ptr<const UploadPart> part, Done done) override;
  void publish(const Whole& whole, Published done) override;
  void publish_single(std::shared_ptr<const UploadPart> part, Published done) override;
  void cancel() override { cancelled_.store(true); }
  void clean(Done done) override;

 private:
  bool cancelled() const { return cancelled_.load() || threads_->stopping(); }
  // Runs `work` on a file thread.
  template <class T, class Work>
  void start(std::move_only_function<void(Result<T>)> done, Work work);
  // The temporary file's descriptor; the first call creates the file.
  Result<int> descriptor();
  Result<void> write(const UploadPart& part);
  Result<ObjectInfo> publish_now(uint64_t size_bytes);

  const std::string path_;
  const std::string url_;
  const WriteRequest target_;
  const std::shared_ptr<ThreadPool> threads_;
  const std::shared_ptr<Metrics> metrics_;
  std::atomic<bool> cancelled_ = false;
  Mutex writing_;
  Mutex mutex_;
  std::unique_ptr<TempFile> file_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
