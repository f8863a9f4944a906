// Jobs of one kind, some of them at a time, and what becomes of each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/pending.h"
#include "headrace/base/result.h"

namespace headrace {

// Runs jobs 0 to count - 1, at most `max_in_flight` at a time, each by one request after the other.
// Cancelling begins no further jobs and cancels the requests of those that run; so does a job that
// ends all. Jobs without an answer by then give kCancelled.
// Thread: any.
template <class Answer, class Request>
class ManyJobs : public std::enable_shared_from_this<ManyJobs<Answer, Request>> {
 public:
  using Answers = std::vector<Result<Answer>>;

  ManyJobs(const ManyJobs&) = delete;
  ManyJobs& operator=(const ManyJobs&) = delete;
  virtual ~ManyJobs() = default;

  // Call once.
  std::shared_ptr<Pending<Answers>> start() {
    pending_->set_on_cancel([weak = this->weak_from_this()] {
      const std::shared_ptr<ManyJobs> self = weak.lock();
      if (!self) return;
      self->stop();
      self->pump();
    });
    pump();
    return pending_;
  }

 protected:
  ManyJobs(size_t count, size_t max_in_flight, std::string_view not_done)
      : count_(count), max_in_flight_(std::max<size_t>(max_in_flight, 1)) {
    answers_.reserve(count);
    for (size_t i = 0; i < count; ++i) answers_.push_back(fail(Code::kCancelled, not_done));
  }

  // Begins job `at`, which calls end() when it is done: on any thread, or at once.
  virtual void begin(size_t at) = 0;

  // The job's request from now on, which is cancelled with the others. False if that has happened:
  // then the job cancels it, once it is sent.
  bool running(size_t at, std::shared_ptr<Request> request) {
    const Lock lock(mutex_);
    requests_.insert_or_assign(at, std::move(request));
    return !stopped_;
  }

  bool stopped() const {
    const Lock lock(mutex_);
    return stopped_;
  }

  void end(size_t at, Result<Answer> answer, bool ends_all) {
    {
      const Lock lock(mutex_);
      answers_[at] = std::move(answer);
      requests_.erase(at);
      --in_flight_;
    }
    if (ends_all) stop();
    pump();
  }

 private:
  void stop() {
    std::vector<std::shared_ptr<Request>> requests;
    {
      const Lock lock(mutex_);
      if (std::exchange(stopped_, true)) return;
      requests.reserve(requests_.size());
      for (const auto& [at, request] : requests_) requests.push_back(request);
    }
    for (const std::shared_ptr<Request>& each : requests) each->cancel();
  }

  // Only one thread at a time begins jobs. One that ends at once, on this very thread, is left to
  // the loop and begins none itself.
  void pump() {
    {
      const Lock lock(mutex_);
      if (pumping_) return;  // next() sees the change
      pumping_ = true;
    }
    while (const std::optional<size_t> at = next()) begin(*at);
    complete_if_done();
  }

  std::optional<size_t> next() {
    const Lock lock(mutex_);
    if (stopped_ || next_ == count_ || in_flight_ == max_in_flight_) {
      pumping_ = false;
      return std::nullopt;
    }
    ++in_flight_;
    return next_++;
  }

  void complete_if_done() {
    Answers answers;
    {
      const Lock lock(mutex_);
      const bool done = in_flight_ == 0 && (stopped_ || next_ == count_);
      if (!done || std::exchange(completed_, true)) return;
      answers.swap(answers_);
    }
    pending_->complete(std::move(answers));
  }

  const size_t count_;
  const size_t max_in_flight_;
  const std::shared_ptr<Pending<Answers>> pending_ = std::make_shared<Pending<Answers>>();

  mutable Mutex mutex_;
  Answers answers_ HEADRACE_GUARDED_BY(mutex_);
  std::unordered_map<size_t, std::shared_ptr<Request>> requests_ HEADRACE_GUARDED_BY(mutex_);
  size_t next_ HEADRACE_GUARDED_BY(mutex_) = 0, in_flight_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool pumping_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool stopped_ HEADRACE_GUARDED_BY(mutex_) = false, completed_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace
