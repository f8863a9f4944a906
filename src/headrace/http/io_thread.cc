#include "headrace/http/io_thread.h"

#include <pthread.h>
#include <signal.h>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <exception>
#include <utility>

#include "headrace/base/fork.h"
#include "headrace/http/asio_internals.h"

namespace headrace {
namespace {

// The descriptors of Asio's reactor are private, but a forked child must close them.
template <class Action>
void for_each_descriptor(asio::io_context& context, Action action) {
  auto& reactor = asio::use_service<asio_internals::Reactor>(context);
  action(reactor.*member_of(asio_internals::EpollDescriptor()));
  action(reactor.*member_of(asio_internals::TimerDescriptor()));
  action((reactor.*member_of(asio_internals::Interrupter())).read_descriptor());
}

}  // namespace

struct Activity::Parking {
  Parking(asio::io_context& context, std::weak_ptr<IoThread> io_thread)
      : timer(context), thread(std::move(io_thread)) {}
  Timer timer;
  std::weak_ptr<IoThread> thread;
  bool woken = false;  // I/O thread only
};

Activity::Activity(IoThread& thread, const void* owner,
                   std::chrono::steady_clock::time_point deadline)
    : thread_(thread), owner_(owner), deadline_(deadline) {
  thread_.add(*this);
}

Activity::~Activity() { thread_.remove(*this); }

void Activity::stop(Error why) {
  if (stopped_) return;
  stopped_ = std::move(why);
  interrupt(*stopped_);
  wake();
}

void Activity::wake() {
  if (!parking_) return;
  parking_->woken = true;
  parking_->timer.cancel();
}

awaitable<void> Activity::park(std::chrono::steady_clock::time_point until) {
  if (!parking_) {
    parking_ = std::make_shared<Parking>(thread_.context(), thread_.weak_from_this());
  }
  const std::shared_ptr<Parking> parking = parking_;
  if (!stopped_ && !parking->woken) {
    thread_.clock().set({parking, &parking->timer}, std::min(until, deadline_));
    co_await parking->timer.async_wait(kAwait);
    // Not left to the sweep: until it ran, code that parks in a loop would spin.
    if (!stopped_ && thread_.now() >= deadline_) {
      stop(Error(Code::kTimedOut, "its deadline passed"));
    }
  }
  parking->woken = false;
}

std::function<void()> Activity::waker() {
  if (!parking_) {
    parking_ = std::make_shared<Parking>(thread_.context(), thread_.weak_from_this());
  }
  return [weak = std::weak_ptr<Parking>(parking_), thread = thread_.weak_from_this()] {
    if (const std::shared_ptr<IoThread> alive = thread.lock()) {
      alive->post([weak] {
        if (const std::shared_ptr<Parking> parking = weak.lock()) {
          parking->woken = true;
          parking->timer.cancel();
        }
      });
    }
  };
}

IoThread::IoThread(uint32_t index, Clock& clock)
    : index_(index),
      clock_(clock),
      work_(context_.get_executor()),
      sweep_timer_(std::make_shared<Timer>(context_)),
      end_timer_(std::make_shared<Timer>(context_)) {}

std::shared_ptr<IoThread> IoThread::without_thread(uint32_t index, Clock& clock) {
  return std::shared_ptr<IoThread>(new IoThread(index, clock));
}

std::shared_ptr<IoThread> IoThread::start(uint32_t index) {
  std::shared_ptr<IoThread> self(new IoThread(index, Clock::system()));
  for_each_descriptor(self->context_, close_in_child);
  // Signals belong to the program's own threads: a Ctrl-C handled here would wake nobody.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  self->thread_ = std::thread([raw = self.get()] { raw->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(self->thread_.native_handle(), cat("headrace-io-", index).c_str());
  return self;
}

// A coroutine for which there is no memory is destroyed, and whoever waits for it is told
// (spawn()).
void IoThread::run() {
  while (true) {
    try {
      context_.run();
      return;
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): on with the others
    }
  }
}

IoThread::~IoThread() {
  for_each_descriptor(context_, forget_in_child);
  if (thread_.joinable()) thread_.detach();  // join() was not reached: the last owner is the thread
}

void IoThread::post(std::function<void()> job) { asio::post(context_, std::move(job)); }

void IoThread::stop_owned_by(const void* owner, Error why) {
  post([this, owner, why = std::move(why)] {
    for (Activity* activity = first_; activity != nullptr; activity = activity->next_) {
      if (activity->owner_ == owner) activity->stop(why);
    }
  });
}

