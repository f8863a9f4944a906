#include "headrace/store/file/file_store.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/store/file/file_io.h"
#include "headrace/store/file/file_list.h"
#include "headrace/store/file/file_reader.h"
#include "headrace/store/file/file_rename.h"
#include "headrace/store/file/file_root.h"
#include "headrace/store/file/file_upload.h"
#include "headrace/store/join_ranges.h"
#include "headrace/store/object_writer.h"

namespace headrace {
namespace {

constexpr uint64_t kCopyBytes = 8 * kMiB;  // of one copy_file_range: then cancel is looked at
constexpr uint64_t kStreamedBytes = kMiB;  // of one read and write, where the system copies nothing
constexpr size_t kIdleWalks = 4;           // listings that wait for their next page
constexpr size_t kToldCircles = 100;       // that are remembered; later ones are not told

class FileStore : public ObjectStore, public std::enable_shared_from_this<FileStore> {
 public:
  FileStore(std::string root, const StoreOptions& options, std::shared_ptr<BlockPool> pool,
            std::shared_ptr<ThreadPool> threads, std::shared_ptr<Metrics> metrics,
            std::shared_ptr<WriterRegistry> writers, std::shared_ptr<Log> log)
      : root_(std::move(root)),
        join_rules_{.max_gap_bytes = options.max_gap_bytes, .verify = options.verify},
        pool_(std::move(pool)),
        threads_(std::move(threads)),
        metrics_(std::move(metrics)),
        writers_(std::move(writers)),
        log_(std::move(log)),
        reader_(std::make_shared<FileReader>(root_, options, pool_, threads_, metrics_)) {}

  void read(std::shared_ptr<ReadBatch> batch) override {
    if (join_ranges(batch, shared_from_this(), join_rules_)) return;
    reader_->read(std::move(batch));
  }
  std::shared_ptr<Pending<ColumnPage>> list(ListRequest request) override;
  std::shared_ptr<Pending<ObjectInfo>> stat(std::string name) override;
  std::shared_ptr<Pending<ObjectInfo>> write(WriteRequest request,
                                             std::span<const std::byte> bytes) override;
  Result<std::shared_ptr<ObjectWriter>> open_writer(WriterOptions options) override;
  std::shared_ptr<Pending<UploadsPage>> list_multipart(std::string prefix, std::string after_name,
                                                       std::string after_upload_id) override;
  std::shared_ptr<Pending<bool>> abort_multipart(std::string name, std::string upload_id) override;
  std::shared_ptr<Pending<bool>> remove(std::string name, Precondition precondition) override;
  std::shared_ptr<Pending<ObjectInfo>> copy(CopyRequest request) override;
  std::shared_ptr<Pending<ObjectInfo>> rename(CopyRequest request) override;
  std::shared_ptr<Pending<ObjectInfo>> compose(ComposeRequest request) override;
  std::shared_ptr<Pending<std::string>> presigned_url(UrlRequest request) override {
    return refused<std::string>(request.name, "files have no presigned URLs");
  }
  uint32_t max_compose_sources() const override { return 0; }
  std::optional<SumLevel> written_sums(bool) const override { return std::nullopt; }
  bool tells_sums() const override { return true; }

  std::string url_of(std::string_view name) const override { return root_.url_of(name); }
  uint64_t expected_object_bytes() const override { return reader_->expected_object_bytes(); }
  uint64_t useful_in_flight() const override { return uint64_t{2} * threads_->thread_count(); }
  uint64_t useful_ahead() const override { return 2 * useful_in_flight(); }
  uint32_t useful_pages_in_flight() const override { return 1; }
  std::shared_ptr<BlockPool> pool() const override { return pool_; }
  void expect_reads(uint32_t) override {}                        // there are no connections
  void not_compared(std::string_view, ChecksumKind) override {}  // as with all files

 private:
  Error stopped_error() const { return stopped_error_of(*threads_); }
  // Runs `work(cancelled)` on a file thread and completes the Pending with what it returns.
  template <class T, class Work>
  std::shared_ptr<Pending<T>> start(std::string name, Work work);
  // What files cannot do.
  template <class T>
  std::shared_ptr<Pending<T>> refused(std::string_view name, std::string_view why) const {
    auto pending = std::make_shared<Pending<T>>();
    pending->complete(
        std::unexpected(Error(Code::kInvalidArgument, std::string(why)).with_url(url_of(name))));
    return pending;
  }
  Result<struct stat> stat_object(std::string_view name, std::string_view generation) const;
  // The file that is copied or renamed, as it is when it is opened.
  struct Source {
    OpenFile file;
    struct stat status{};
  };
  std::unexpected<Error> of_source(const CopyRequest& request, const Error& error) const {
    return std::unexpected(Error(
        error.code(), cat("the source ", url_of(request.source_name), ": ", error.message())));
  }
  Result<Source> open_source(const CopyRequest& request) const;
  Result<ObjectInfo> copy_now(const CopyRequest& request, const std::function<bool()>& cancelled);
  Result<ObjectInfo> rename_now(const CopyRequest& request, const std::function<bool()>& cancelled);
  Result<bool> remove_now(const std::string& name, const Precondition& precondition,
                          const std::function<bool()>& cancelled);
  Result<ColumnPage> list_now(const ListRequest& request, const std::function<bool()>& cancelled);
  // Says, once, that listings do not enter a directory that lies in itself.
  void tell_circle(std::string_view name);

  const FileRoot root_;
  const JoinRules join_rules_;
  const std::shared_ptr<BlockPool> pool_;
  const std::shared_ptr<ThreadPool> threads_;
  const std::shared_ptr<Metrics> metrics_;
  const std::shared_ptr<WriterRegistry> writers_;
  const std::shared_ptr<Log> log_;  // may be null
  const std::shared_ptr<FileReader> reader_;

