#include "headrace/store/reading/compose_sweep.h"

#include <deque>
#include <utility>

namespace headrace {
namespace {

// Kept alive by its request in progress, which ends when the engine does.
// Thread: confined (one request after the other).
class Sweep : public std::enable_shared_from_this<Sweep> {
 public:
  Sweep(std::shared_ptr<ObjectStore> bucket, TemporaryNames temporaries, std::string spared,
        std::chrono::system_clock::time_point before)
      : store_(std::move(bucket)),
        temporaries_(std::move(temporaries)),
        spared_(std::move(spared)),
        before_(before) {}

  void list(std::string page_token) {
    store_
        ->list({.prefix = cat(temporaries_.composites(), kCompositeMark), .page_token = page_token})
        ->then([self = shared_from_this()](Result<ColumnPage> page) {
          if (page) self->listed(std::move(*page));
        });
  }

 private:
  void listed(ColumnPage page) {
    for (size_t i = 0; i < page.size(); ++i) {
      const bool is_left = temporaries_.is_own_composite(page.name(i)) &&
                           !page.name(i).starts_with(spared_) && page.row(i).updated < before_;
      if (is_left) left_.push_back(page.info(i));
    }
    next_page_token_ = std::move(page.next_page_token);
    remove_next();
  }

  void remove_next() {
    if (left_.empty()) {
      if (!next_page_token_.empty()) list(std::move(next_page_token_));
      return;
    }
    const ObjectInfo info = std::move(left_.front());
    left_.pop_front();
    store_->remove(info.name, {.generation = info.generation})
        ->then([self = shared_from_this()](Result<bool> removed) {
          const bool is_of_no_use = !removed && (removed.error().code() == Code::kCancelled ||
                                                 removed.error().code() == Code::kPermissionDenied);
          if (!is_of_no_use) self->remove_next();
        });
  }

  const std::shared_ptr<ObjectStore> store_;
  const TemporaryNames temporaries_;
  const std::string spared_;
  const std::chrono::system_clock::time_point before_;
  std::deque<ObjectInfo> left_;
  std::string next_page_token_;
};

}  // namespace

void sweep_composites(std::shared_ptr<ObjectStore> bucket, TemporaryNames temporaries,
                      std::string spared, std::chrono::system_clock::time_point before) {
  std::make_shared<Sweep>(std::move(bucket), std::move(temporaries), std::move(spared), before)
      ->list("");
}

}  // namespace headrace
