// What an answer costs one connection, and how it may come, without TLS and with it.
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/http/activity_test_support.h"
#include "headrace/http/certificates_test_support.h"
#include "headrace/http/connection.h"
#include "headrace/http/loopback_test_support.h"
#include "headrace/http/manual_clock_test_support.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

// A server whose every byte the test sends, with TLS or without.
class PlayedServer {
 public:
  explicit PlayedServer(bool tls) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    port_ = ntohs(bind_to_loopback(listener_).sin_port);
    EXPECT_EQ(::listen(listener_, 1), 0);
    ::fcntl(listener_, F_SETFL, O_NONBLOCK);
    if (!tls) return;
    const ServerOptions files = certificates().server("here");
    SSL_CTX_use_certificate_chain_file(context_.get(), files.certificate_file.c_str());
    SSL_CTX_use_PrivateKey_file(context_.get(), files.key_file.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_set_num_tickets(context_.get(), 0);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_accept_state(ssl_.get());
  }
  ~PlayedServer() {
    ::close(listener_);
    if (socket_ >= 0) ::close(socket_);
  }
  PlayedServer(const PlayedServer&) = delete;
  PlayedServer& operator=(const PlayedServer&) = delete;

  uint16_t port() const { return port_; }
  // Whether a request has come; takes it.
  bool has_request() {
    if (socket_ < 0) socket_ = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket_ < 0) return false;
    std::array<char, 4096> bytes{};
    for (ssize_t count = 0;
         (count = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0;) {
      if (ssl_) BIO_write(SSL_get_rbio(ssl_.get()), bytes.data(), static_cast<int>(count));
      if (!ssl_) request_.append(bytes.data(), static_cast<size_t>(count));
    }
    if (ssl_ && SSL_do_handshake(ssl_.get()) == 1) {
      const int count = SSL_read(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
      if (count > 0) request_.append(bytes.data(), static_cast<size_t>(count));
    }
    if (ssl_) put(pending());
    if (!request_.ends_with("\r\n\r\n")) return false;
    request_.clear();
    return true;
  }
  // In one record each, as far as they fit, and all at once.
  void send(const std::vector<std::string>& pieces) { put(sealed(pieces)); }
  // What would be sent.
  std::string sealed(const std::vector<std::string>& pieces) {
    std::string plain;
    for (const std::string& each : pieces) {
      if (ssl_) {
        EXPECT_EQ(SSL_write(ssl_.get(), each.data(), static_cast<int>(each.size())),
                  static_cast<int>(each.size()));
      }
      plain += each;
    }
    return ssl_ ? pending() : plain;
  }
  void put(std::string_view wire) {
    EXPECT_EQ(::send(socket_, wire.data(), wire.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(wire.size()));
  }
  // What ends TLS, but not the connection.
  std::string sealed_end() {
    SSL_shutdown(ssl_.get());
    return pending();
  }
  void change_keys() { EXPECT_EQ(SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_REQUESTED), 1); }
  void end() { ::shutdown(socket_, SHUT_WR); }

 private:
  std::string pending() {
    std::string bytes(BIO_ctrl_pending(SSL_get_wbio(ssl_.get())), ' ');
    BIO_read(SSL_get_wbio(ssl_.get()), bytes.data(), static_cast<int>(bytes.size()));
    return bytes;
  }

  const int listener_;
  int socket_ = -1;
  uint16_t port_ = 0;
  std::string request_;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{SSL_CTX_new(TLS_server_method()),
                                                                   &SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, &SSL_free};
};

// One connection, on a thread that is the test's own: what it does is counted in turns, handlers
// of the io_context. The clock stands still, so that no sweep helps.
class PlayedAnswer : public ::testing::TestWithParam<bool>, public ResponseSink {
 protected:
  PlayedAnswer() {
    Route route;
    route.endpoint =
        parse_endpoint(cat(GetParam() ? "https" : "http", "://127.0.0.1:", server_.port()), false)
            .value();
    if (GetParam()) {
      route.tls = TlsContext::create({.ca_file = certificates().path("ca.pem")}).value();
    }
    connection_ = std::make_unique<Connection>(*thread_, std::make_shared<Route>(std::move(route)));
  }
  ~PlayedAnswer() override {
    connection_->abort(Error(Code::kCancelled, "the test is over"));
    turns();
    connection_.reset();
    turns();
  }

  // The request is with the server.
  void ask() {
    done_.reset();
    got_.clear();
    asio::co_spawn(thread_->context(), exchange(), asio::detached);
    while (!server_.has_request()) turns();
    turns();
  }
  static std::string head(size_t body_bytes) {
    return cat("HTTP/1.1 200 OK\r\nContent-Length: ", body_bytes, "\r\n\r\n");
  }
  // Until there is nothing to do.
  int turns() {
    int count = 0;
    thread_->context().restart();
    while (thread_->context().poll_one() > 0) ++count;
    return count;
  }

  Result<void> on_head(const ResponseHead&) override { return {}; }
  Result<std::span<std::byte>> space(uint64_t) override { return into_; }
  Result<void> on_bytes(size_t count) override {
    got_.append(reinterpret_cast<const char*>(into_.data()), count);
    if (when_taken_) when_taken_();
    return {};
  }

  PlayedServer server_{GetParam()};
  ManualClock clock_;
  const std::shared_ptr<IoThread> thread_ = IoThread::without_thread(0, clock_);
  Resolver resolver_;
  std::unique_ptr<Connection> connection_;
  std::vector<std::byte> into_ = std::vector<std::byte>(256 * kKiB);
  std::string got_;
  std::function<void()> when_taken_;
  std::optional<Result<void>> done_;

