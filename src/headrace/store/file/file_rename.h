// A file gets another name.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <optional>
#include <string>

#include "headrace/base/result.h"
#include "headrace/store/file/file_io.h"
#include "headrace/store/options.h"

namespace headrace {

// Locks of two directories, which may be one.
struct DirectoryLocks {
  OpenFile first, second;
};

// As lock_directory(), for both: always in the same order, whichever is named first.
Result<DirectoryLocks> lock_directories(const std::string& one, const std::string& other,
                                        const std::function<bool()>& cancelled);

// Gives `file`, which is open, durable and at `from`, the name `to`, at once and durably, as
// TempFile::publish() does. The directories are there, and locked. None: the names lie on two file
// systems, and nothing has changed. Errors: kPreconditionFailed; kInvalidArgument if `from` is a
// symbolic link.
Result<std::optional<struct stat>> rename_file(const OpenFile& file, const std::string& from,
                                               const std::string& to,
                                               const Precondition& condition);

}  // namespace headrace
