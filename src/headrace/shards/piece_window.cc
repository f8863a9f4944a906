#include "headrace/shards/piece_window.h"

#include <utility>

namespace headrace {

PieceWindow::Turn::Turn(std::shared_ptr<PieceWindow> window) : window_(std::move(window)) {
  const Lock lock(window_->mutex_);
  number_ = window_->next_number_++;
  window_->beginning_.insert(number_);
}

PieceWindow::Turn::~Turn() {
  pass();
  give_back(taken_bytes_);
}

bool PieceWindow::Turn::try_take(uint64_t size_bytes) {
  const Lock lock(window_->mutex_);
  if (!has_room(size_bytes)) return false;
  window_->under_way_bytes_ += size_bytes;
  taken_bytes_ += size_bytes;
  return true;
}

bool PieceWindow::Turn::take(uint64_t size_bytes, MayBlock) {
  const Lock lock(window_->mutex_);
  while (!cancelled_ && !has_room(size_bytes)) {
    window_->changed_.wait(window_->mutex_);
  }
  if (cancelled_) return false;
  window_->under_way_bytes_ += size_bytes;
  taken_bytes_ += size_bytes;
  return true;
}

void PieceWindow::Turn::give_back(uint64_t size_bytes) {
  const Lock lock(window_->mutex_);
  window_->under_way_bytes_ -= size_bytes;
  taken_bytes_ -= size_bytes;
  window_->changed_.notify_all();
}

void PieceWindow::Turn::pass() {
  const Lock lock(window_->mutex_);
  passed_ = true;
  window_->beginning_.erase(number_);
  window_->changed_.notify_all();
}

void PieceWindow::Turn::cancel() {
  const Lock lock(window_->mutex_);
  cancelled_ = true;
  window_->changed_.notify_all();
}

// A piece that is larger than all of the window is under way alone.
bool PieceWindow::Turn::has_room(uint64_t size_bytes) const {
  if (passed_) return taken_bytes_ == 0;
  if (*window_->beginning_.begin() < number_) return false;
  const uint64_t under_way_bytes = window_->under_way_bytes_;
  return under_way_bytes == 0 || under_way_bytes + size_bytes <= window_->max_bytes_;
}

}  // namespace headrace
