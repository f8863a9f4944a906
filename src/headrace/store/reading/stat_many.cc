#include "headrace/store/reading/stat_many.h"

#include <unordered_map>
#include <utility>

#include "headrace/base/mutex.h"

namespace headrace {
namespace {

using Answers = std::vector<Result<ObjectInfo>>;

// Thread: any.
class StatMany : public std::enable_shared_from_this<StatMany> {
 public:
  StatMany(std::shared_ptr<ObjectStore> store, std::vector<std::string> names, bool missing_ok,
           size_t max_in_flight)
      : store_(std::move(store)),
        names_(std::move(names)),
        missing_ok_(missing_ok),
        max_in_flight_(std::max<size_t>(max_in_flight, 1)) {
    answers_.reserve(names_.size());
    for (size_t i = 0; i < names_.size(); ++i) {
      answers_.push_back(fail(Code::kCancelled, "it was not asked for"));
    }
  }

  std::shared_ptr<Pending<Answers>> start() {
    pending_->set_on_cancel([weak = weak_from_this()] {
      if (const std::shared_ptr<StatMany> self = weak.lock()) self->stop();
    });
    pump();
    return pending_;
  }

 private:
  // Only one thread at a time starts requests. An answer that comes at once, on this very thread,
  // is left to the loop and starts nothing itself.
  void pump() {
    {
      const Lock lock(mutex_);
      again_ = true;
      if (pumping_) return;
      pumping_ = true;
    }
    for (;;) {
      size_t at = 0;
      {
        const Lock lock(mutex_);
        if (stopped_ || next_ == names_.size() || under_way_ == max_in_flight_) {
          if (!std::exchange(again_, false)) {
            pumping_ = false;
            break;
          }
          continue;
        }
        at = next_++;
        ++under_way_;
      }
      begin(at);
    }
    end_if_done();
  }

  void begin(size_t at) {
    const std::shared_ptr<Pending<ObjectInfo>> stat = store_->stat(names_[at]);
    bool stopped = false;
    {
      const Lock lock(mutex_);
      asked_.emplace(at, stat);
      stopped = stopped_;
    }
    stat->then([self = shared_from_this(), at](Result<ObjectInfo> answer) {
      self->take(at, std::move(answer));
    });
    if (stopped) stat->cancel();
  }

  void take(size_t at, Result<ObjectInfo> answer) {
    const bool goes_on = answer || (missing_ok_ && answer.error().code() == Code::kNotFound);
    {
      const Lock lock(mutex_);
      answers_[at] = std::move(answer);
      asked_.erase(at);
      --under_way_;
      if (!goes_on) stopped_ = true;
    }
    pump();
  }

  void stop() {
    std::vector<std::shared_ptr<Pending<ObjectInfo>>> asked;
    {
      const Lock lock(mutex_);
      stopped_ = true;
      for (const auto& [at, stat] : asked_) asked.push_back(stat);
    }
    for (const std::shared_ptr<Pending<ObjectInfo>>& each : asked) each->cancel();
    pump();
  }

  void end_if_done() {
    Answers answers;
    {
      const Lock lock(mutex_);
      const bool done = under_way_ == 0 && (stopped_ || next_ == names_.size());
      if (!done || std::exchange(ended_, true)) return;
      answers = std::move(answers_);
    }
    pending_->complete(std::move(answers));
  }

  const std::shared_ptr<ObjectStore> store_;
  const std::vector<std::string> names_;
  const bool missing_ok_;
  const size_t max_in_flight_;
  const std::shared_ptr<Pending<Answers>> pending_ = std::make_shared<Pending<Answers>>();

  Mutex mutex_;
  Answers answers_ HEADRACE_GUARDED_BY(mutex_);
  std::unordered_map<size_t, std::shared_ptr<Pending<ObjectInfo>>> asked_
      HEADRACE_GUARDED_BY(mutex_);
  size_t next_ HEADRACE_GUARDED_BY(mutex_) = 0, under_way_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool pumping_ HEADRACE_GUARDED_BY(mutex_) = false, again_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool stopped_ HEADRACE_GUARDED_BY(mutex_) = false, ended_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::shared_ptr<Pending<std::vector<Result<ObjectInfo>>>> stat_many(
    std::shared_ptr<ObjectStore> store, std::vector<std::string> names, bool missing_ok,
    size_t max_in_flight) {
  return std::make_shared<StatMany>(std::move(store), std::move(names), missing_ok, max_in_flight)
      ->start();
}

}  // namespace headrace
