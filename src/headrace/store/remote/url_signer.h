// URLs that let anyone who has them send one request.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "headrace/store/transfer/remote_root.h"

namespace headrace {

// Thread: any. Lives as long as what it has begun.
class UrlSigner final : public std::enable_shared_from_this<UrlSigner> {
 public:
  explicit UrlSigner(std::shared_ptr<RemoteRoot> remote) : remote_(std::move(remote)) {}
  // Errors: kInvalidArgument without such URLs, or without credentials; those of the credentials.
  std::shared_ptr<Pending<std::string>> presigned_url(UrlRequest request);

 private:
  std::shared_ptr<Pending<std::string>> sign(UrlRequest request);
  static awaitable<void> run(std::shared_ptr<RemoteRoot> remote, HostLane& lane, UrlRequest request,
                             std::shared_ptr<Pending<std::string>> pending,
                             std::shared_ptr<Gate::Pass> pass);

  const std::shared_ptr<RemoteRoot> remote_;
  std::atomic<bool> place_asked_ = false;  // where the bucket is
};

}  // namespace headrace
