#include "headrace/store/writing/change.h"

#include <atomic>

namespace headrace {

IoThread& Change::next_thread(const RemoteRoot& remote) {
  static std::atomic<uint32_t> next = 0;
  const std::vector<std::shared_ptr<IoThread>>& threads = remote.engine().io_threads;
  return *threads[next.fetch_add(1, std::memory_order_relaxed) % threads.size()];
}

void Change::cancel_requests() {
  std::shared_ptr<Gate::Pass> pass = remote_->engine().gate->enter();
  if (pass == nullptr) return;  // whatever is still in progress ends with the engine
  asio::post(thread_.context(), [self = shared_from_this(), pass = std::move(pass)] {
    self->cancelled_ = true;
    for (const std::function<void()>& cancel : self->in_progress_) cancel();
    self->wake();
  });
}

awaitable<void> Change::park() {
  co_await completion<bool>([this](auto resume) { parked_.push_back(std::move(resume)); });
}

void Change::wake() {
  for (std::move_only_function<void(bool)>& resume : std::exchange(parked_, {})) resume(true);
}

}  // namespace headrace
