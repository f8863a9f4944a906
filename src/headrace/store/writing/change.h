// What takes more than one request: its control, as coroutines on one I/O thread.
#pragma once

#include <boost/asio/dispatch.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/gate.h"
#include "headrace/base/pending.h"
#include "headrace/base/result.h"
#include "headrace/http/asio.h"
#include "headrace/http/completion.h"
#include "headrace/http/io_thread.h"
#include "headrace/store/transfer/remote_root.h"

namespace headrace {

// Waits for what another thread completes.
template <class T>
awaitable<Result<T>> result_of(std::shared_ptr<Pending<T>> pending) {
  return completion<Result<T>>(
      [pending = std::move(pending)](auto resume) { pending->then(std::move(resume)); });
}

// The control of one change: coroutines on one I/O thread, each of which keeps it alive, and the
// engine from stopping, until it ends. Their requests go to all I/O threads. What they know needs
// no lock.
// Thread: any for start() and cancel_requests(); for the rest its I/O thread.
class Change : public std::enable_shared_from_this<Change> {
 public:
  virtual ~Change() = default;
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  // For the next change. The turns of requests (RemoteRoot::next_lane) are for requests alone:
  // otherwise those of changes of one request would all go to the same threads.
  static IoThread& next_thread(const RemoteRoot& remote);

 protected:
  // `url`: what errors are about.
  Change(std::shared_ptr<RemoteRoot> remote, std::string url, IoThread& thread)
      : remote_(std::move(remote)), url_(std::move(url)), thread_(thread) {}

  // Runs the coroutine that `make` returns, which is called at once, on this thread, and calls
  // `done` with its result when all that the coroutine held has been released: before start()
  // returns if this is its I/O thread and there is nothing to wait for.
  // Errors: of `done` alone: kCancelled if the engine has stopped; kInternal if memory is lacking.
  template <class T, class Make>
  void start(Make make, std::move_only_function<void(Result<T>)> done);
  // Asks the requests in progress, and those to come, to end.
  void cancel_requests();

  // The result of a request, which cancel_requests() cancels.
  template <class T>
  awaitable<Result<T>> request(std::shared_ptr<Pending<T>> pending) {
    const Cancellable here(*this, [pending] { pending->cancel(); });
    co_return co_await result_of(std::move(pending));
  }
  // While it lives, `cancel` is called if requests are cancelled; at once if they have been.
  class Cancellable {
   public:
    Cancellable(Change& change, std::function<void()> cancel) : change_(change) {
      at_ = change_.in_progress_.insert(change_.in_progress_.end(), std::move(cancel));
      if (change_.cancelled_) (*at_)();
    }
    ~Cancellable() { change_.in_progress_.erase(at_); }
    Cancellable(const Cancellable&) = delete;
    Cancellable& operator=(const Cancellable&) = delete;

   private:
    Change& change_;
    std::list<std::function<void()>>::iterator at_;
  };
  bool cancelled() const { return cancelled_; }
  // Of the coroutines.
  uint32_t running_count() const { return running_count_; }

  // Waits for wake(): for what another coroutine of this change does. Call it in a loop.
  awaitable<void> park();
  void wake();

  const std::shared_ptr<RemoteRoot> remote_;
  const std::string url_;
  IoThread& thread_;

 private:
  // Counts a coroutine.
  class Running {
   public:
    explicit Running(Change& change) : change_(change) { ++change_.running_count_; }
    ~Running() { --change_.running_count_; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    Change& change_;
  };
  template <class T>
  static awaitable<void> run(std::shared_ptr<Change> self, awaitable<Result<T>> work,
                             std::shared_ptr<Pending<T>> outcome, std::shared_ptr<Gate::Pass> pass);

  bool cancelled_ = false;
  uint32_t running_count_ = 0;
  std::list<std::function<void()>> in_progress_;
  std::vector<std::move_only_function<void(bool)>> parked_;
};

template <class T, class Make>
void Change::start(Make make, std::move_only_function<void(Result<T>)> done) {
  std::shared_ptr<Pending<T>> outcome;
  try {
    outcome = std::make_shared<Pending<T>>();
    outcome->then(std::move(done));
    std::shared_ptr<Gate::Pass> pass = remote_->engine().gate->enter();
    if (pass == nullptr) {
      outcome->complete(
          std::unexpected(Error(Code::kCancelled, "the engine was stopped").with_url(url_)));
      return;
    }
    asio::dispatch(thread_.context(), [self = shared_from_this(), work = make(), outcome,
                                       pass = std::move(pass)]() mutable {
      spawn(
          self->thread_.context(),
          [&] { return run<T>(self, std::move(work), outcome, std::move(pass)); },
          [self, outcome] {
            outcome->complete(fail(Code::kInternal, "no memory"));
            self->wake();
          });
    });
  } catch (const std::exception&) {  // out of memory: the caller must hear of it
    Result<T> none = fail(Code::kInternal, "no memory");
    outcome != nullptr ? outcome->complete(std::move(none)) : done(std::move(none));
  }
}

template <class T>
awaitable<void> Change::run(std::shared_ptr<Change> self, awaitable<Result<T>> work,
                            std::shared_ptr<Pending<T>> outcome,
                            [[maybe_unused]] std::shared_ptr<Gate::Pass> pass) {
  Result<T> result;
  {
    const Running running(*self);
    result = co_await std::move(work);
  }
  outcome->complete(std::move(result));
  self->wake();
}

}  // namespace headrace
