// Files as objects: descriptors, generations, errors, and how a file is published whole.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/base/result.h"
#include "headrace/format/object_info.h"
#include "headrace/store/options.h"

namespace headrace {

// Of everything here that a caller gave up.
inline Error cancelled_error() { return Error(Code::kCancelled, "cancelled"); }

// The last component of the name of a file that is being written begins with this, if it has a name
// yet. Listings omit such files, and the writer holds a lock on them (flock).
inline constexpr std::string_view kTempPrefix = ".headrace-tmp-";

// An open descriptor. A forked child does not keep it.
// Thread: confined.
class OpenFile {
 public:
  OpenFile() = default;
  explicit OpenFile(int descriptor);
  OpenFile(OpenFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~OpenFile();
  // Not open if it fails, with errno set.
  static OpenFile open(const std::string& path, int flags, mode_t mode = 0);

  bool is_open() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// "device-inode-size-ctime_ns", in decimal; made for every read, so without an allocation.
class GenerationOf {
 public:
  explicit GenerationOf(const struct stat& status);
  std::string_view view() const { return {text_.data(), size_}; }

 private:
  std::array<char, 4 * 20 + 3> text_;  // four numbers of 64 bits
  size_t size_ = 0;
};
std::string generation_of(const struct stat& status);
ObjectInfo info_of(std::string name, const struct stat& status);

// Whether the bytes may have changed since `before`. Compares the modification time, and ctime too
// unless the file has lost a name meanwhile: replacing a file changes the ctime of the replaced
// one, but not its bytes.
bool changed_between(const struct stat& before, const struct stat& after);

// `number` is an errno. When reading, a missing object, or a directory in its place, is kNotFound.
// When writing, names that cannot be created are kInvalidArgument.
enum class Access : uint8_t { kRead, kWrite };
Error file_error(int number, Access access);

// Names are relative paths: components joined by '/', none of them empty, "." or "..", no NUL.
// Errors: kInvalidArgument.
Result<void> check_name(std::string_view name);
// Also refuses names that look like our temporary files, since listings omit those.
Result<void> check_new_name(std::string_view name);

// Checks `condition` against what is at `path`. Errors: kPreconditionFailed.
Result<void> check_precondition(const std::string& path, const Precondition& condition);

// A lock on a directory (flock) among all programs of this project that conditionally replace files
// in it. If the file system has no locks, it is open and locks nothing.
// Errors: kUnavailable if another holds it for ten seconds; kCancelled; those of opening.
Result<OpenFile> lock_directory(const std::string& directory,
                                const std::function<bool()>& cancelled);

// A file that is being written, in the directory where it will be. Removed unless published. It has
// no name until then (O_TMPFILE), so that a killed process leaves nothing behind; on file systems
// without such files (NFS), its name begins with kTempPrefix.
// Thread: confined.
class TempFile {
 public:
  enum class Naming : uint8_t {
    kLate,
    kEarly
  };  // kEarly: as on file systems without nameless files

  // Also makes missing directories.
  static Result<TempFile> create(std::string path, Naming naming = Naming::kLate);
  TempFile(TempFile&& other) noexcept
      : path_(std::move(other.path_)),
        temp_path_(std::exchange(other.temp_path_, {})),
        file_(std::move(other.file_)) {}
  TempFile& operator=(TempFile&&) = delete;
  ~TempFile();

  int descriptor() const { return file_.get(); }
  Result<void> append(std::span<const std::byte> bytes);
  // Makes the bytes durable, then gives the file its name, whole or not at all. Create-only
  // conditions are atomic against every other program; conditions on a generation against
  // programs that use lock_directory().
  Result<struct stat> publish(const Precondition& condition,
                              const std::function<bool()>& cancelled);

 private:
  TempFile(std::string path, std::string temp_path, OpenFile file)
      : path_(std::move(path)), temp_path_(std::move(temp_path)), file_(std::move(file)) {}
  // Links a nameless file, or its temporary name; replaces nothing.
  Result<void> move_to_free_name();

  std::string path_;
  std::string temp_path_;  // "" while it has no name
  OpenFile file_;
};

std::string parent_of(const std::string& path);
// Makes it, and those above it, unless they are there.
Result<void> make_directories(const std::string& directory);
// Makes a directory's entries durable.
Result<void> sync_directory(const std::string& directory);

}  // namespace headrace
