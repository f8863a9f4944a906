#include "headrace/store/writing/server_rename.h"

#include <utility>

#include "headrace/store/appends.h"
#include "headrace/store/transfer/retry.h"
#include "headrace/store/writing/rename_attempt.h"
#include "headrace/store/writing/server_copy.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {

ServerRename::ServerRename(std::shared_ptr<RemoteRoot> remote, std::shared_ptr<ObjectStore> stored,
                           CopyRequest request, std::shared_ptr<Pending<ObjectInfo>> pending)
    : remote_(std::move(remote)),
      stored_(std::move(stored)),
      request_(std::move(request)),
      pending_(std::move(pending)) {}

std::shared_ptr<Pending<ObjectInfo>> ServerRename::start(std::shared_ptr<RemoteRoot> remote,
                                                         std::shared_ptr<ObjectStore> stored,
                                                         CopyRequest request) {
  auto pending = std::make_shared<Pending<ObjectInfo>>();
  const std::shared_ptr<ServerRename> rename(
      new ServerRename(std::move(remote), std::move(stored), std::move(request), pending));
  rename->wait_for<CopySource>(
      rename->remote_->run<CopySourceAttempt>(rename->request_.source_name),
      [rename](Result<CopySource> source) { rename->took_source(std::move(source)); });
  return pending;
}

template <class T>
void ServerRename::wait_for(std::shared_ptr<Pending<T>> step,
                            std::move_only_function<void(Result<T>)> then) {
  pending_->set_on_cancel([step] { step->cancel(); });
  step->then(std::move(then));
}

bool ServerRename::is_one_request(const ObjectInfo& source) const {
  const Appends* const appends = remote_->protocol().appends();
  if (appends == nullptr || !appends->moves_to(request_.name)) return false;
  // Its new host may be told one of its properties only. The type is set again, but whoever reads
  // it before that must not take encoded bytes for plain ones.
  return source.content_encoding.empty() || remote_->are_together(source.name, request_.name);
}

void ServerRename::took_source(Result<CopySource> source) {
  if (!source) {
    pending_->complete(std::unexpected(std::move(source.error())));
    return;
  }
  const std::string source_url = remote_->url_of(request_.source_name);
  const bool at_once = is_one_request(source->info);
  Result<void> good = check_copy_source(request_, source->info, source_url);
  if (good && !at_once && source->info.generation.empty()) {
    good = fail(Code::kInvalidArgument,
                "the server tells no generation of it, so that another object could be removed "
                "than the one that was copied: copy it, and delete it");
  }
  if (!good) {
    pending_->complete(
        std::unexpected(std::move(good.error()).with_url(source_url).with_attempts(1)));
    return;
  }
  if (!at_once) {
    copy(std::move(*source));
    return;
  }
  wait_for<ObjectInfo>(remote_->run<RenameAttempt>(request_, std::move(source->info)),
                       [self = shared_from_this()](Result<ObjectInfo> renamed) {
                         self->pending_->complete(std::move(renamed));
                       });
}

void ServerRename::copy(CopySource source) {
  request_.source_generation = source.info.generation;
  source_ = source.info;
  wait_for<ObjectInfo>(copy_object(remote_, stored_, request_, std::move(source)),
                       [self = shared_from_this()](Result<ObjectInfo> copy) {
                         if (copy) {
                           self->remove_source(std::move(*copy));
                         } else {
                           self->pending_->complete(std::move(copy));
                         }
                       });
}

void ServerRename::remove_source(ObjectInfo copy) {
  if (!source_.checksum.empty() && copy.checksum.empty() &&
      compare_copy(copy, source_) != Match::kSame) {
    pending_->complete(std::unexpected(
        Error(
            Code::kUnavailable,
            cat("it was copied to ", remote_->url_of(copy.name), ", of which the service tells no ",
                "sum like that of the source, so that the source was not removed: both are "
                "there; compare them, and remove one"))
            .with_url(remote_->url_of(request_.source_name))
            .with_attempts(1)));
    return;
  }
  wait_for<bool>(
      remote_->run<RemoveAttempt>(request_.source_name,
                                  Precondition{.generation = request_.source_generation,
                                               .if_refused = Precondition::IfRefused::kLookFirst},
                                  remote_->learned().removal_conditions),
      [self = shared_from_this(), copy = std::move(copy)](Result<bool> removed) mutable {
        // If it is gone already, another program has removed it.
        if (removed || removed.error().code() == Code::kNotFound) {
          self->pending_->complete(std::move(copy));
          return;
        }
        Error& error = removed.error();
        const bool is_unknown = is_retryable(error) || error.code() == Code::kCancelled;
        self->pending_->complete(std::unexpected(
            std::move(error)
                .with_words(cat("it was copied to ", self->remote_->url_of(copy.name),
                                is_unknown
                                    ? ", and whether it was removed then is unknown: "
                                    : ", and could not be removed, so that both are there: "))
                .with_url(self->remote_->url_of(self->request_.source_name))));
      });
}

}  // namespace headrace
