#include "headrace/store/transfer/connection_pool.h"

#include <algorithm>
#include <utility>

#include "headrace/http/completion.h"
#include "headrace/store/transfer/host.h"

namespace headrace {
namespace {

using std::chrono::steady_clock;

// Google closes idle connections after some minutes, load balancers after 60 s, AIStore after 30 s.
constexpr std::chrono::seconds kIdleLife{20};
constexpr size_t kLookedAtBeside = 8;  // idle connections

}  // namespace

ConnectionPool::ConnectionPool(Host& host, IoThread& thread, Resolver& resolver)
    : host_(host),
      thread_(thread),
      resolver_(resolver),
      idle_timer_(std::make_shared<Timer>(thread.context())) {}

std::unique_ptr<Transport> ConnectionPool::take(bool must_look) {
  while (!idle_.empty()) {
    std::unique_ptr<Transport> connection = std::move(idle_.back());
    idle_.pop_back();
    if (connection->still_silent(must_look)) return connection;
  }
  return make();
}

std::unique_ptr<Transport> ConnectionPool::make() { return host_.connect(thread_, host_.route); }

std::unique_ptr<Transport> ConnectionPool::take_beside(const Transport& other) {
  const size_t looked_at = std::min(idle_.size(), kLookedAtBeside);
  for (size_t i = idle_.size(); i > idle_.size() - looked_at; --i) {
    if (idle_[i - 1]->shares_address(other)) continue;
    std::rotate(idle_.begin() + static_cast<std::ptrdiff_t>(i) - 1,
                idle_.begin() + static_cast<std::ptrdiff_t>(i), idle_.end());
    break;
  }
  std::unique_ptr<Transport> connection = take();
  if (!connection->reusable()) connection->avoid(other);
  return connection;
}

void ConnectionPool::give_back(std::unique_ptr<Transport> connection) {
  if (!connection->reusable() || closed_ || thread_.stopping()) return;
  idle_.push_back(std::move(connection));
  if (!idle_timer_armed_) arm_idle_timer(thread_.now() + kIdleLife);
}

void ConnectionPool::close() {
  closed_ = true;
  idle_.clear();
  idle_timer_->cancel();
}

void ConnectionPool::arm_idle_timer(steady_clock::time_point at) {
  idle_timer_armed_ = true;
  thread_.clock().set(idle_timer_, at);
  idle_timer_->async_wait([this, alive = std::weak_ptr(idle_timer_)](boost::system::error_code) {
    if (alive.expired()) return;
    idle_timer_armed_ = false;
    expire_idle();
  });
}

void ConnectionPool::expire_idle() {
  const auto oldest = thread_.now() - kIdleLife;
  std::erase_if(idle_, [&](const auto& connection) { return connection->last_used() <= oldest; });
  // Those at the front have been idle longest.
  if (!idle_.empty()) arm_idle_timer(idle_.front()->last_used() + kIdleLife);
}

// ── Ahead of requests ────────────────────────────────────────────────────────────────────────

// A connection on its way to the idle ones.
class ConnectionPool::Opening final : public Activity {
 public:
  explicit Opening(ConnectionPool& pool)
      : Activity(pool.thread_, nullptr, pool.thread_.now() + std::chrono::years(1)),
        pool_(pool),
        connection_(pool.make()) {}

  // True if it got there.
  awaitable<bool> run() {
    if (stopped()) co_return false;
    const Result<void> opened = co_await connection_->open(*this, pool_.resolver_);
    if (!opened || stopped()) co_return false;
    connection_->rest(thread().now());
    pool_.give_back(std::move(connection_));
    co_return true;
  }

 private:
  void interrupt(const Error& why) override {
    if (connection_) connection_->abort(why);
  }
  void sweep(steady_clock::time_point now) override {
    if (connection_) connection_->check_stall(now);
  }

  ConnectionPool& pool_;
  std::unique_ptr<Transport> connection_;
};

void ConnectionPool::open_ahead(size_t wanted, size_t in_use) {
  if (thread_.stopping()) return;
  while (idle_.size() + in_use + opening_count_ < wanted) {
    ++opening_count_;
    // Out of memory: the request that finds no connection will say so.
    if (!spawn(
            thread_.context(), [this] { return open_one_ahead(); },
            [this, stays = host_.weak_from_this().lock()] { opening_ended(false); })) {
      return;
    }
  }
}

awaitable<void> ConnectionPool::open_one_ahead() {
  const std::shared_ptr<Host> stays = host_.weak_from_this().lock();
  bool opened = false;
  {
    Opening opening(*this);
    opened = co_await opening.run();
  }
  opening_ended(opened);
}

void ConnectionPool::opening_ended(bool opened) {
  --opening_count_;
  if (!opened) ++failed_openings_;
  if (wait_for_opened_.empty()) return;
  Activity* const next = wait_for_opened_.front();
  wait_for_opened_.pop_front();
  next->wake();
}

awaitable<void> ConnectionPool::wait_for_opening(Activity& waiting) {
  // What this one waited for may have gone to another request; after a failure it is its own turn.
  const uint64_t failed = failed_openings_;
  while (idle_.empty() && opening_count_ > wait_for_opened_.size() && failed == failed_openings_ &&
         !waiting.stopped()) {
    wait_for_opened_.push_back(&waiting);
    co_await waiting.park(waiting.deadline());
    std::erase(wait_for_opened_, &waiting);
  }
}

}  // namespace headrace
