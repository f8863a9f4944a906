// Where coroutines meet the rest: they wait for functions that are called with results, and are
// begun so that whoever waits for them hears of it, even if there is no memory for them.
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "headrace/http/asio.h"

namespace headrace {

// What one coroutine waits for: a value that comes once, or never will. It is told on the
// coroutine's own thread, and that takes no memory.
// Thread: any for arrive(), I/O for the rest. Owned by who is to bring the value.
template <class T>
class Arrival : public std::enable_shared_from_this<Arrival<T>> {
  using Token = asio::use_awaitable_t<Executor>;

 public:
  explicit Arrival(Executor executor) : executor_(std::move(executor)) {}

  void arrive(std::optional<T> value) {
    value_ = std::move(value);
    asio::post(executor_, Job{this->shared_from_this()});
  }
  awaitable<void> wait() {
    const auto keep = [](auto resume, Arrival* self) { self->waiting_.emplace(std::move(resume)); };
    Token token;
    return asio::async_initiate<Token, void()>(keep, token, this);
  }
  // Throws std::bad_alloc if it will never come.
  T take() {
    if (!value_) throw std::bad_alloc();
    return std::move(*value_);
  }

 private:
  // The one job that is ever posted lies here.
  template <class U>
  struct JobMemory {
    using value_type = U;
    explicit JobMemory(Arrival& a_arrival) : arrival(&a_arrival) {}
    template <class V>
    explicit(false) JobMemory(const JobMemory<V>& other) : arrival(other.arrival) {}
    U* allocate(size_t) {
      static_assert(sizeof(U) <= kJobBytes);
      return reinterpret_cast<U*>(arrival->job_.data());
    }
    void deallocate(U*, size_t) {}
    bool operator==(const JobMemory&) const = default;
    Arrival* arrival;
  };
  struct Job {
    using allocator_type = JobMemory<Job>;
    allocator_type get_allocator() const noexcept { return allocator_type(*arrival); }
    void operator()() {
      if (!arrival->waiting_) return;  // the coroutine has ended
      auto resume = std::move(*arrival->waiting_);
      arrival->waiting_.reset();
      std::move(resume)();
    }
    std::shared_ptr<Arrival> arrival;
  };

  static constexpr size_t kJobBytes = 128;

  const Executor executor_;
  std::optional<T> value_;
  std::optional<typename asio::async_result<Token, void()>::handler_type> waiting_;
  alignas(std::max_align_t) std::array<std::byte, kJobBytes> job_;
};

// Calls `begin` with a function, and resumes, on the coroutine's own thread, with what that
// function is called with: once, on any thread, perhaps before `begin` returns. All memory that
// this takes is there before `begin` is called.
// Errors: throws std::bad_alloc if there is none, or if the function is destroyed uncalled.
template <class T, class Begin>
awaitable<T> completion(Begin begin) {
  class Brings {
   public:
    explicit Brings(std::shared_ptr<Arrival<T>> arrival) : arrival_(std::move(arrival)) {}
    Brings(Brings&&) noexcept = default;
    Brings& operator=(Brings&&) = delete;
    ~Brings() {
      if (arrival_ != nullptr) arrival_->arrive(std::nullopt);
    }
    void operator()(T value) {
      const std::shared_ptr<Arrival<T>> arrival = std::move(arrival_);
      arrival->arrive(std::move(value));
    }

   private:
    std::shared_ptr<Arrival<T>> arrival_;
  };
  auto made = std::make_shared<Arrival<T>>(co_await asio::this_coro::executor);
  Arrival<T>* const arrival = made.get();
  awaitable<void> arrived = arrival->wait();
  begin(std::move_only_function<void(T)>(Brings(std::move(made))));
  co_await std::move(arrived);
  co_return arrival->take();
}

// Runs the coroutine that `make` returns on the thread of `context`, which is this one. If it
// cannot begin, or does not reach its end, because there is no memory, calls `lost` once what it
// held has been released. Where the context itself is destroyed, nobody is told.
// False if it could not begin.
template <class Make, class Lost>
bool spawn(asio::io_context& context, Make make, Lost lost) {
  class TellsLoss {
   public:
    TellsLoss(asio::io_context& context, Lost lost)
        : executor_(context.get_executor()), lost_(std::move(lost)) {}
    TellsLoss(TellsLoss&& other) noexcept
        : executor_(other.executor_), lost_(std::exchange(other.lost_, std::nullopt)) {}
    TellsLoss& operator=(TellsLoss&&) = delete;
    ~TellsLoss() {
      if (!lost_ || !executor_.running_in_this_thread()) return;
      try {
        (*lost_)();
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory even for that
      }
    }
    void operator()(const std::exception_ptr& thrown) {
      if (!thrown) lost_.reset();
    }

   private:
    const Executor executor_;
    std::optional<Lost> lost_;
  };
  try {
    TellsLoss tells(context, std::move(lost));
    asio::co_spawn(context, make(), std::move(tells));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}
template <class Make>
bool spawn(asio::io_context& context, Make make) {
  return spawn(context, std::move(make), [] {});
}

}  // namespace headrace
