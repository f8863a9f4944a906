// Idle connections of one lane with a real server, on a clock that the test moves.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "headrace/http/activity_test_support.h"
#include "headrace/http/manual_clock_test_support.h"
#include "headrace/store/fault_server_test_support.h"
#include "headrace/store/transfer/host.h"

namespace headrace {
namespace {

using std::chrono::seconds;

class AnyBody final : public ResponseSink {
 public:
  Result<void> on_head(const ResponseHead&) override { return {}; }
  Result<std::span<std::byte>> space(uint64_t) override { return bytes_; }
  Result<void> on_bytes(size_t) override { return {}; }

 private:
  std::array<std::byte, 1024> bytes_{};
};

class IdleConnectionsTest : public ::testing::Test {
 protected:
  ~IdleConnectionsTest() override {
    host_.lanes.clear();
    thread_->context().restart();
    thread_->context().poll();
  }
  static std::shared_ptr<const Route> route_to(const FaultServer& server) {
    Route route;
    route.endpoint = parse_endpoint(server.url(), false).value();
    return std::make_shared<Route>(std::move(route));
  }
  static awaitable<void> use(Transport& connection, IoThread& thread, Resolver& resolver,
                             std::optional<Result<void>>& done) {
    TestActivity activity(thread);
    HttpRequest request;
    request.target = "/storage/v1/b";
    AnyBody body;
    Result<void> result;
    if (!connection.reusable()) result = co_await connection.open(activity, resolver);
    if (result) result = co_await connection.exchange(request, body);
    done = std::move(result);
  }
  // One request by this connection.
  void use(Transport& connection) {
    std::optional<Result<void>> done;
    asio::co_spawn(thread_->context(), use(connection, *thread_, resolver_, done), asio::detached);
    while (!done) {
      thread_->context().restart();
      thread_->context().run_one();
    }
    ASSERT_TRUE(done->has_value()) << done->error().to_string();
  }
  uint64_t opened() { return server_.stat("/connections_opened"); }
  uint64_t requests() { return server_.stat("/requests"); }

  FaultServer server_;
  ManualClock clock_;
  const std::shared_ptr<IoThread> thread_ = IoThread::without_thread(0, clock_);
  Resolver resolver_;
  const std::shared_ptr<BlockPool> pool_ = BlockPool::create(64 * kMiB);
  Host host_{route_to(server_), 4, 4, 100, std::make_shared<Log>()};
  HostLane& lane_ =
      *host_.lanes.emplace_back(std::make_unique<HostLane>(host_, *thread_, resolver_, *pool_));
};

TEST_F(IdleConnectionsTest, AConnectionKnowsWhenItWasUsedLast) {
  const std::unique_ptr<Transport> connection = lane_.connections().make();
  use(*connection);
  const auto first = clock_.now();
  EXPECT_EQ(connection->last_used(), first);
  clock_.advance(seconds(7));
  EXPECT_EQ(connection->last_used(), first);
  use(*connection);
  EXPECT_EQ(connection->last_used(), first + seconds(7));
  EXPECT_EQ(opened(), 1u);
}

TEST_F(IdleConnectionsTest, TheOneUsedLastIsTakenFirst) {
  std::unique_ptr<Transport> a = lane_.connections().make(), b = lane_.connections().make();
  use(*a);
  use(*b);
  const Transport* const last = a.get();
  lane_.connections().give_back(std::move(b));
  lane_.connections().give_back(std::move(a));
  EXPECT_EQ(lane_.connections().take().get(), last);
}

TEST_F(IdleConnectionsTest, ThoseThatTheServerHasClosedCostANewOneAndNothingElse) {
  for (const char* mode : {"fin", "rst"}) {
    std::array<std::unique_ptr<Transport>, 3> connections;
    std::array<Transport*, 3> idle{};
    for (size_t i = 0; i < connections.size(); ++i) {
      connections[i] = lane_.connections().make();
      idle[i] = connections[i].get();
      use(*connections[i]);
    }
    for (std::unique_ptr<Transport>& each : connections)
      lane_.connections().give_back(std::move(each));
    const uint64_t opened_before = opened(), requests_before = requests();
    server_.post("close_connections", cat(R"({"mode":")", mode, "\"}"));
    clock_.advance(
        std::chrono::milliseconds(2));  // so long after its use, a connection is looked at
    // The news is on its way.
    while (std::ranges::any_of(idle, [](Transport* each) { return each->still_silent(false); })) {
      std::this_thread::yield();
    }
    const std::unique_ptr<Transport> taken = lane_.connections().take();
    EXPECT_FALSE(taken->reusable()) << "it has yet to be opened";
    use(*taken);
    EXPECT_FALSE(taken->went_stale());
    EXPECT_EQ(opened() - opened_before, 1u);
    EXPECT_EQ(requests() - requests_before, 1u);
  }
}

}  // namespace
}  // namespace headrace
