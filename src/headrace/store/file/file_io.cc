#include "headrace/store/file/file_io.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <system_error>
#include <thread>

#include "headrace/base/fork.h"
#include "headrace/base/random.h"
#include "headrace/base/units.h"
#include "headrace/store/root.h"

namespace headrace {
namespace {

constexpr uint64_t kWriteBytes = 8 * kMiB;  // of one write(2)
constexpr auto kLockTimeout = std::chrono::seconds(10);

uint64_t nanoseconds(const timespec& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

bool same_time(const timespec& left, const timespec& right) {
  return left.tv_sec == right.tv_sec && left.tv_nsec == right.tv_nsec;
}

std::unexpected<Error> failed(int number, Access access) {
  return std::unexpected(file_error(number, access));
}

std::string temp_path_for(const std::string& path) {
  static std::atomic<uint64_t> serial = 0;
  // Random since names must differ between machines that share a file system; O_EXCL decides.
  return cat(parent_of(path), "/", kTempPrefix, ::getpid(), "-", serial.fetch_add(1), "-",
             random_number());
}

// A path to a file that has no name. The alternative, AT_EMPTY_PATH, needs a capability.
std::string link_to(const OpenFile& file) { return cat("/proc/self/fd/", file.get()); }

// Not open if there are no nameless files, or if the file could not be given a name later.
OpenFile open_nameless(const std::string& directory) {
  static const bool can_be_named = ::access("/proc/self/fd", X_OK) == 0;
  return can_be_named ? OpenFile::open(directory, O_TMPFILE | O_WRONLY, 0666) : OpenFile();
}

// Fails with EEXIST if `path` exists.
int name_nameless(const OpenFile& file, const std::string& path) {
  return ::linkat(AT_FDCWD, link_to(file).c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW);
}

}  // namespace

OpenFile::OpenFile(int descriptor) : descriptor_(descriptor) { close_in_child(descriptor); }

OpenFile::~OpenFile() {
  if (descriptor_ < 0) return;
  forget_in_child(descriptor_);
  ::close(descriptor_);
}

OpenFile OpenFile::open(const std::string& path, int flags, mode_t mode) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor < 0 ? OpenFile() : OpenFile(descriptor);
}

GenerationOf::GenerationOf(const struct stat& status) {
  char* at = text_.data();
  for (const uint64_t part : {uint64_t{status.st_dev}, uint64_t{status.st_ino},
                              static_cast<uint64_t>(status.st_size), nanoseconds(status.st_ctim)}) {
    if (at != text_.data()) *at++ = '-';
    at = std::to_chars(at, text_.data() + text_.size(), part).ptr;
  }
  size_ = static_cast<size_t>(at - text_.data());
}

std::string generation_of(const struct stat& status) {
  return std::string(GenerationOf(status).view());
}

ObjectInfo info_of(std::string name, const struct stat& status) {
  ObjectInfo info;
  info.name = std::move(name);
  info.size_bytes = static_cast<uint64_t>(status.st_size);
  info.generation = generation_of(status);
  info.updated = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::seconds(status.st_mtim.tv_sec) +
          // Whole microseconds, as Python's datetime has them: what is pickled stays equal to
          // itself.
          std::chrono::microseconds(status.st_mtim.tv_nsec / 1000)));
  return info;
}

bool changed_between(const struct stat& before, const struct stat& after) {
  if (before.st_size != after.st_size || !same_time(before.st_mtim, after.st_mtim)) return true;
  return !same_time(before.st_ctim, after.st_ctim) && after.st_nlink >= before.st_nlink;
}

Error file_error(int number, Access access) {
  const bool writing = access == Access::kWrite;
  const auto make = [number](Code code, std::string_view text) {
    return Error(code, cat(text, " (", std::generic_category().message(number), ")"));
  };
  switch (number) {
    case ENOENT: return Error(Code::kNotFound, "no such object");
    case ENOTDIR:
      if (!writing) return make(Code::kNotFound, "no such object: its directory is a file");
      return make(Code::kInvalidArgument, "a file stands where a directory of this name must be");
    case EISDIR:
    case ENOTEMPTY:
      if (!writing) return make(Code::kNotFound, "no such object: it is a directory");
      return make(Code::kInvalidArgument, "a directory has this name already");
    case EACCES:
    case EPERM:
      return make(Code::kPermissionDenied, writing ? "may not be written" : "may not be read");
    case EROFS: return make(Code::kPermissionDenied, "may not be written");
    case ENAMETOOLONG:
      return make(Code::kInvalidArgument, "the name is too long for this file system");
    case ELOOP:
      return make(Code::kInvalidArgument, "the name leads through too many symbolic links");
    case EEXIST: return make(Code::kPreconditionFailed, "exists already");
    case ENOSPC:
    case EDQUOT: return make(Code::kExhausted, "no space is left for it");
    case EFBIG: return make(Code::kExhausted, "too large for this file system");
    case EMFILE:
    case ENFILE:
      return make(Code::kExhausted, "no file descriptor is left; raise the limit (ulimit -n)");
    case ENOMEM: return make(Code::kExhausted, "the system has no memory for it");
    default: return make(Code::kUnavailable, writing ? "cannot be written" : "cannot be read");
  }
}

Result<void> check_name(std::string_view name) {
  if (name.empty()) return invalid_argument(kEmptyName);
  if (name.find('\0') != name.npos) {
    return invalid_argument("the name contains a NUL byte, which no file name can");
  }
  if (name.front() == '/') {
    return invalid_argument("the name begins with '/'; names are relative to the store's URL");
  }
  if (name.back() == '/') return invalid_argument("the name ends with '/', which no file name can");
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view component = name.substr(begin, end - begin);
    if (component.empty())
      return invalid_argument("the name contains '//', which no file name can");
    if (component == "." || component == "..") {
      return invalid_argument("the name contains the component '", component,
                              "', which names a directory");
    }
    begin = end + 1;
  }
  return {};
}

Result<void> check_new_name(std::string_view name) {
  if (Result<void> good = check_name(name); !good) return good;
  const size_t slash = name.rfind('/');
  const std::string_view last = slash == name.npos ? name : name.substr(slash + 1);
  if (last.starts_with(kTempPrefix)) {
    return invalid_argument("names that begin with ", kTempPrefix,
                            " are kept for files that are being written");
  }
  return {};
}

Result<void> check_precondition(const std::string& path, const Precondition& condition) {
  if (!condition.generation) return {};
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return failed(errno, Access::kWrite);
    if (condition.generation->empty()) return {};
    return fail(Code::kPreconditionFailed, "is not there; generation ", *condition.generation,
                " was expected");
  }
  if (condition.generation->empty()) return fail(Code::kPreconditionFailed, "exists already");
  const std::string found = generation_of(status);
  if (found == *condition.generation) return {};
  return fail(Code::kPreconditionFailed, "is generation ", found, ", not ", *condition.generation);
}

Result<OpenFile> lock_directory(const std::string& directory,
                                const std::function<bool()>& cancelled) {
  OpenFile file = OpenFile::open(directory, O_RDONLY | O_DIRECTORY);
  if (!file.is_open()) return failed(errno, Access::kWrite);
  const auto deadline = std::chrono::steady_clock::now() + kLockTimeout;
  // Does not block in flock(), so that stopping the engine need not wait for another program.
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) break;  // no locks here
    if (cancelled()) return fail(Code::kCancelled, "cancelled");
    if (std::chrono::steady_clock::now() >= deadline) {
      return fail(Code::kUnavailable, "another program holds the lock on its directory");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return file;
}

Result<TempFile> TempFile::create(std::string path, Naming naming) {
  // The rename would replace a device or a pipe for everybody who uses it, or a link to one, such
  // as /dev/stdout.
  struct stat status{};
  const bool is_there = ::stat(path.c_str(), &status) == 0;
  if (is_there && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    return fail(Code::kInvalidArgument, "exists, and is not a regular file");
  }
  std::string temp_path;
  const auto open = [&] {
    OpenFile file;
    if (naming == Naming::kLate) file = open_nameless(parent_of(path));
    temp_path = file.is_open() ? "" : temp_path_for(path);
    if (file.is_open()) return file;
    return OpenFile::open(temp_path, O_WRONLY | O_CREAT | O_EXCL, 0666);
  };
  OpenFile file = open();
  if (!file.is_open() && errno == ENOENT) {
    if (Result<void> made = make_directories(parent_of(path)); !made) {
      return std::unexpected(made.error());
    }
    file = open();
  }
  if (!file.is_open()) return failed(errno, Access::kWrite);
  // The lock tells sweepers that the file is in use. It is taken before the file has a name, if
  // possible.
  static_cast<void>(::flock(file.get(), LOCK_EX | LOCK_NB));
  // The new file has the permissions of the one that it replaces.
  if (is_there) ::fchmod(file.get(), status.st_mode & 07777);
  return TempFile(std::move(path), std::move(temp_path), std::move(file));
}

TempFile::~TempFile() {
  if (!temp_path_.empty()) ::unlink(temp_path_.c_str());
}

Result<void> TempFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::write(file_.get(), bytes.data(), std::min<size_t>(bytes.size(), kWriteBytes));
    if (written < 0) {
      if (errno == EINTR) continue;
      return failed(errno, Access::kWrite);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Result<void> TempFile::move_to_free_name() {
  if (temp_path_.empty()) {
    if (name_nameless(file_, path_) != 0) return failed(errno, Access::kWrite);
    return {};
  }
  if (::renameat2(AT_FDCWD, temp_path_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    // File systems without that flag (NFS) have hard links, which do not replace anything either;
    // the temporary name is removed with this object.
    if (errno != EINVAL && errno != ENOSYS) return failed(errno, Access::kWrite);
    if (::link(temp_path_.c_str(), path_.c_str()) != 0) return failed(errno, Access::kWrite);
    ::unlink(temp_path_.c_str());
  }
  temp_path_.clear();
  return {};
}

Result<struct stat> TempFile::publish(const Precondition& condition,
                                      const std::function<bool()>& cancelled) {
  if (::fsync(file_.get()) != 0) return failed(errno, Access::kWrite);
  if (condition.generation && condition.generation->empty()) {
    if (Result<void> moved = move_to_free_name(); !moved) return std::unexpected(moved.error());
  } else {
    const Result<OpenFile> lock = lock_directory(parent_of(path_), cancelled);
    if (!lock) return std::unexpected(lock.error());
    if (Result<void> met = check_precondition(path_, condition); !met) {
      return std::unexpected(met.error());
    }
    if (temp_path_.empty()) {
      // Only a file with a name can replace another. A process killed between here and the rename
      // leaves it behind.
      std::string temp_path = temp_path_for(path_);
      if (name_nameless(file_, temp_path) != 0) return failed(errno, Access::kWrite);
      temp_path_ = std::move(temp_path);
    }
    if (::rename(temp_path_.c_str(), path_.c_str()) != 0) return failed(errno, Access::kWrite);
    temp_path_.clear();
  }
  // Once more, now that it has a name: some versions of btrfs do not keep a nameless file.
  if (::fsync(file_.get()) != 0) return failed(errno, Access::kWrite);
  // After the rename, which sets the ctime.
  struct stat status{};
  if (::fstat(file_.get(), &status) != 0) return failed(errno, Access::kWrite);
  if (Result<void> synced = sync_directory(parent_of(path_)); !synced) {
    return std::unexpected(synced.error());
  }
  return status;
}

Result<void> make_directories(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0777) != 0) {
    if (errno == EEXIST) return {};
    if (errno != ENOENT) return failed(errno, Access::kWrite);
    if (Result<void> made = make_directories(parent_of(directory)); !made) return made;
    if (::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST) {
      return failed(errno, Access::kWrite);
    }
  }
  return sync_directory(parent_of(directory));
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<void> sync_directory(const std::string& directory) {
  const OpenFile file = OpenFile::open(directory, O_RDONLY | O_DIRECTORY);
  if (!file.is_open()) {
    // A directory that may be written but not read cannot be opened to be synced.
    if (errno == EACCES) return {};
    return failed(errno, Access::kWrite);
  }
  if (::fsync(file.get()) != 0 && errno != EINVAL) return failed(errno, Access::kWrite);
  return {};
}

}  // namespace headrace