  // Walks that can continue where a page ended, by request and token, so that the next page reads
  // no directory twice. If the walk of a token is gone, a new one starts.
  struct IdleWalk {
    std::string key;
    std::unique_ptr<FileWalk> walk;
  };
  Mutex mutex_;
  std::list<IdleWalk> idle_walks_ HEADRACE_GUARDED_BY(mutex_);
  std::set<std::string, std::less<>> told_circles_ HEADRACE_GUARDED_BY(mutex_);
};

template <class T, class Work>
std::shared_ptr<Pending<T>> FileStore::start(std::string name, Work work) {
  auto pending = std::make_shared<Pending<T>>();
  auto self = shared_from_this();
  ThreadPool::Job job = [self, pending, name, work = std::move(work)]() mutable {
    const std::function<bool()> cancelled = [&self, &pending] {
      return pending->cancelled() || self->threads_->stopping();
    };
    Result<T> result = cancelled() ? std::unexpected(cancelled_error()) : work(cancelled);
    if (!result) {
      result = std::unexpected(self->root_.with_url(std::move(result.error()), name));
    }
    count(self->metrics_->requests_total);
    pending->complete(std::move(result));
  };
  if (!threads_->post(std::move(job))) {
    pending->complete(std::unexpected(root_.with_url(stopped_error(), name)));
  }
  return pending;
}

Result<struct stat> FileStore::stat_object(std::string_view name,
                                           std::string_view generation) const {
  struct stat status{};
  if (::stat(root_.path_of(name).c_str(), &status) != 0) {
    return std::unexpected(root_.no_directory_or(file_error(errno, Access::kRead)));
  }
  if (S_ISDIR(status.st_mode)) return std::unexpected(file_error(EISDIR, Access::kRead));
  if (!S_ISREG(status.st_mode)) return invalid_argument("is not a regular file");
  if (!generation.empty() && generation != generation_of(status)) {
    return fail(Code::kPreconditionFailed, "is generation ", generation_of(status), ", not ",
                generation);
  }
  return status;
}

std::shared_ptr<Pending<ObjectInfo>> FileStore::stat(std::string name) {
  return start<ObjectInfo>(name, [this, name](const auto&) -> Result<ObjectInfo> {
    if (Result<void> good = check_name(name); !good) return std::unexpected(good.error());
    const Result<struct stat> status = stat_object(name, "");
    if (!status) return std::unexpected(status.error());
    return info_of(name, *status);
  });
}

std::shared_ptr<Pending<ObjectInfo>> FileStore::write(WriteRequest request,
                                                      std::span<const std::byte> bytes) {
  const std::string name = request.name;
  return start<ObjectInfo>(
      name,
      [this, request = std::move(request), bytes](const auto& cancelled) -> Result<ObjectInfo> {
        if (Result<void> good = check_new_name(request.name); !good) {
          return std::unexpected(good.error());
        }
        const std::string path = root_.path_of(request.name);
        // Checked before anything is written, so that a condition that already fails costs nothing.
        if (Result<void> met = check_precondition(path, request.precondition); !met) {
          return std::unexpected(met.error());
        }
        Result<TempFile> file = TempFile::create(path);
        if (!file) return std::unexpected(file.error());
        for (size_t begin = 0; begin < bytes.size(); begin += kCopyBytes) {
          if (cancelled()) return std::unexpected(cancelled_error());
          const size_t size_bytes = std::min<size_t>(kCopyBytes, bytes.size() - begin);
          if (Result<void> appended = file->append(bytes.subspan(begin, size_bytes)); !appended) {
            return std::unexpected(appended.error());
          }
        }
        const Result<struct stat> status = file->publish(request.precondition, cancelled);
        if (!status) return std::unexpected(status.error());
        return info_of(request.name, *status);
      });
}

Result<std::shared_ptr<ObjectWriter>> FileStore::open_writer(WriterOptions options) {
  const std::string url = url_of(options.object.name);
  if (Result<void> good = check_new_name(options.object.name); !good) {
    return std::unexpected(std::move(good.error()).with_url(url));
  }
  std::string path = root_.path_of(options.object.name);
  return ObjectWriter::open(
      {.pool = pool_, .registry = writers_, .url = url},
      std::make_shared<FileUpload>(std::move(path), std::move(options.object), threads_, metrics_),
      options);
}

std::shared_ptr<Pending<UploadsPage>> FileStore::list_multipart(std::string prefix, std::string,
                                                                std::string) {
  return refused<UploadsPage>(prefix, "directories have no multipart uploads");
}

std::shared_ptr<Pending<bool>> FileStore::abort_multipart(std::string name, std::string) {
  return refused<bool>(name, "directories have no multipart uploads");
}

std::shared_ptr<Pending<bool>> FileStore::remove(std::string name, Precondition precondition) {
  return start<bool>(name,
                     [this, name, precondition = std::move(precondition)](const auto& cancelled) {
                       return remove_now(name, precondition, cancelled);
                     });
}

Result<bool> FileStore::remove_now(const std::string& name, const Precondition& precondition,
                                   const std::function<bool()>& cancelled) {
  if (Result<void> good = check_name(name); !good) return std::unexpected(good.error());
  const std::string path = root_.path_of(name);
  // A missing object is checked first: it is kNotFound whatever the condition.
  if (const Result<struct stat> status = stat_object(name, ""); !status) {
    return std::unexpected(status.error());
  }
  OpenFile lock;
  if (precondition.generation) {
    Result<OpenFile> locked = lock_directory(parent_of(path), cancelled);
    if (!locked) return std::unexpected(locked.error());
    lock = std::move(*locked);
    if (Result<void> met = check_precondition(path, precondition); !met) {
      return std::unexpected(met.error());
    }
  }
  if (::unlink(path.c_str()) != 0) {
    return std::unexpected(file_error(errno, errno == EISDIR ? Access::kRead : Access::kWrite));
  }
  if (Result<void> synced = sync_directory(parent_of(path)); !synced) {
    return std::unexpected(synced.error());
  }
  return true;
}

std::shared_ptr<Pending<ObjectInfo>> FileStore::compose(ComposeRequest request) {
  return refused<ObjectInfo>(request.name,
                             "files cannot be composed by the store: gs:// can do it");
}

std::shared_ptr<Pending<ObjectInfo>> FileStore::copy(CopyRequest request) {
  const std::string name = request.name;
  return start<ObjectInfo>(name, [this, request = std::move(request)](const auto& cancelled) {
    return copy_now(request, cancelled);
  });
}

std::shared_ptr<Pending<ObjectInfo>> FileStore::rename(CopyRequest request) {
  const std::string name = request.name;
  return start<ObjectInfo>(name, [this, request = std::move(request)](const auto& cancelled) {
    return rename_now(request, cancelled);
  });
}

Result<FileStore::Source> FileStore::open_source(const CopyRequest& request) const {
  if (Result<void> good = check_name(request.source_name); !good) {
    return of_source(request, good.error());
  }
  Source source;
  source.file = OpenFile::open(root_.path_of(request.source_name), O_RDONLY | O_NONBLOCK);
  if (!source.file.is_open()) {
    return of_source(request, root_.no_directory_or(file_error(errno, Access::kRead)));
  }
  if (::fstat(source.file.get(), &source.status) != 0) {
    return of_source(request, file_error(errno, Access::kRead));
  }
  if (S_ISDIR(source.status.st_mode)) {
    return of_source(request, file_error(EISDIR, Access::kRead));
  }
  if (!S_ISREG(source.status.st_mode)) {
    return of_source(request, Error(Code::kInvalidArgument, "is not a regular file"));
  }
  const std::string generation = generation_of(source.status);
  if (!request.source_generation.empty() && request.source_generation != generation) {
    return of_source(request,
                     Error(Code::kPreconditionFailed,
                           cat("is generation ", generation, ", not ", request.source_generation)));
  }
  return source;
}

Result<ObjectInfo> FileStore::rename_now(const CopyRequest& request,
                                         const std::function<bool()>& cancelled) {
  if (Result<void> good = check_new_name(request.name); !good) {
    return std::unexpected(good.error());
  }
  if (request.name == request.source_name) return invalid_argument("it has this name already");
  // Before directories are made for it.
  const Result<Source> opened = open_source(request);
  if (!opened) return std::unexpected(opened.error());
  const std::string from = root_.path_of(request.source_name), to = root_.path_of(request.name);
  if (Result<void> met = check_precondition(to, request.precondition); !met) {
    return std::unexpected(met.error());
  }
  if (Result<void> made = make_directories(parent_of(to)); !made) {
    return std::unexpected(made.error());
  }
  // Its bytes may come from a program that has not made them durable. That may take longer than
  // others wait for a lock.
  if (::fsync(opened->file.get()) != 0)
    return of_source(request, file_error(errno, Access::kWrite));
  CopyRequest pinned = request;
  {
    const Result<DirectoryLocks> locks =
        lock_directories(parent_of(from), parent_of(to), cancelled);
    if (!locks) return std::unexpected(locks.error());
    const Result<Source> source = open_source(request);
    if (!source) return std::unexpected(source.error());
    const bool is_durable = generation_of(source->status) == generation_of(opened->status);
    if (!is_durable && ::fsync(source->file.get()) != 0) {
      return of_source(request, file_error(errno, Access::kWrite));
    }
    const Result<std::optional<struct stat>> renamed =
        rename_file(source->file, from, to, request.precondition);
    if (!renamed) return std::unexpected(renamed.error());
    if (*renamed) return info_of(request.name, **renamed);
    pinned.source_generation = generation_of(source->status);
  }
  // The names are on two file systems.
  Result<ObjectInfo> copy = copy_now(pinned, cancelled);
  if (!copy) return copy;
  const Result<bool> removed =
      remove_now(request.source_name, {pinned.source_generation}, cancelled);
  if (!removed && removed.error().code() != Code::kNotFound) {
    return of_source(request, Error(removed.error().code(),
                                    cat("it was copied to ", url_of(request.name),
                                        ", and could not be removed, so that both are there: ",
                                        removed.error().message())));
  }
  return copy;
}

Result<ObjectInfo> FileStore::copy_now(const CopyRequest& request,
                                       const std::function<bool()>& cancelled) {
  if (Result<void> good = check_new_name(request.name); !good) {
    return std::unexpected(good.error());
  }
  const Result<Source> opened = open_source(request);
  if (!opened) return std::unexpected(opened.error());
  const OpenFile& source = opened->file;
  const struct stat& before = opened->status;
  const std::string path = root_.path_of(request.name);
  if (Result<void> met = check_precondition(path, request.precondition); !met) {
    return std::unexpected(met.error());
  }
  Result<TempFile> file = TempFile::create(path);
  if (!file) return std::unexpected(file.error());

  const auto size_bytes = static_cast<uint64_t>(before.st_size);
  uint64_t copied_bytes = 0;
  bool by_kernel = true;
  std::vector<std::byte> buffer;
  while (copied_bytes < size_bytes) {
    if (cancelled()) return std::unexpected(cancelled_error());
    const uint64_t want_bytes = std::min(kCopyBytes, size_bytes - copied_bytes);
    auto offset = static_cast<off_t>(copied_bytes);
    ssize_t got;
    if (by_kernel) {
      got = ::copy_file_range(source.get(), &offset, file->descriptor(), nullptr, want_bytes, 0);
      if (got < 0 &&
          (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)) {
        by_kernel = false;  // not between these file systems
        buffer.resize(kStreamedBytes);
        continue;
      }
      if (got < 0 && errno != EINTR) return std::unexpected(file_error(errno, Access::kWrite));
    } else {
      got = ::pread(source.get(), buffer.data(), std::min<uint64_t>(want_bytes, buffer.size()),
                    offset);
      if (got < 0 && errno != EINTR) return of_source(request, file_error(errno, Access::kRead));
      if (got > 0) {
        const std::span<const std::byte> bytes(buffer.data(), static_cast<size_t>(got));
        if (Result<void> appended = file->append(bytes); !appended) {
          return std::unexpected(appended.error());
        }
      }
    }
    if (got == 0) break;
    if (got > 0) copied_bytes += static_cast<uint64_t>(got);
  }
  struct stat after{};
  if (::fstat(source.get(), &after) != 0) {
    return of_source(request, file_error(errno, Access::kRead));
  }
  if (copied_bytes != size_bytes || changed_between(before, after)) {
    return of_source(request, Error(Code::kPreconditionFailed, "changed while it was copied"));
  }
  const Result<struct stat> status = file->publish(request.precondition, cancelled);
  if (!status) return std::unexpected(status.error());
  return info_of(request.name, *status);
}

std::shared_ptr<Pending<ColumnPage>> FileStore::list(ListRequest request) {
  const std::string prefix = request.prefix;
  return start<ColumnPage>(prefix, [this, request = std::move(request)](const auto& cancelled) {
    return list_now(request, cancelled);
  });
}

Result<ColumnPage> FileStore::list_now(const ListRequest& request,
                                       const std::function<bool()>& cancelled) {
  const auto key_with = [&](const std::string& token) {
    std::string key;
    for (const std::string* part :
         {&request.prefix, &request.delimiter, &request.start_offset, &request.end_offset}) {
      key += cat(part->size(), ":", *part);
    }
    return key + token;
  };
  std::unique_ptr<FileWalk> walk;
  if (!request.page_token.empty()) {
    const Lock lock(mutex_);
    const auto idle = std::ranges::find(idle_walks_, key_with(request.page_token), &IdleWalk::key);
    if (idle != idle_walks_.end()) {
      walk = std::move(idle->walk);
      idle_walks_.erase(idle);
    }
  }
  if (!walk) {
    // A walk does not outlive the store, which keeps it.
    Result<std::unique_ptr<FileWalk>> made =
        walk_for(root_.directory(), request, [this](std::string_view name) { tell_circle(name); });
    if (!made) return std::unexpected(made.error());
    walk = std::move(*made);
  }
  Result<ColumnPage> page = list_page(*walk, request, cancelled);
  if (page && !page->next_page_token.empty()) {
    std::string key = key_with(page->next_page_token);
    const Lock lock(mutex_);
    // Only the newest: an older walk for the same token saw the directories earlier.
    idle_walks_.remove_if([&](const IdleWalk& idle) { return idle.key == key; });
    idle_walks_.push_front({std::move(key), std::move(walk)});
    if (idle_walks_.size() > kIdleWalks) idle_walks_.pop_back();
  }
  return page;
}

void FileStore::tell_circle(std::string_view name) {
  if (log_ == nullptr || !log_->wants(LogLevel::kInfo)) return;
  {
    const Lock lock(mutex_);
    if (told_circles_.size() == kToldCircles || !told_circles_.emplace(name).second) return;
  }
  log_->add(LogLevel::kInfo,
            cat(url_of(name), " leads to a directory that it lies in: listings do not enter it"));
}

}  // namespace

Result<std::shared_ptr<ObjectStore>> open_file_store(const Url& url, const StoreOptions& options,
                                                     std::shared_ptr<BlockPool> pool,
                                                     std::shared_ptr<ThreadPool> threads,
                                                     std::shared_ptr<Metrics> metrics,
                                                     std::shared_ptr<WriterRegistry> writers,
                                                     std::shared_ptr<Log> log) {
  const auto refused = [&](Error error) {
    return std::unexpected(std::move(error).with_url(url.to_string()));
  };
  if (url.scheme != Scheme::kFile) {
    return refused(Error(Code::kInvalidArgument, "is no file:// URL"));
  }
  if (url.name.find('\0') != std::string::npos) {
    return refused(Error(Code::kInvalidArgument, "the path contains a NUL byte"));
  }
  // Made absolute now, since the process may change its directory later.
  std::error_code error;
  const std::string directory =
      url.name.starts_with('/') ? "" : std::filesystem::current_path(error).string();
  if (error) return refused(file_error(error.value(), Access::kRead));
  std::string root = root_url(url, directory).name;
  struct stat status{};
  if (::stat(root.c_str(), &status) == 0 && !S_ISDIR(status.st_mode)) {
    const std::string parent = parent_of(root);
    return refused(Error(Code::kInvalidArgument,
                         cat("is a file, not a directory: open the store at ", parent,
                             " and name the object ", root.substr(root.rfind('/') + 1))));
  }
  while (root.ends_with('/')) root.pop_back();
  return std::make_shared<FileStore>(std::move(root), options, std::move(pool), std::move(threads),
                                     std::move(metrics), std::move(writers), std::move(log));
}

}  // namespace headrace
