#include "headrace/store/writing/server_rename.h"

#include <utility>

#include "headrace/store/appends.h"
#include "headrace/store/transfer/retry.h"
#include "headrace/store/writing/multipart_attempts.h"
#include "headrace/store/writing/rename_attempt.h"
#include "headrace/store/writing/server_copy.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {

ServerRename::ServerRename(std::shared_ptr<RemoteRoot> remote, std::shared_ptr<ObjectStore> stored,
                           CopyRequest request)
    : Change(remote, remote->url_of(request.source_name), next_thread(*remote)),
      stored_(std::move(stored)),
      request_(std::move(request)) {}

std::shared_ptr<Pending<ObjectInfo>> ServerRename::start(std::shared_ptr<RemoteRoot> remote,
                                                         std::shared_ptr<ObjectStore> stored,
                                                         CopyRequest request) {
  auto pending = std::make_shared<Pending<ObjectInfo>>();
  const std::shared_ptr<ServerRename> rename(
      new ServerRename(std::move(remote), std::move(stored), std::move(request)));
  pending->set_on_cancel([weak = std::weak_ptr(rename)] {
    if (const std::shared_ptr<ServerRename> alive = weak.lock()) alive->cancel_requests();
  });
  rename->Change::start<ObjectInfo>(
      [&rename] { return rename->rename(); },
      [pending](Result<ObjectInfo> renamed) { pending->complete(std::move(renamed)); });
  return pending;
}

bool ServerRename::is_one_request(const ObjectInfo& source) const {
  const Appends* const appends = remote_->protocol().appends();
  if (appends == nullptr || !appends->moves_to(request_.name)) return false;
  // The rename may lose the properties if the object moves to another host. The type is set again,
  // but a reader in between must not take encoded bytes for plain ones.
  return source.content_encoding.empty() || remote_->are_together(source.name, request_.name);
}

awaitable<Result<ObjectInfo>> ServerRename::rename() {
  Result<CopySource> source =
      co_await request(remote_->run<CopySourceAttempt>(request_.source_name));
  if (!source) co_return std::unexpected(std::move(source.error()));
  const bool at_once = is_one_request(source->info);
  Result<void> good = check_copy_source(request_, source->info, url_);
  if (good && !at_once && source->info.generation.empty()) {
    good = fail(Code::kInvalidArgument,
                "the server tells no generation of it, so that another object could be removed "
                "than the one that was copied: copy it, and delete it");
  }
  if (!good) co_return std::unexpected(std::move(good.error()).with_url(url_).with_attempts(1));
  if (at_once) {
    co_return co_await request(remote_->run<RenameAttempt>(request_, std::move(source->info)));
  }
  CopyRequest pinned = request_;
  pinned.source_generation = source->info.generation;
  ObjectInfo seen = source->info;
  Result<ObjectInfo> copy =
      co_await request(copy_object(remote_, stored_, std::move(pinned), std::move(*source)));
  if (!copy) co_return copy;
  co_return co_await remove_source(std::move(seen), std::move(*copy));
}

awaitable<Result<ObjectInfo>> ServerRename::remove_source(ObjectInfo source, ObjectInfo copy) {
  if (!source.checksum.empty() && copy.checksum.empty() &&
      compare_copy(copy, source) != Match::kSame) {
    co_return std::unexpected(
        Error(
            Code::kUnavailable,
            cat("it was copied to ", remote_->url_of(copy.name), ", of which the service tells no ",
                "sum like that of the source, so that the source was not removed: both are "
                "there; compare them, and remove one"))
            .with_url(url_)
            .with_attempts(1));
  }
  Precondition condition{.generation = source.generation,
                         .if_refused = Precondition::IfRefused::kLookFirst};
  Result<bool> removed = co_await request(remote_->run<RemoveAttempt>(
      request_.source_name, std::move(condition), remote_->learned().removal_conditions));
  // If it is gone already, another program has removed it.
  if (removed || removed.error().code() == Code::kNotFound) co_return copy;
  const bool is_unknown =
      is_retryable(removed.error()) || removed.error().code() == Code::kCancelled;
  co_return std::unexpected(
      std::move(removed.error())
          .with_words(cat("it was copied to ", remote_->url_of(copy.name),
                          is_unknown ? ", and whether it was removed then is unknown: "
                                     : ", and could not be removed, so that both are there: "))
          .with_url(url_));
}

}  // namespace headrace