 private:
  awaitable<void> exchange() {
    TestActivity activity(*thread_);
    HttpRequest request;
    request.target = "/o";
    Result<void> result;
    if (!connection_->reusable()) result = co_await connection_->open(activity, resolver_);
    if (result) result = co_await connection_->exchange(request, *this);
    done_ = std::move(result);
  }
};
INSTANTIATE_TEST_SUITE_P(WithoutAndWithTls, PlayedAnswer, ::testing::Bool());

TEST_P(PlayedAnswer, WhichHasComeAsAWholeTakesOneTurn) {
  const std::string body = some_bytes(40'000);
  for (int i = 0; i < 3; ++i) {
    ask();
    server_.send({head(body.size()), body});
    EXPECT_EQ(turns(), 1);
    ASSERT_TRUE(done_ && *done_);
    EXPECT_EQ(got_, body);
  }
}

TEST_P(PlayedAnswer, WhoseBodyComesInTwoPartsTakesOneTurnForEach) {
  const std::string body = some_bytes(100'000);
  for (const size_t first_bytes : {5'000u, 20'000u, 60'000u}) {
    ask();
    server_.send({head(body.size()), body.substr(0, first_bytes)});
    EXPECT_EQ(turns(), 1) << first_bytes;
    EXPECT_FALSE(done_);
    server_.send({body.substr(first_bytes)});
    EXPECT_EQ(turns(), 1) << first_bytes;
    ASSERT_TRUE(done_ && *done_);
    EXPECT_EQ(got_, body);
  }
}

TEST_P(PlayedAnswer, WhichNeverRunsOutLetsOthersHaveTheirTurn) {
  const std::string body = some_bytes(100'000);
  into_.resize(5'000);
  ask();
  server_.send({head(body.size()), body});
  EXPECT_GE(turns(), 10) << "of 20 receives at least, every other one passes the scheduler";
  ASSERT_TRUE(done_ && *done_);
  EXPECT_EQ(got_, body);
}

TEST_P(PlayedAnswer, WhoseEndLiesRightBehindPartOfItsBodyIsCutAtOnce) {
  ask();
  server_.send({head(100'000), some_bytes(10'000)});
  server_.end();
  turns();
  EXPECT_EQ(got_.size(), 10'000u);
  ASSERT_TRUE(done_.has_value()) << "it waits for what will never come";
  EXPECT_THAT(*done_, FailsWith(Code::kUnavailable, HasSubstr("")));
}

TEST_P(PlayedAnswer, WhoseTlsEndsBehindPartOfItsBodyIsCutAtOnce) {
  if (!GetParam()) GTEST_SKIP() << "there is no TLS to end";
  ask();
  const std::string begin = server_.sealed({head(100'000), some_bytes(10'000)});
  server_.put(begin + server_.sealed_end());
  turns();
  EXPECT_EQ(got_.size(), 10'000u);
  ASSERT_TRUE(done_.has_value()) << "it waits for what will never come";
  EXPECT_THAT(*done_, FailsWith(Code::kUnavailable, HasSubstr("")));
}

TEST_P(PlayedAnswer, OfWhichPartOfARecordComesWhileAnotherIsTakenIsNotWaitedForTooLong) {
  const std::string body = some_bytes(150'000), all = head(body.size()) + body;
  into_.resize(20'000);
  for (int at_call = 1; at_call < 5; ++at_call) {
    ask();
    std::vector<std::string> pieces;
    for (size_t at = 0; at < all.size(); at += 10'000) pieces.push_back(all.substr(at, 10'000));
    const std::string begin = server_.sealed({pieces.begin(), pieces.begin() + 6});
    const std::string rest = server_.sealed({pieces.begin() + 6, pieces.end()});
    int calls = 0;
    when_taken_ = [&] {
      if (++calls == at_call) server_.put(rest.substr(0, 6'000));
    };
    server_.put(begin);
    turns();
    when_taken_ = nullptr;
    server_.put(rest.substr(calls < at_call ? 0 : 6'000));
    turns();
    ASSERT_TRUE(done_ && *done_) << "it waits for a sweep after " << got_.size() << " bytes";
    EXPECT_EQ(got_, body);
  }
}

TEST_P(PlayedAnswer, TheConnectionCountsItsUseFromTheEndOfTheBody) {
  const std::string body = some_bytes(40'000);
  ask();
  server_.send({head(body.size()), body.substr(0, 10'000)});
  turns();
  clock_.advance(std::chrono::seconds(3));
  server_.send({body.substr(10'000)});
  turns();
  ASSERT_TRUE(done_ && *done_);
  EXPECT_EQ(connection_->last_used(), clock_.now());
}

// As after this process, or the whole machine, has stood still.
TEST_P(PlayedAnswer, OfWhichAPartIsGatheredInTheSocketHasNotStalled) {
  const std::string body = some_bytes(900'000);
  const auto sweep_after = [this](std::chrono::minutes pause) {
    clock_.advance(pause);
    connection_->check_stall(clock_.now());
    turns();
  };
  ask();
  server_.send({head(body.size()), body.substr(0, 10'000)});
  turns();
  sweep_after(std::chrono::minutes(0));
  server_.send({body.substr(10'000, 10'000)});
  turns();
  EXPECT_LT(got_.size(), 20'000u) << "the rest is gathered";
  sweep_after(std::chrono::minutes(10));
  EXPECT_FALSE(done_);
  EXPECT_EQ(got_, body.substr(0, 20'000));
  for (int sweep = 0; sweep < 3; ++sweep) sweep_after(std::chrono::minutes(10));
  ASSERT_TRUE(done_.has_value());
  EXPECT_THAT(*done_, FailsWith(Code::kTimedOut, HasSubstr("the body stalled")));
}

TEST_P(PlayedAnswer, OfOddRecordsAndNewKeysComesWhole) {
  if (!GetParam()) GTEST_SKIP() << "there are no records";
  const std::string body = some_bytes(150'000);
  for (int i = 0; i < 2; ++i) {  // the client's own keys change with its next request
    ask();
    const std::string all = head(body.size()) + body;
    size_t at = 0;
    for (const size_t bytes : {3u, 1u, 60u, 16'384u, 2u, 16'383u, 1u, 40'000u, 7u, 200'000u}) {
      const std::string piece = all.substr(at, bytes);
      at += piece.size();
      server_.change_keys();
      server_.send({piece});
      if (bytes != 16'384u) turns();  // or with what follows
    }
    ASSERT_TRUE(done_ && *done_);
    EXPECT_EQ(got_, body);
  }
}

}  // namespace
}  // namespace headrace
