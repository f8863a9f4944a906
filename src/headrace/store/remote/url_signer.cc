#include "headrace/store/remote/url_signer.h"

#include <utility>

#include "headrace/store/transfer/stat_attempt.h"
#include "headrace/store/url_signing.h"

namespace headrace {
namespace {

// Sends nothing, and only waits.
class Waiting final : public Activity {
 public:
  using Activity::Activity;

 private:
  void interrupt(const Error&) override {}
  void sweep(std::chrono::steady_clock::time_point) override {}
};

}  // namespace

std::shared_ptr<Pending<std::string>> UrlSigner::presigned_url(UrlRequest request) {
  const std::string url = remote_->url_of(request.name);
  const UrlSigning* signing = remote_->protocol().url_signing();
  Result<void> good;
  if (signing == nullptr) {
    good = invalid_argument("this store has no presigned URLs");
  } else if (!remote_->has_credentials()) {
    good = invalid_argument(
        "a URL is signed with credentials, and this store has none (credentials are 'anonymous'): "
        "give it keys, or share the URL of the object itself");
  } else if (request.name.empty()) {
    good = invalid_argument(kEmptyName);
  }
  if (!good) return refused<std::string>(std::move(good.error()).with_url(url));
  if (signing->knows_place() || place_asked_.load(std::memory_order_relaxed)) {
    return sign(std::move(request));
  }
  // What the answer says of the object does not matter.
  auto pending = std::make_shared<Pending<std::string>>();
  const std::shared_ptr<Pending<ObjectInfo>> asked = remote_->run<StatAttempt>(request.name);
  pending->set_on_cancel([asked] { asked->cancel(); });
  asked->then([self = shared_from_this(), request = std::move(request),
               pending](Result<ObjectInfo> found) mutable {
    if (!found && (is_retryable(found.error()) || found.error().http_status() == 0)) {
      pending->complete(std::unexpected(std::move(found.error())));
      return;
    }
    self->place_asked_.store(true, std::memory_order_relaxed);
    const std::shared_ptr<Pending<std::string>> made = self->sign(std::move(request));
    pending->set_on_cancel([made] { made->cancel(); });
    made->then(
        [pending](Result<std::string> signed_url) { pending->complete(std::move(signed_url)); });
  });
  return pending;
}

std::shared_ptr<Pending<std::string>> UrlSigner::sign(UrlRequest request) {
  std::string url = remote_->url_of(request.name);
  return remote_->spawn<std::string>(
      std::move(url),
      [request = std::move(request)](std::shared_ptr<RemoteRoot> remote, HostLane& lane,
                                     std::shared_ptr<Pending<std::string>> pending,
                                     std::shared_ptr<Gate::Pass> pass) mutable {
        return run(std::move(remote), lane, std::move(request), std::move(pending),
                   std::move(pass));
      });
}

awaitable<void> UrlSigner::run(std::shared_ptr<RemoteRoot> remote, HostLane& lane,
                               UrlRequest request, std::shared_ptr<Pending<std::string>> pending,
                               [[maybe_unused]] std::shared_ptr<Gate::Pass> pass) {
  IoThread& thread = lane.thread();
  StoreContext& context = remote->context(lane);
  Result<std::string> made;
  {
    Waiting waiting(thread, pending.get(), thread.now() + context.timeout.total);
    if (pending->cancelled()) waiting.stop(Error(Code::kCancelled, "it was cancelled"));
    Result<void> ready;
    if (const std::optional<Error>& stopped = waiting.stopped()) {
      ready = std::unexpected(*stopped);
    } else {
      ready = co_await authorize(waiting, context);
    }
    if (ready) {
      made = remote->protocol().url_signing()->signed_url(
          request, *context.credential, thread.clock().wall_now() + context.clock_offset);
    } else {
      made = std::unexpected(std::move(ready.error()));
    }
  }
  if (!made) made = std::unexpected(std::move(made.error()).with_url(remote->url_of(request.name)));
  pending->complete(std::move(made));
}

}  // namespace headrace
