// Connections as a store's user meets them: reuse, defects of the wire, time-outs, proxies.
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

#include "headrace/http/loopback_test_support.h"
#include "headrace/store/fault_server_test_support.h"

extern char** environ;

namespace headrace {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A port of loopback where nobody answers.
class Port {
 public:
  enum class Does : uint8_t {
    kConnects,  // and then nothing
    kRefuses,
    kIsSilent,  // its queue is full: the kernel drops what asks for a connection
  };
  explicit Port(Does does) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = bind_to_loopback(socket_);
    if (does != Does::kRefuses) {
      EXPECT_EQ(::listen(socket_, does == Does::kConnects ? 16 : 0), 0);
    }
    number_ = ntohs(address.sin_port);
    if (does == Does::kIsSilent) {
      queued_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const auto* const at = reinterpret_cast<const sockaddr*>(&address);
      EXPECT_EQ(::connect(queued_, at, sizeof address), 0);
    }
  }
  ~Port() {
    ::close(socket_);
    if (queued_ >= 0) ::close(queued_);
  }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  std::string authority() const { return cat("127.0.0.1:", number_); }

 private:
  const int socket_;
  int queued_ = -1;
  uint16_t number_ = 0;
};

class ConnectionTest : public StoreTest {
 protected:
  const std::string bytes_ = some_bytes(50'000);
  const ObjectInfo object_ = server_.put("a", bytes_);
};

TEST_F(ConnectionTest, AreReusedSoThatThereAreAsManyAsMayBeInFlight) {
  options_.initial_in_flight = options_.max_in_flight = 4;
  const std::vector<ReadTarget> targets(200, listed(object_));
  const std::shared_ptr<ObjectStore> store = open();
  for (int i = 0; i < 3; ++i) {
    const std::shared_ptr<ReadBatch> batch = batch_of(targets);
    store->read(batch);
    wait_for(*batch);
  }
  EXPECT_EQ(server_.stat("/by_kind/media"), 600u);
  EXPECT_EQ(server_.stat("/connections_opened"), 4u);
  EXPECT_EQ(engine_.metrics().connections_opened_total, 4u);
  EXPECT_EQ(engine_.metrics().connections_open, 4u);
}

TEST_F(ConnectionTest, OfTwoStoresOnOneHostAreShared) {
  options_.initial_in_flight = options_.max_in_flight = 2;
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_LE(server_.stat("/connections_opened"), 2u);
}

TEST_F(ConnectionTest, ClosedByTheServerWhileIdleCostNoRetry) {
  server_.faults(R"([{"match":{"kind":"media"},"action":{"close_after":true}}])");
  const std::shared_ptr<ObjectStore> store = open();
  for (int i = 0; i < 20; ++i) EXPECT_THAT(read(*store, listed(object_)), Gives(bytes_));
  EXPECT_EQ(server_.stat("/by_kind/media"), 20u);
  EXPECT_EQ(engine_.metrics().retries_total, 0u);
}

TEST_F(ConnectionTest, ResetByTheServerWhileIdleCostNoRetry) {
  // The first attempt alone would fail, if a stale connection counted as one.
  options_.retry.max_attempts = 1;
  const std::shared_ptr<ObjectStore> store = open();
  for (const char* mode : {"fin", "rst", "fin", "rst"}) {
    EXPECT_THAT(read(*store, listed(object_)), Gives(bytes_));
    EXPECT_THAT(read(*store, listed(object_)), Gives(bytes_));
    server_.post("close_connections", cat(R"({"mode":")", mode, "\"}"));
  }
  EXPECT_EQ(engine_.metrics().retries_total, 0u);
}

TEST_F(ConnectionTest, AnnouncedToCloseAreNotReused) {
  server_.faults(R"([{"match":{"kind":"media"},"action":{"close_after":"announced"}}])");
  const std::shared_ptr<ObjectStore> store = open();
  for (int i = 0; i < 5; ++i) EXPECT_THAT(read(*store, listed(object_)), Gives(bytes_));
  EXPECT_EQ(server_.stat("/connections_opened"), 5u);
  EXPECT_EQ(engine_.metrics().connections_open, 0u);
}

TEST_F(ConnectionTest, WithBytesThatNobodyAskedForAreNotReused) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"garbage_head":
      "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nx-goog-generation: 1\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxyz"}}])");
  const std::shared_ptr<ObjectStore> store = open();
  EXPECT_THAT(read(*store, named("a")), Gives("abc"));
  EXPECT_THAT(read(*store, named("a")), Gives(bytes_));
}

TEST_F(ConnectionTest, WithBytesThatNobodyAskedForInTheSocketAreNotReused) {
  // More than one receive takes: what follows the body is still in the socket.
  const std::string body(8 * kKiB, 'z');
  server_.faults(cat(R"([{"match":{"kind":"media"},"count":1,"action":{"garbage_head":
      "HTTP/1.1 200 OK\r\nContent-Length: 8192\r\nx-goog-generation: 1\r\n\r\n)",
                     body, R"(HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nFORGED"}}])"));
  const std::shared_ptr<ObjectStore> store = open();
  EXPECT_THAT(read(*store, named("a")), Gives(body));
  EXPECT_THAT(read(*store, named("a")), Gives(bytes_));
  EXPECT_EQ(server_.stat("/connections_opened"), 2u);
}

TEST_F(ConnectionTest, TakesInterimAnswers) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"garbage_head":
      "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\nx-goog-generation: 1\r\n\r\nabc"}}])");
  EXPECT_THAT(read(*open(), named("a")), Gives("abc"));
}

TEST_F(ConnectionTest, TakesABodyThatEndsWithTheConnection) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"garbage_head":
      "HTTP/1.0 200 OK\r\nx-goog-generation: 1\r\nx-goog-stored-content-length: 6\r\n\r\nabcdef"}}])");
  EXPECT_THAT(read(*open(), named("a")), Gives("abcdef"));
}

class GarbageHead : public ConnectionTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(GarbageHead, IsTriedAgainAndIsAnErrorInTheEnd) {
  const std::string rule = cat(R"("match":{"kind":"media"},"action":)", GetParam(), "}]");
  options_.retry.max_attempts = 3;
  const std::shared_ptr<ObjectStore> store = open();
  server_.faults(cat(R"([{"count":2,)", rule));
  EXPECT_THAT(read(*store, listed(object_)), Gives(bytes_));
  server_.faults(cat("[{", rule));
  EXPECT_THAT(read(*store, listed(object_)),
              FailsWith(Code::kUnavailable, AllOf(HasSubstr("bucket/a"), HasSubstr("3 attempts"))));
}

INSTANTIATE_TEST_SUITE_P(
    , GarbageHead,
    ::testing::Values(
        R"("garbage_head")", R"({"garbage_head":"no head at all"})", R"({"garbage_head":""})",
        R"({"garbage_head":"HTTP/1.1 200 OK\r\nConte"})",
        R"({"garbage_head":"HTTP/9.9 200 OK\r\n\r\n"})",
        R"({"garbage_head":"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"})",
        R"({"garbage_head":"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"})",
        R"({"garbage_head":"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"})",
        R"({"garbage_head":"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"})",
        R"({"huge_head":1000000})", R"("reset")"));

TEST_F(ConnectionTest, RefusedIsTriedAgain) {
  server_.faults(R"([{"count":2,"action":"refuse"}])");
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
}

TEST_F(ConnectionTest, RefusedForGoodNamesHostAndPort) {
  const Port nobody(Port::Does::kRefuses);
  options_.endpoint = cat("http://", nobody.authority());
  options_.retry.max_attempts = 2;
  EXPECT_THAT(read(*open(), named("a")),
              FailsWith(Code::kUnavailable, AllOf(HasSubstr(nobody.authority()),
                                                  HasSubstr("refused"), HasSubstr("2 attempts"))));
}

bool has_ipv6() {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const int probe = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool bound = ::bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  if (probe >= 0) ::close(probe);
  return bound;
}

TEST_F(ConnectionTest, OverIpv6) {
  if (!has_ipv6()) GTEST_SKIP() << "this machine has no ::1";
  FaultServer server({.bind = "::1", .certificate_file = "", .key_file = ""});
  const ObjectInfo object = server.put("a", bytes_);
  StoreOptions options = options_for(server);
  EXPECT_THAT(options.endpoint, HasSubstr("[::1]"));
  EXPECT_THAT(read(*open(options), listed(object)), Gives(bytes_));
  EXPECT_EQ(server.log("media").at(0).headers.at("host"), cat("[::1]:", server.port()));
}

TEST_F(ConnectionTest, NoDescriptorOfItsIsInheritedByAProgramThatIsStarted) {
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_GT(engine_.metrics().connections_open, 0u);
  // What a started program has open beside its standard streams and what it opens itself.
  const std::string seen = cat(::testing::TempDir(), "headrace-descriptors-", ::getpid());
  const std::string command = cat("for d in /proc/self/fd/*; do readlink $d; done | ",
                                  "grep -E 'socket:|eventpoll|eventfd|timerfd' > ", seen, "; true");
  std::array<std::string, 3> words = {"sh", "-c", command};
  std::array<char*, 4> arguments = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int stream = 0; stream < 3; ++stream) {
    posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_RDWR, 0);
  }
  pid_t child = -1;
  ASSERT_EQ(::posix_spawn(&child, "/bin/sh", &actions, nullptr, arguments.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  std::stringstream inherited;
  inherited << std::ifstream(seen).rdbuf();
  ::unlink(seen.c_str());
  EXPECT_EQ(status, 0);
  EXPECT_EQ(inherited.str(), "");
}

TEST_F(ConnectionTest, AChunkedBodyGoesStraightToItsPlace) {
  const std::string bytes = some_bytes(3 * kMiB + 5);
  const ObjectInfo object = server_.put("chunks", bytes);
  server_.faults(R"([{"match":{"kind":"media"},"action":{"chunked":true}}])");
  for (const ReadTarget& target : {listed(object), named("chunks")}) {
    EXPECT_THAT(read(*open(), target), Gives(bytes));
  }
  EXPECT_EQ(engine_.metrics().retries_total, 0u);
  EXPECT_EQ(engine_.metrics().checksums_verified_total, 2u);
}

TEST_F(ConnectionTest, SaysWhoIsAsking) {
  options_.user_agent_suffix = "trainer/7";
  ASSERT_TRUE(read(*open(), listed(object_)).has_value());
  EXPECT_THAT(server_.log("media").at(0).headers.at("user-agent"),
              AllOf(HasSubstr("headrace/"), HasSubstr(" trainer/7")));
}

// ── Time-outs ────────────────────────────────────────────────────────────────────────────────

TEST_F(ConnectionTest, AHostThatDoesNotTakeConnectionsIsTimedOutInEveryAttempt) {
  const Port silent(Port::Does::kIsSilent);
  options_.endpoint = cat("http://", silent.authority());
  options_.timeout.connect = milliseconds(150);
  options_.retry.max_attempts = 2;
  const Result<std::string> got = read(*open(), named("a"));
  EXPECT_THAT(got, FailsWith(Code::kTimedOut, AllOf(HasSubstr("connecting took longer than 150 ms"),
                                                    HasSubstr("2 attempts"))));
  EXPECT_EQ(engine_.metrics().connections_opened_total, 0u);
  EXPECT_EQ(engine_.metrics().requests_total, 0u);
}

TEST_F(ConnectionTest, AHeadThatDoesNotComeIsTimedOut) {
  options_.timeout.first_byte = milliseconds(150);
  options_.retry.max_attempts = 1;
  server_.faults(R"([{"match":{"kind":"media"},"action":"stall_head"}])");
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kTimedOut, HasSubstr("no answer came within 150 ms")));
}

TEST_F(ConnectionTest, ABodyThatStallsIsTimedOut) {
  options_.timeout.stall = milliseconds(150);
  options_.retry.max_attempts = 1;
  server_.faults(R"([{"match":{"kind":"media"},"action":{"stall_after_bytes":1000}}])");
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kTimedOut, HasSubstr("the body stalled for 150 ms")));
}

