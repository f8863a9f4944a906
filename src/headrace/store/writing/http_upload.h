// What all methods of uploading a large object over HTTP share: tracking its requests, and the last
// one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/pending.h"
#include "headrace/store/options.h"
#include "headrace/store/transfer/remote_root.h"
#include "headrace/store/upload.h"

namespace headrace {

// An object of one part is written directly. Otherwise a subclass sends the parts to the server,
// and one conditional request by publish_joined() makes the object visible.
// Thread: any.
class HttpUpload : public Upload, public std::enable_shared_from_this<HttpUpload> {
 public:
  Limits limits() const override;
  void publish_single(std::shared_ptr<const UploadPart> part, Published done) override;
  void cancel() override;
  void clean(Done done) final;

 protected:
  using Sources = std::vector<ComposeSource>;

  HttpUpload(std::shared_ptr<RemoteRoot> remote, WriteRequest target);

  // Runs `then` with the result. Until then cancel() cancels the request. Keeps this object alive.
  template <class T>
  void track(std::shared_ptr<Pending<T>> pending, std::move_only_function<void(Result<T>)> then);
  void begin_publishing(const Whole& whole, Published done);
  // Composes the object from these sources, which have full names, on its condition.
  void publish_joined(Sources sources);
  // Takes the result of the request that makes the object visible.
  void take_published(Result<ObjectInfo> info);
  // A whole object from one part.
  std::shared_ptr<Pending<ObjectInfo>> write(const std::shared_ptr<RemoteRoot>& remote,
                                             WriteRequest request,
                                             std::shared_ptr<const UploadPart> part);
  // Ends publishing.
  void finish(Result<ObjectInfo> result);
  // Called once nothing is in progress. Removes what is left, then calls cleaned().
  virtual void begin_cleaning() = 0;
  void cleaned(Result<void> result);
  Whole whole();

  // A prefix of full names that nobody else uses.
  static std::string new_temporary_prefix(const RemoteRoot& remote);
  Error with_url(Error error) const;
  Error in_part(uint32_t part_number, Error error) const;

  // How long to wait for the answer to a cancelled request that the server will carry out anyway.
  static constexpr std::chrono::milliseconds kLinger{1000};

  const std::shared_ptr<RemoteRoot> remote_;  // where the object will be
  const std::shared_ptr<RemoteRoot> bucket_;  // the same by full names, for temporary objects
  const WriteRequest target_;
  const std::string url_;
  Mutex mutex_;
  bool cancelled_ HEADRACE_GUARDED_BY(mutex_) = false;

 private:
  // The server says that it has stored something else: asks it once more what it has.
  void look_again(Error error);
  std::map<const void*, std::function<void()>> running_ HEADRACE_GUARDED_BY(mutex_);
  Whole whole_ HEADRACE_GUARDED_BY(mutex_);
  Published publish_done_ HEADRACE_GUARDED_BY(mutex_);
  bool cleaning_ HEADRACE_GUARDED_BY(mutex_) = false;
  Done clean_done_ HEADRACE_GUARDED_BY(mutex_);
};

template <class T>
void HttpUpload::track(std::shared_ptr<Pending<T>> pending,
                       std::move_only_function<void(Result<T>)> then) {
  bool cancelled = false;
  {
    const Lock lock(mutex_);
    running_.emplace(pending.get(), [pending] { pending->cancel(); });
    cancelled = cancelled_;
  }
  if (cancelled) pending->cancel();
  pending->then([self = shared_from_this(), key = static_cast<const void*>(pending.get()),
                 then = std::move(then)](Result<T> result) mutable {
    then(std::move(result));
    std::function<void()> dropped;  // destroyed outside the lock: it may own the request
    bool clean = false;
    {
      // Not before `then` has returned, so that nothing it uses is cleaned up.
      const Lock lock(self->mutex_);
      const auto at = self->running_.find(key);
      dropped = std::move(at->second);
      self->running_.erase(at);
      clean = self->clean_done_ && self->running_.empty() && !std::exchange(self->cleaning_, true);
    }
    if (clean) self->begin_cleaning();
  });
}

}  // namespace headrace
