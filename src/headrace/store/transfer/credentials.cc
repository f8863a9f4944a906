#include "headrace/store/transfer/credentials.h"

#include <algorithm>
#include <utility>

#include "headrace/base/fork.h"

namespace headrace {

using std::chrono::steady_clock;

namespace {
constexpr std::chrono::seconds kFailureLife{1};
}  // namespace

std::shared_ptr<Credentials> CredentialsQueue::next(steady_clock::time_point until, MayBlock) {
  const Lock lock(mutex_);
  while (waiting_.empty() && !stopped_) {
    if (changed_.wait_until(mutex_, until) == std::cv_status::timeout) break;
  }
  if (waiting_.empty() || stopped_) return nullptr;
  std::shared_ptr<Credentials> credentials = std::move(waiting_.front());
  waiting_.pop_front();
  return credentials;
}

void CredentialsQueue::stop() {
  const Lock lock(mutex_);
  stopped_ = true;
  waiting_.clear();
  changed_.notify_all();
}

void CredentialsQueue::push(std::shared_ptr<Credentials> credentials) {
  const Lock lock(mutex_);
  if (stopped_) return;
  waiting_.push_back(std::move(credentials));
  changed_.notify_one();
}

std::shared_ptr<Credentials> Credentials::fixed(Credential credential) {
  std::shared_ptr<Credentials> self(new Credentials());
  self->provide(std::move(credential));
  return self;
}

std::shared_ptr<Credentials> Credentials::from_queue(std::shared_ptr<CredentialsQueue> queue,
                                                     uint64_t id) {
  std::shared_ptr<Credentials> self(new Credentials());
  self->queue_ = std::move(queue);
  self->id_ = id;
  return self;
}

std::shared_ptr<Credentials> Credentials::from_callback(std::function<Result<Credential>()> fetch) {
  std::shared_ptr<Credentials> self(new Credentials());
  self->queue_ = std::make_shared<CredentialsQueue>();
  // The thread owns the queue and the function, but not the credentials; it gets those from the
  // queue for the duration of a fetch.
  self->fetcher_ = std::thread([queue = self->queue_, fetch = std::move(fetch)] {
    while (std::shared_ptr<Credentials> credentials = queue->next(
               steady_clock::now() + std::chrono::hours(24 * 365), MayBlock::on_this_thread())) {
      Result<Credential> credential = fetch();
      if (credential) {
        credentials->provide(std::move(*credential));
      } else {
        credentials->fail(std::move(credential.error()));
      }
    }
  });
  return self;
}

Credentials::Credentials() : epoch_(fork_epoch()) {}

Credentials::~Credentials() {
  if (!fetcher_.joinable()) return;
  if (epoch_ != fork_epoch()) {
    // A forked child: the thread is the parent's, and may have held the queue's lock at the fork.
    static_cast<void>(new std::thread(std::move(fetcher_)));
    static_cast<void>(new std::shared_ptr<CredentialsQueue>(std::move(queue_)));
    return;
  }
  queue_->stop();
  if (fetcher_.get_id() == std::this_thread::get_id()) {
    fetcher_.detach();  // the last reference was the fetching thread's own
  } else {
    fetcher_.join();
  }
}

void Credentials::provide(Credential credential) {
  if (credential.expires_at && *credential.expires_at <= steady_clock::now()) {
    // Asking again at once would only get the same answer.
    fail(Error(Code::kPermissionDenied,
               "the credentials that were fetched have expired already (is the clock right?)"));
    return;
  }
  std::vector<std::function<void()>> waiters;
  {
    const Lock lock(mutex_);
    refresh_at_.reset();
    if (credential.expires_at) {
      const auto life = *credential.expires_at - steady_clock::now();
      refresh_at_ = *credential.expires_at -
                    std::min<steady_clock::duration>(life / 4, std::chrono::minutes(5));
    }
    credential_ = std::make_shared<const Credential>(std::move(credential));
    error_.reset();
    asked_ = false;
    version_.fetch_add(1, std::memory_order_acq_rel);
    waiters.swap(waiters_);
  }
  for (const auto& waiter : waiters) waiter();
}

void Credentials::fail(Error error) {
  std::vector<std::function<void()>> waiters;
  {
    const Lock lock(mutex_);
    error_ = std::move(error);
    failed_at_ = steady_clock::now();
    asked_ = false;
    waiters.swap(waiters_);
  }
  for (const auto& waiter : waiters) waiter();
}

void Credentials::ask() {
  if (asked_ || !queue_) return;
  asked_ = true;
  queue_->push(shared_from_this());
}

Credentials::Current Credentials::current(steady_clock::time_point now,
                                          std::function<void()> on_change) {
  const Lock lock(mutex_);
  Current current;
  current.credential = credential_;
  current.version = version_.load(std::memory_order_relaxed);
  if (credential_ && credential_->expires_at && now >= *credential_->expires_at)
    current.credential = nullptr;
  if (current.credential && refresh_at_ && now >= *refresh_at_) {
    // Early: the old one is still valid. After a failure, ask again after a while.
    refresh_at_ = now + std::chrono::seconds(15);
    ask();
  }
  current.fresh_until = refresh_at_.value_or(steady_clock::time_point::max());
  if (current.credential) return current;
  // A failure is the answer to all requests that were waiting; a later request makes another
  // attempt.
  if (error_ && now - failed_at_ < kFailureLife) {
    current.error = error_;
    return current;
  }
  ask();
  waiters_.push_back(std::move(on_change));
  return current;
}

void Credentials::reject(uint64_t version) {
  const Lock lock(mutex_);
  if (version != version_.load(std::memory_order_relaxed) || !queue_) return;
  credential_ = nullptr;
  refresh_at_.reset();
  version_.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace headrace