TEST_F(ConnectionTest, AStalledBodyGoesOnByRangeOnAnotherConnection) {
  options_.timeout.stall = milliseconds(2000);
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"stall_after_bytes":30000}}])");
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  const std::vector<FaultServer::Entry> log = server_.log("media");
  ASSERT_THAT(log, SizeIs(2));
  EXPECT_EQ(log[1].headers.at("range"), "bytes=30000-49999");
  EXPECT_THAT(log[1].target, HasSubstr(cat("ifGenerationMatch=", object_.generation)));
  EXPECT_NE(log[0].connection, log[1].connection);
}

TEST_F(ConnectionTest, ALargeBodyThatStallsLeavesNothingUnread) {
  const std::string bytes = some_bytes(1'500'000);
  const ObjectInfo object = server_.put("large", bytes);
  options_.timeout.stall = milliseconds(2000);
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"stall_after_bytes":700001}}])");
  EXPECT_THAT(read(*open(), listed(object)), Gives(bytes));
  const std::vector<FaultServer::Entry> log = server_.log("media");
  ASSERT_THAT(log, SizeIs(2));
  EXPECT_EQ(log[1].headers.at("range"), "bytes=700001-1499999");
}

// Bodies that come in drops, and take longer than they may stall for.
class DrippingBodyTest : public ConnectionTest {
 protected:
  // Whether one request brings all of it. On a busy machine the server itself may be held up for as
  // long as a body may stall: then once more.
  bool comes_at_once(const ObjectInfo& object, const std::string& bytes) {
    options_.timeout.stall = milliseconds(2000);
    for (int round = 0; round < 5; ++round) {
      const uint64_t before = server_.stat("/by_kind/media");
      EXPECT_THAT(read(*open(), listed(object)), Gives(bytes));
      if (server_.stat("/by_kind/media") == before + 1) return true;
    }
    return false;
  }
};

TEST_F(DrippingBodyTest, OfALargeObjectDoesNotStall) {
  const std::string bytes = some_bytes(600'000);
  const ObjectInfo object = server_.put("large", bytes);
  // It never brings as much as is gathered otherwise.
  server_.faults(
      R"([{"match":{"kind":"media"},"action":{"drip":{"bytes":20000,"every_ms":100}}}])");
  EXPECT_TRUE(comes_at_once(object, bytes));
}

TEST_F(DrippingBodyTest, OfASmallObjectDoesNotStall) {
  const std::string bytes = some_bytes(100'000);
  const ObjectInfo object = server_.put("small", bytes);
  server_.faults(R"([{"match":{"kind":"media"},"action":{"drip":{"bytes":5000,"every_ms":120}}}])");
  EXPECT_TRUE(comes_at_once(object, bytes));
}

TEST_F(ConnectionTest, ABodyThatDripsAndStallsLeavesNothingUnread) {
  const std::string bytes = some_bytes(100'000);
  const ObjectInfo object = server_.put("small", bytes);
  options_.timeout.stall = milliseconds(2000);
  server_.faults(
      R"([{"match":{"kind":"media"},"count":1,
           "action":{"drip":{"bytes":9000,"every_ms":1},"stall_after_bytes":60001}}])");
  EXPECT_THAT(read(*open(), listed(object)), Gives(bytes));
  const std::vector<FaultServer::Entry> log = server_.log("media");
  ASSERT_THAT(log, SizeIs(2));
  EXPECT_EQ(log[1].headers.at("range"), "bytes=60001-99999");
}

TEST_F(ConnectionTest, TheDeadlineOfTheWholeRequestEndsIt) {
  options_.timeout.total = milliseconds(200);
  server_.faults(R"([{"match":{"kind":"media"},"action":"stall_head"}])");
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kTimedOut, HasSubstr("its deadline passed")));
}

