#include "headrace/store/file/file_rename.h"

#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace headrace {
namespace {

bool same_file(const struct stat& left, const struct stat& right) {
  return left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

// False if the names lie on two file systems.
Result<bool> move_name(const std::string& from, const std::string& to, bool replaces) {
  const int moved =
      replaces ? ::rename(from.c_str(), to.c_str())
               : ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
  if (moved == 0) return true;
  if (errno == EXDEV) return false;
  if (replaces || (errno != EINVAL && errno != ENOSYS)) {
    return std::unexpected(file_error(errno, Access::kWrite));
  }
  // File systems without that flag (NFS) have hard links, which do not replace anything either.
  if (::link(from.c_str(), to.c_str()) != 0 || ::unlink(from.c_str()) != 0) {
    return std::unexpected(file_error(errno, Access::kWrite));
  }
  return true;
}

}  // namespace

Result<DirectoryLocks> lock_directories(const std::string& one, const std::string& other,
                                        const std::function<bool()>& cancelled) {
  struct stat left{}, right{};
  if (::stat(one.c_str(), &left) != 0 || ::stat(other.c_str(), &right) != 0) {
    return std::unexpected(file_error(errno, Access::kWrite));
  }
  const bool in_order = std::pair(left.st_dev, left.st_ino) < std::pair(right.st_dev, right.st_ino);
  DirectoryLocks locks;
  Result<OpenFile> locked = lock_directory(in_order ? one : other, cancelled);
  if (!locked) return std::unexpected(locked.error());
  locks.first = std::move(*locked);
  if (same_file(left, right)) return locks;
  locked = lock_directory(in_order ? other : one, cancelled);
  if (!locked) return std::unexpected(locked.error());
  locks.second = std::move(*locked);
  return locks;
}

Result<std::optional<struct stat>> rename_file(const OpenFile& file, const std::string& from,
                                               const std::string& to,
                                               const Precondition& condition) {
  struct stat source{}, target{};
  if (::lstat(from.c_str(), &source) != 0) {
    return std::unexpected(file_error(errno, Access::kRead));
  }
  if (S_ISLNK(source.st_mode)) {
    return invalid_argument(
        "the source is a symbolic link, and not the file itself would get the new name: copy it, "
        "and delete the link");
  }
  // As for writes, a device or a pipe is not replaced.
  if (::stat(to.c_str(), &target) == 0 && !S_ISREG(target.st_mode) && !S_ISDIR(target.st_mode)) {
    return invalid_argument("exists, and is not a regular file");
  }
  if (Result<void> met = check_precondition(to, condition); !met) {
    return std::unexpected(met.error());
  }
  const bool is_same = ::lstat(to.c_str(), &target) == 0 && same_file(source, target);
  if (is_same) {
    struct stat left{}, right{};
    const bool in_one_directory = ::stat(parent_of(from).c_str(), &left) == 0 &&
                                  ::stat(parent_of(to).c_str(), &right) == 0 &&
                                  same_file(left, right);
    if (in_one_directory && from.substr(from.rfind('/')) == to.substr(to.rfind('/'))) {
      return invalid_argument("it has this name already, by way of a symbolic link");
    }
  }
  const Result<bool> moved =
      move_name(from, to, !condition.generation || !condition.generation->empty());
  if (!moved) return std::unexpected(moved.error());
  if (!*moved) return std::nullopt;
  // Of two names of one file, rename(2) leaves both.
  if (is_same && ::unlink(from.c_str()) != 0) {
    return std::unexpected(file_error(errno, Access::kWrite));
  }
  // After the rename, which sets the ctime.
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) {
    return std::unexpected(file_error(errno, Access::kWrite));
  }
  for (const std::string& directory : {parent_of(to), parent_of(from)}) {
    if (Result<void> synced = sync_directory(directory); !synced) {
      return std::unexpected(synced.error());
    }
  }
  return status;
}

}  // namespace headrace