void IoThread::stop_all() {
  post([this] {
    stopping_ = true;
    for (Activity* activity = first_; activity != nullptr; activity = activity->next_) {
      activity->stop(Error(Code::kCancelled, "the engine was stopped"));
    }
  });
}

// A coroutine may hold what needs the context, so none may be left to be destroyed with it. Nobody
// has waited for some of them: a connection opened ahead is a request of nobody.
void IoThread::join() {
  work_.reset();
  // Behind everything posted before, such as the closing of idle connections.
  post([this] {
    leaving_ = true;
    clock_.set(end_timer_, now() + kLongestEnd);
    end_timer_->async_wait(
        [this](boost::system::error_code) { post([this] { context_.stop(); }); });
    if (first_ == nullptr) leave();
  });
  if (thread_.joinable()) thread_.join();
}

// Where a coroutine ends in its first turn, asio tells its end in a turn of its own, which may be
// queued behind this one. What is told holds what the coroutine held, the context's owner too. It
// may also begin an activity, which will call this as it ends.
void IoThread::leave() {
  post([this] {
    if (first_ == nullptr) context_.stop();
  });
}

void IoThread::trim_when_unused(const std::shared_ptr<BlockPool>& pool) {
  pool->set_on_surplus([self = shared_from_this(), weak = std::weak_ptr<BlockPool>(pool)] {
    self->post([raw = self.get(), weak] {
      try {
        raw->trim_later(weak);
      } catch (const std::exception&) {  // no memory; the next surplus will tell
        if (const std::shared_ptr<BlockPool> alive = weak.lock()) alive->forget_surplus();
      }
    });
  });
}

void IoThread::trim_later(std::weak_ptr<BlockPool> pool) {
  const auto timer = std::make_shared<Timer>(context_);
  clock_.set(timer, now() + kUnusedBeforeTrim);
  timer->async_wait(
      [this, timer, pool = std::move(pool)](boost::system::error_code) { trim(pool); });
}

// In turns: what else this thread does waits for no more than one.
void IoThread::trim(const std::weak_ptr<BlockPool>& pool) {
  const std::shared_ptr<BlockPool> alive = pool.lock();
  if (!alive) return;
  try {
    switch (alive->trim()) {
      case BlockPool::Trimmed::kAll: break;
      case BlockPool::Trimmed::kSome: post([this, pool] { trim(pool); }); break;
      case BlockPool::Trimmed::kUnused: trim_later(pool); break;
    }
  } catch (const std::exception&) {  // no memory; the next surplus will tell
    alive->forget_surplus();
  }
}

void IoThread::add(Activity& activity) {
  if (!sweep_armed_) arm_sweep();  // first: it may throw
  if (stopping_) activity.stopped_ = Error(Code::kCancelled, "the engine was stopped");
  activity.next_ = first_;
  if (first_ != nullptr) first_->previous_ = &activity;
  first_ = &activity;
}

void IoThread::remove(Activity& activity) {
  if (activity.previous_ != nullptr) activity.previous_->next_ = activity.next_;
  if (activity.next_ != nullptr) activity.next_->previous_ = activity.previous_;
  if (first_ == &activity) first_ = activity.next_;
  // Later, when the coroutine it lives in has ended too.
  if (leaving_ && first_ == nullptr) {
    post([this] { leave(); });
  }
}

void IoThread::arm_sweep() {
  sweep_armed_ = false;
  const auto now = clock_.now();
  const auto asked = std::exchange(next_sweep_, Clock::TimePoint::max());
  clock_.set(sweep_timer_, std::clamp(asked, now + kLeastSweepInterval, now + kSweepInterval));
  sweep_timer_->async_wait([this](boost::system::error_code) { sweep(); });
  sweep_armed_ = true;
}

void IoThread::sweep() {
  // It stays armed meanwhile: an activity that begins during the sweep must not arm it once more.
  if (first_ == nullptr) {
    sweep_armed_ = false;
    return;
  }
  const auto now = clock_.now();
  try {
    for (Activity* activity = first_; activity != nullptr; activity = activity->next_) {
      if (now >= activity->deadline_) {
        activity->stop(Error(Code::kTimedOut, "its deadline passed"));
      }
      // Even one that was stopped: it may still be waiting for an answer, but not for ever.
      activity->sweep(now);
    }
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory; the next one will
  }
  arm_sweep();
}

}  // namespace headrace