TEST_F(ConnectionTest, ATlsHandshakeThatStallsIsTimedOut) {
  const Port silent(Port::Does::kConnects);
  options_.endpoint = cat("https://", silent.authority());
  options_.timeout.tls = milliseconds(150);
  options_.retry.max_attempts = 1;
  EXPECT_THAT(read(*open(), named("a")),
              FailsWith(Code::kTimedOut, HasSubstr("TLS handshake took longer than 150 ms")));
}

TEST_F(ConnectionTest, ASilentHostDoesNotHoldUpAnother) {
  const Port silent(Port::Does::kConnects);
  StoreOptions options = options_;
  options.endpoint = cat("http://", silent.authority());
  const std::shared_ptr<ObjectStore> stuck = open(options);
  const std::vector<ReadTarget> targets(100, named("a"));
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  stuck->read(batch);
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_FALSE(batch->done());
  batch->cancel();
  wait_for(*batch);
  EXPECT_THAT(outcome(*batch, 99), FailsWith(Code::kCancelled, HasSubstr("cancelled")));
}

// ── Proxies ──────────────────────────────────────────────────────────────────────────────────

TEST_F(ConnectionTest, AProxyIsAskedInAbsoluteForm) {
  options_.endpoint = "http://storage.test:8080/base";
  options_.proxy.http_proxy = cat("http://us%20er:pass@127.0.0.1:", server_.port());
  EXPECT_THAT(read(*open(), named("a")), FailsWith(Code::kNotFound, HasSubstr("bucket/a")));
  const FaultServer::Entry entry = server_.log().at(0);
  EXPECT_TRUE(entry.absolute_form);
  EXPECT_EQ(entry.headers.at("host"), "storage.test:8080");
  EXPECT_EQ(entry.headers.at("proxy-authorization"), "Basic dXMgZXI6cGFzcw==");
}

TEST_F(ConnectionTest, AProxyInAbsoluteFormBringsObjects) {
  options_.endpoint = "http://storage.test";
  options_.proxy.http_proxy = server_.url();
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
}

TEST_F(ConnectionTest, HostsInNoProxyAreReachedWithoutIt) {
  const Port nobody(Port::Does::kRefuses);
  options_.proxy.http_proxy = cat("http://", nobody.authority());
  options_.retry.max_attempts = 1;
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kUnavailable, HasSubstr(nobody.authority())));
  options_.proxy.no_proxy = "other.test,127.0.0.1";
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
}

TEST_F(ConnectionTest, AProxyThatRefusesATunnelIsNotAskedAgain) {
  options_.endpoint = "https://storage.test";
  options_.proxy.https_proxy = server_.url();
  server_.faults(R"([{"match":{"kind":"connect"},"action":{"status":407}}])");
  EXPECT_THAT(
      read(*open(), named("a")),
      FailsWith(Code::kPermissionDenied, AllOf(HasSubstr("refused a tunnel to storage.test:443"),
                                               HasSubstr("HTTP 407"), HasSubstr("1 attempt"))));
  EXPECT_EQ(server_.stat("/by_kind/connect"), 1u);
}

TEST_F(ConnectionTest, AProxyInTroubleIsAskedAgain) {
  options_.endpoint = "https://storage.test";
  options_.proxy.https_proxy = server_.url();
  options_.retry.max_attempts = 3;
  server_.faults(R"([{"match":{"kind":"connect"},"action":{"status":503}}])");
  EXPECT_THAT(read(*open(), named("a")), FailsWith(Code::kUnavailable, HasSubstr("tunnel")));
  EXPECT_EQ(server_.stat("/by_kind/connect"), 3u);
}

TEST_F(ConnectionTest, AnHttpsProxyIsRefusedBeforehand) {
  options_.endpoint = "https://storage.test";
  options_.proxy.https_proxy = "https://proxy.test:1";
  Result<std::shared_ptr<ObjectStore>> store =
      engine_.open({.scheme = Scheme::kGs, .bucket = "bucket"}, options_);
  EXPECT_THAT(store, FailsWith(Code::kInvalidArgument, HasSubstr("only http:// proxies")));
}

}  // namespace
}  // namespace headrace
