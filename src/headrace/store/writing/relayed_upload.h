// A copy whose bytes pass through this process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/store/object_store.h"
#include "headrace/store/options.h"
#include "headrace/store/transfer/remote_root.h"
#include "headrace/store/upload.h"

namespace headrace {

// For services that copy nothing. Parts are ranges without bytes, as those of a CopyUpload: each is
// read, in the generation that was seen, and sent on.
// Thread: any.
class RelayedUpload final : public Upload, public std::enable_shared_from_this<RelayedUpload> {
 public:
  // `request` names the source in its generation, and the copy, which `to` makes. `stored` reads,
  // by full names, what is stored.
  RelayedUpload(std::shared_ptr<RemoteRoot> remote, std::shared_ptr<ObjectStore> stored,
                std::shared_ptr<Upload> to, CopyRequest request, ObjectInfo source,
                uint32_t part_count);

  Limits limits() const override { return to_->limits(); }
  void send(std::shared_ptr<const UploadPart> part, Done done) override;
  void publish(const Whole& whole, Published done) override;
  void publish_single(std::shared_ptr<const UploadPart> part, Published done) override;
  void cancel() override;
  void clean(Done done) override { to_->clean(std::move(done)); }

 private:
  // Sends what has been read, in order.
  void forward();
  void took(std::shared_ptr<UploadPart> part, ReadBatch& batch, Done done);
  void failed(const Error& error, Done done);

  const std::shared_ptr<RemoteRoot> remote_;
  const std::shared_ptr<ObjectStore> stored_;
  const std::shared_ptr<Upload> to_;
  const CopyRequest request_;
  const ObjectInfo source_;
  const uint32_t part_count_;

  Mutex mutex_;
  bool cancelled_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<ReadBatch>> reading_ HEADRACE_GUARDED_BY(mutex_);
  // Of each part that was read, by its number.
  std::vector<Upload::Whole> read_ HEADRACE_GUARDED_BY(mutex_);
  struct Waiting {
    std::shared_ptr<const UploadPart> part;
    Done done;
  };
  std::map<uint32_t, Waiting> waiting_ HEADRACE_GUARDED_BY(mutex_);
  uint32_t next_part_ HEADRACE_GUARDED_BY(mutex_) = 1;
  std::optional<Error> error_ HEADRACE_GUARDED_BY(mutex_);  // the first one
  bool forwarding_ HEADRACE_GUARDED_BY(mutex_) = false;
  // Of an object of one part.
  std::shared_ptr<const UploadPart> single_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
