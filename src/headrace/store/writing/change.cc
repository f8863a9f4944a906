#include "headrace/store/writing/change.h"

namespace headrace {

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
