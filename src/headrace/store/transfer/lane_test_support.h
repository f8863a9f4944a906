// Fixtures of tests that drive operations through one lane: no socket, no server, no thread, and a
// clock that the test moves.
#pragma once

#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "headrace/base/units.h"
#include "headrace/http/manual_clock_test_support.h"
#include "headrace/store/transfer/operation.h"

namespace headrace {

inline std::shared_ptr<const Route> route_to(std::string host) {
  Route route;
  route.endpoint.host = std::move(host);
  return std::make_shared<Route>(std::move(route));
}

// A lane to a host that has this many permits, over transports that `make` makes.
class LaneTest : public ::testing::Test {
 protected:
  LaneTest(uint32_t permits, bool reads, Host::Connect make)
      : host_(route_to("storage.test"), permits, permits, /*retry_budget_tokens=*/100, log_,
              std::move(make)),
        permit_(lane_, reads) {
    lane_.rng().seed(1);
  }
  // While all that transports and attempts refer to is still there.
  void TearDown() override {
    permit_.release();
    lane_.close();
    host_.lanes.clear();
    poll();  // what was posted lets go of what it holds
    operation_.reset();
  }

  HostLane& lane() { return lane_; }
  const Metrics& metrics() { return thread_->metrics(); }
  // Runs what can run, without any time passing.
  void poll() {
    thread_->context().restart();
    thread_->context().poll();
  }
  // Begins the attempt's operation. `result_` has its outcome once it has ended.
  void begin(Attempt& attempt) {
    operation_.emplace(permit_, *store_, this);
    asio::co_spawn(thread_->context(), drive(*operation_, attempt, result_), asio::detached);
    poll();
  }

  ManualClock clock_;
  const std::shared_ptr<IoThread> thread_ = IoThread::without_thread(0, clock_);
  Resolver resolver_;
  const std::shared_ptr<BlockPool> pool_ = BlockPool::create(64 * kMiB);
  const std::shared_ptr<Log> log_ = std::make_shared<Log>(LogLevel::kWarning);
  Host host_;
  const std::shared_ptr<Pace> pace_ = host_.paces.of("gs://bucket/");
  HostLane& lane_ =
      *host_.lanes.emplace_back(std::make_unique<HostLane>(host_, *thread_, resolver_, *pool_));
  Permit permit_;
  std::optional<StoreContext> store_;
  std::optional<Result<void>> result_;
  std::optional<Operation> operation_;

 private:
  static awaitable<void> drive(Operation& operation, Attempt& attempt,
                               std::optional<Result<void>>& result) {
    HttpRequest request;
    result = co_await operation.run(attempt, request);
  }
};

}  // namespace headrace
