// The files below a directory, in the order of object stores.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/format/column_page.h"
#include "headrace/store/options.h"

namespace headrace {

// The smallest name greater than all names that begin with `prefix`; "" if there is none.
std::string after_prefix(std::string_view prefix);

// Walks names in [lower, upper) in byte order of the whole name ("a-b" comes before "a/b"), and
// reads no directory that lies outside. It holds at most kWindowNames names of a directory and
// reads the directory again for the rest, so that memory stays bounded however large it is.
// Symbolic links are followed, but a directory that is one of those above it in its name is not
// entered: it would go on without an end, and its files have names without it. A prefix may lead
// through such a link. Dangling links, our temporary files, and everything that is neither file nor
// directory are left out. Thread: confined.
class FileWalk {
 public:
  static constexpr size_t kWindowNames = 65'536;
  // Is told the name, with '/' at the end, of each directory that is not entered.
  using OnCircle = std::function<void(std::string_view name)>;

  // Names that begin with `prefix`, from `lower` on, below `upper` ("" for no bound).
  // `root` has no trailing '/' ("" is the root directory of the machine).
  FileWalk(std::string root, std::string prefix, const std::string& lower, const std::string& upper,
           OnCircle on_circle, size_t window_names = kWindowNames);

  // None at the end. Errors: kNotFound if `root` is missing; kPermissionDenied for a directory that
  // may not be read; kInvalidArgument for a name that is not UTF-8: no listing could show it, and
  // omitting it would go unnoticed. The error names the directory.
  Result<std::optional<ObjectInfo>> next();
  // Makes next() return `info` again.
  void unread(ObjectInfo info) { unread_ = std::move(info); }
  // Skips names below `lower`.
  void skip_to(const std::string& lower);

 private:
  struct Directory {
    std::string name;               // "" or ends with '/'
    std::vector<std::string> keys;  // sorted; of directories, with '/' at the end
    size_t next = 0;
    bool complete = false;  // no names come after `keys`
    dev_t device = 0;
    ino_t inode = 0;
  };
  Result<void> start();
  // False if the directory is gone, or is one of those above it.
  Result<bool> enter(std::string name);
  Result<void> read_window(Directory& directory) const;
  bool holds(std::string_view name, bool is_directory) const;
  std::string path_of(std::string_view name) const;

  const std::string root_, prefix_;
  std::string lower_;
  const std::string upper_;
  const OnCircle on_circle_;
  const size_t window_names_;
  bool started_ = false;
  std::vector<Directory> stack_;
  std::vector<std::pair<dev_t, ino_t>> above_;  // directories above the first of the stack
  std::optional<ObjectInfo> unread_;
};

// The walk for a request, from its page token on. Errors: kInvalidArgument for a malformed token.
Result<std::unique_ptr<FileWalk>> walk_for(const std::string& root, const ListRequest& request,
                                           FileWalk::OnCircle on_circle);

// The next page of `walk`. Both the walk and the page's token remember where it ends, so that
// either can continue. Errors: as next(); kCancelled.
Result<ColumnPage> list_page(FileWalk& walk, const ListRequest& request,
                             const std::function<bool()>& cancelled);

}  // namespace headrace
