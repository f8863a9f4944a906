// file:// and plain paths: the embedded default, with no server and no account.
#pragma once

#include <memory>

#include "headrace/base/block_pool.h"
#include "headrace/base/log.h"
#include "headrace/base/metrics.h"
#include "headrace/base/result.h"
#include "headrace/base/thread_pool.h"
#include "headrace/format/url.h"
#include "headrace/store/object_store.h"
#include "headrace/store/options.h"

namespace headrace {

class WriterRegistry;

// Opens the directory that the URL names; names are relative to it. It need not exist: the first
// write creates it, and reading from it is kNotFound.
//
// - A generation is "device-inode-size-ctime_ns". A file that is replaced or written in place gets
//   another generation.
// - A file has no stored checksum, so bytes are verified only if the caller knows one (from an
// index
//   or a checkpoint). A file that changes while it is being read is read again, or reported.
// - Writes appear whole, after fsync, by renaming a temporary file. Create-only is atomic against
//   every program; a condition on a generation against programs that use this store (a lock on the
//   directory), not against others. Where the file system has no flock, it is check, then rename.
// - Symbolic links to files and directories are followed; removing or replacing a name acts on the
//   link itself. Listings do not enter a directory that lies in itself (FileWalk), and the log says
//   so.
// - Listings leave out what is neither file nor directory, and fail (kInvalidArgument, naming the
//   directory) at a name that is not UTF-8. remove() leaves empty directories behind, which
//   listings omit.
// Errors: kInvalidArgument if the URL names a file.
Result<std::shared_ptr<ObjectStore>> open_file_store(const Url& url, const StoreOptions& options,
                                                     std::shared_ptr<BlockPool> pool,
                                                     std::shared_ptr<ThreadPool> threads,
                                                     std::shared_ptr<Metrics> metrics,
                                                     std::shared_ptr<WriterRegistry> writers,
                                                     std::shared_ptr<Log> log = nullptr);

}  // namespace headrace
