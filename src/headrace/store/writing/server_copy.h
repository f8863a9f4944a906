// A copy of an object of any size.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/pending.h"
#include "headrace/store/copies.h"
#include "headrace/store/object_store.h"
#include "headrace/store/object_writer.h"
#include "headrace/store/options.h"
#include "headrace/store/protocol.h"
#include "headrace/store/upload.h"
#include "headrace/store/writing/change.h"

namespace headrace {

// For providers that copy only objects up to a size by one request (PartCopies), or none. Looks at
// the source. If it is larger than WriteLimits::max_copy_bytes, the copy is a multipart upload of
// which the server copies the parts, several at a time, all of the generation that was seen, and
// which is aborted unless it is completed. Where the service copies nothing, each part is read
// here, and sent on.
// Thread: any. Keeps itself alive until it has ended.
// Errors: those of the requests, with the URL of the object that they are about.
class ServerCopy final : public UnfinishedWrite, public Change {
 public:
  // As copy_object().
  static std::shared_ptr<Pending<ObjectInfo>> start(std::shared_ptr<RemoteRoot> remote,
                                                    std::shared_ptr<ObjectStore> stored,
                                                    CopyRequest request,
                                                    std::optional<CopySource> source);
  void abort() override { cancel_requests(); }
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
             CopyRequest request);
  awaitable<Result<ObjectInfo>> copy(std::optional<CopySource> source);
  awaitable<Result<ObjectInfo>> copy_in_parts(CopySource source);
  // Errors: kInvalidArgument, kCorrupt: parts cannot make it.
  Result<void> plan_parts(const ObjectInfo& source);
  // Errors: those of new_upload().
  Result<std::shared_ptr<Upload>> upload_of(CopySource source);
  awaitable<Result<void>> send_parts();
  awaitable<Result<void>> send_part(uint32_t part_number);
  awaitable<Result<void>> read_part(UploadPart& part);
  awaitable<Result<ObjectInfo>> publish();
  // The first error ends what is in progress.
  void fail_with(const Error& error);
  void ended();
  Error at_source(Code code, std::string message) const;

  const std::shared_ptr<ObjectStore> stored_;  // by full names
  const bool copies_;                          // the service does, and not this process
  CopyRequest request_;                        // changes only before there are parts

  ObjectInfo source_;  // once it was looked at
  uint64_t part_bytes_ = 0;
  uint32_t parts_in_flight_ = kPartsInFlight;
  uint32_t part_count_ = 0;
  std::shared_ptr<Upload> upload_;
  uint32_t in_flight_ = 0;
  std::optional<Error> error_;  // the first one
  // Where all of it passes through here: the next part to be sent, what was read of each, and the
  // bytes of an object of one part.
  uint32_t next_part_ = 1;
  std::vector<Upload::Whole> read_;
  std::shared_ptr<const UploadPart> single_;

  Mutex mutex_;
  CondVar changed_;
  bool cleaned_ HEADRACE_GUARDED_BY(mutex_) = false;
};

// By one request where the provider copies an object of any size by one, else as a ServerCopy.
// `remote` has the source and the copy; `stored` reads the bucket as it is stored. The source is
// looked at unless it was already.
std::shared_ptr<Pending<ObjectInfo>> copy_object(const std::shared_ptr<RemoteRoot>& remote,
                                                 std::shared_ptr<ObjectStore> stored,
                                                 CopyRequest request,
                                                 std::optional<CopySource> source = {});

}  // namespace headrace
