// A copy of an object of any size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/mutex.h"
#include "headrace/base/pending.h"
#include "headrace/store/copies.h"
#include "headrace/store/object_store.h"
#include "headrace/store/object_writer.h"
#include "headrace/store/options.h"
#include "headrace/store/protocol.h"
#include "headrace/store/writing/multipart_upload.h"

namespace headrace {

// For providers that copy only objects up to a size by one request (PartCopies), or none (then
// a RelayedUpload takes the place of the server). Looks at the
// source. If it is larger than WriteLimits::max_copy_bytes, the copy is a multipart upload of which
// the server copies the parts, several at a time, all of the generation that was seen, and which is
// aborted unless it is completed.
// Thread: any. Keeps itself alive until it has ended.
// Errors: those of the requests, with the URL of the object that they are about.
class ServerCopy final : public UnfinishedWrite, public std::enable_shared_from_this<ServerCopy> {
 public:
  // As copy_object().
  static std::shared_ptr<Pending<ObjectInfo>> start(std::shared_ptr<RemoteRoot> remote,
                                                    std::shared_ptr<ObjectStore> stored,
                                                    CopyRequest request,
                                                    std::optional<CopySource> source);
  void abort() override;
  bool wait_cleaned(std::chrono::steady_clock::time_point until, MayBlock may_block) override;

 private:
  // The server is busy with a part for a second or two; nothing passes through here.
  static constexpr uint32_t kPartsInFlight = 16;
  // Where all of it passes through here.
  static constexpr uint32_t kRelayedInFlight = 4;
  static constexpr uint64_t kRelayedPartBytes = 16 * kMiB;
  // What takes no more memory than all parts in flight may be one part.
  static constexpr uint64_t kRelayedWholeBytes = kRelayedInFlight * kRelayedPartBytes;

  ServerCopy(std::shared_ptr<RemoteRoot> remote, std::shared_ptr<ObjectStore> stored,
             CopyRequest request, std::shared_ptr<Pending<ObjectInfo>> pending);
  // Runs `then` with the result. Until then abort() cancels the request.
  template <class T>
  void wait_for(std::shared_ptr<Pending<T>> pending, std::move_only_function<void(Result<T>)> then);
  void took_source(Result<CopySource> source);
  void begin_parts(CopySource source);
  // Takes the next steps that may be taken. Called without the lock.
  void advance();
  void part_done(Result<void> result);
  void published(Result<ObjectInfo> copy);
  void clean(Result<ObjectInfo> outcome);
  void finish(Result<ObjectInfo> outcome);

  // Errors: those of new_upload().
  Result<std::shared_ptr<Upload>> upload_of(CopySource source);

  const std::shared_ptr<RemoteRoot> remote_;
  const std::shared_ptr<ObjectStore> stored_;  // by full names
  const bool copies_;                          // the service does, and not this process
  CopyRequest request_;                        // changes only before there are parts
  const std::shared_ptr<Pending<ObjectInfo>> pending_;
  uint64_t size_bytes_ = 0, part_bytes_ = 0;
  Checksum checksum_;  // of the source, if it is told
  uint32_t parts_in_flight_ = kPartsInFlight;
  uint32_t part_count_ = 0;

  Mutex mutex_;
  CondVar changed_;
  std::function<void()> cancel_step_ HEADRACE_GUARDED_BY(mutex_);
  std::shared_ptr<Upload> upload_ HEADRACE_GUARDED_BY(mutex_);
  uint32_t next_part_ HEADRACE_GUARDED_BY(mutex_) = 1;
  uint32_t in_flight_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool parts_ended_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool cleaned_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::optional<Error> error_ HEADRACE_GUARDED_BY(mutex_);  // the first one
};

// By one request where the provider copies an object of any size by one, else as a ServerCopy.
// `remote` has the source and the copy; `stored` reads the bucket as it is stored. The source is
// looked at unless it was already.
std::shared_ptr<Pending<ObjectInfo>> copy_object(const std::shared_ptr<RemoteRoot>& remote,
                                                 std::shared_ptr<ObjectStore> stored,
                                                 CopyRequest request,
                                                 std::optional<CopySource> source = {});

}  // namespace headrace
