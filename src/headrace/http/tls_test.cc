// TLS against a server with certificates of a CA that exists for this program only.
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "headrace/http/certificates_test_support.h"
#include "headrace/http/loopback_test_support.h"
#include "headrace/http/tls.h"
#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Whoever waits to fork waits for a read, too.
TEST(TlsStream, ReadsLittleAtATime) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_server_method()),
                                                                  &SSL_CTX_free);
  const ServerOptions files = certificates().server("here");
  ASSERT_EQ(SSL_CTX_use_certificate_chain_file(context.get(), files.certificate_file.c_str()), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey_file(context.get(), files.key_file.c_str(), SSL_FILETYPE_PEM),
            1);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE);
  const std::unique_ptr<SSL, decltype(&SSL_free)> server(SSL_new(context.get()), &SSL_free);
  SSL_set_fd(server.get(), ends[0]);
  const std::unique_ptr<TlsStream> client =
      TlsStream::create(TlsContext::create({.ca_file = certificates().path("ca.pem")}).value(),
                        ends[1], "localhost")
          .value();
  bool accepted = false, connected = false;
  while (!accepted || !connected) {
    if (!connected) connected = client->handshake().value().need == TlsStream::Need::kNothing;
    if (!accepted) accepted = SSL_accept(server.get()) == 1;
  }
  const std::string record = some_bytes(16 * kKiB);
  uint64_t sent_bytes = 0;
  size_t count = 0;
  while (SSL_write_ex(server.get(), record.data(), record.size(), &count) == 1) sent_bytes += count;
  ASSERT_GT(sent_bytes, 2 * TlsStream::kMostReadBytes) << "all of it has arrived";
  std::vector<std::byte> into(2 * sent_bytes);
  uint64_t received_bytes = 0;
  while (received_bytes < sent_bytes) {
    const Result<TlsStream::Step> step = client->read(std::span(into).subspan(received_bytes));
    ASSERT_TRUE(step.has_value() && step->count > 0);
    EXPECT_LE(step->count, TlsStream::kMostReadBytes);
    received_bytes += step->count;
  }
  for (const int end : ends) ::close(end);
}

std::array<int, 2> unix_pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return ends;
}

// A server whose bytes pass through the test's hands, and a client that has them from a socket.
class PacedTls {
 public:
  explicit PacedTls(uint16_t version, std::array<int, 2> ends = unix_pair()) : ends_(ends) {
    const ServerOptions files = certificates().server("here");
    SSL_CTX_use_certificate_chain_file(context_.get(), files.certificate_file.c_str());
    SSL_CTX_use_PrivateKey_file(context_.get(), files.key_file.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_set_max_proto_version(context_.get(), version);
    SSL_CTX_set_num_tickets(context_.get(), 0);  // a server of AWS-LC's has them before its records
    server_.reset(SSL_new(context_.get()));
    SSL_set_bio(server_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_accept_state(server_.get());
    client_ =
        TlsStream::create(TlsContext::create({.ca_file = certificates().path("ca.pem")}).value(),
                          ends_[1], "localhost")
            .value();
    bool accepted = false, connected = false;
    for (int turn = 0; turn < 1'000'000 && !(accepted && connected); ++turn) {
      if (!connected) connected = client_->handshake().value().need == TlsStream::Need::kNothing;
      take();
      if (!accepted) accepted = SSL_do_handshake(server_.get()) == 1;
      send(sealed());
    }
    EXPECT_TRUE(accepted && connected);
    EXPECT_EQ(read().count, 0u) << "session tickets at most";
  }
  ~PacedTls() {
    client_.reset();
    for (const int end : ends_) ::close(end);
  }

  SSL* server() { return server_.get(); }
  TlsStream& client() { return *client_; }
  // A record each, as they lie on the wire.
  std::string seal(const std::vector<std::string>& records) {
    for (const std::string& plain : records) {
      EXPECT_EQ(SSL_write(server_.get(), plain.data(), static_cast<int>(plain.size())),
                static_cast<int>(plain.size()));
    }
    return sealed();
  }
  void send(std::string_view bytes) {
    if (bytes.empty()) return;
    EXPECT_EQ(::send(ends_[0], bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  void end() { ::shutdown(ends_[0], SHUT_WR); }
  // What the client has sent goes to the server.
  void take() {
    std::array<char, 4096> bytes{};
    for (ssize_t count = 0; (count = ::recv(ends_[0], bytes.data(), bytes.size(), 0)) > 0;) {
      BIO_write(SSL_get_rbio(server_.get()), bytes.data(), static_cast<int>(count));
    }
  }
  TlsStream::Step read(size_t most_bytes = 64 * kKiB) {
    std::vector<std::byte> into(most_bytes);
    const TlsStream::Step step = client_->read(into).value();
    got.append(reinterpret_cast<const char*>(into.data()), step.count);
    return step;
  }

  std::string got;

 private:
  std::string sealed() {
    std::string bytes(BIO_ctrl_pending(SSL_get_wbio(server_.get())), ' ');
    if (bytes.empty()) return bytes;
    BIO_read(SSL_get_wbio(server_.get()), bytes.data(), static_cast<int>(bytes.size()));
    return bytes;
  }

  const std::array<int, 2> ends_;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{SSL_CTX_new(TLS_server_method()),
                                                                   &SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> server_{nullptr, &SSL_free};
  std::unique_ptr<TlsStream> client_;
};

class TlsVersions : public ::testing::TestWithParam<uint16_t> {};
INSTANTIATE_TEST_SUITE_P(All, TlsVersions,
                         ::testing::Values<uint16_t>(TLS1_2_VERSION, TLS1_3_VERSION));

TEST_P(TlsVersions, RecordsThatAreSplitAtAnyByteComeWholeAndNeverFewerThanAreExpected) {
  PacedTls tls(GetParam());
  const std::vector<std::string> records = {some_bytes(1), some_bytes(90), some_bytes(40)};
  const std::string all = records[0] + records[1] + records[2];
  size_t wire_bytes = 2;
  for (size_t split = 1; split < wire_bytes; ++split) {
    const std::string wire = tls.seal(records);
    wire_bytes = wire.size();
    tls.got.clear();
    tls.send(wire.substr(0, split));
    if (tls.read().count > 0) EXPECT_EQ(tls.read().need, TlsStream::Need::kReadable);
    ASSERT_TRUE(all.starts_with(tls.got)) << split;
    // Whoever waits for more than is to come waits for ever.
    const uint64_t missing_bytes = tls.client().missing_bytes(all.size() - tls.got.size());
    EXPECT_LE(missing_bytes, wire.size() - split) << split;
    EXPECT_GE(missing_bytes, 1u) << split;
    tls.send(wire.substr(split));
    tls.read();
    ASSERT_EQ(tls.got, all) << split;
  }
  EXPECT_GT(wire_bytes, all.size());
}

TEST_P(TlsVersions, OfALongBodyItIsKnownHowMuchIsMissing) {
  const std::string body = some_bytes(100'000);  // in records of 16 KiB
  for (const size_t came : {3u, 5u, 1'000u, 16'384u, 16'500u, 60'000u, 99'000u}) {
    PacedTls tls(GetParam());
    const std::string sent = tls.seal({body});
    tls.send(sent.substr(0, came));
    while (tls.read().count == TlsStream::kMostReadBytes) {
    }
    const uint64_t missing_bytes = tls.client().missing_bytes(body.size() - tls.got.size());
    EXPECT_LE(missing_bytes, sent.size() - came) << came;
    EXPECT_GE(missing_bytes + 512, sent.size() - came) << came;
  }
}

TEST_P(TlsVersions, ABodyOfWhichARecordIsReadInPiecesIsNotDrained) {
  PacedTls tls(GetParam());
  tls.send(tls.seal({some_bytes(1000)}));
  EXPECT_EQ(tls.read(999).count, 999u);
  EXPECT_FALSE(tls.client().drained()) << "OpenSSL has a byte";
  EXPECT_EQ(tls.read(1).count, 1u);
  EXPECT_TRUE(tls.client().drained());
}

// No event would tell of it: that of the bytes has been seen.
TEST_P(TlsVersions, AnEndBehindTheBytesIsFoundWithoutAnotherEvent) {
  for (const size_t left_out : {1u, 20u, 0u}) {
    PacedTls tls(GetParam());
    const std::string wire = tls.seal({some_bytes(1000)});
    tls.send(wire.substr(0, wire.size() - left_out));
    tls.end();
    TlsStream::Step step = tls.read();
    if (left_out == 0) {
      EXPECT_EQ(step.count, 1000u);
      step = tls.read();
    }
    EXPECT_EQ(step.count, 0u);
    EXPECT_TRUE(step.end && step.truncated) << left_out;
  }
}

TEST_P(TlsVersions, ARecordThatWasChangedIsAnErrorAlsoRightBehindOneThatWasNot) {
  for (const size_t whole_records : {0u, 1u}) {
    PacedTls tls(GetParam());
    std::string wire = tls.seal(std::vector<std::string>(whole_records, "whole"));
    wire += tls.seal({"changed"});
    wire.back() ^= 1;
    tls.send(wire);
    if (whole_records > 0) EXPECT_EQ(tls.read().count, 5u);
    std::array<std::byte, 64> into{};
    for (int again = 0; again < 2; ++again) {
      const Result<TlsStream::Step> step = tls.client().read(into);
      EXPECT_FALSE(step.has_value()) << "not as if the connection had ended well";
    }
  }
}

TEST(TlsStream, GoesOnWithNewKeys) {
  PacedTls tls(TLS1_3_VERSION);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(SSL_key_update(tls.server(), SSL_KEY_UPDATE_REQUESTED), 1);
    const std::string wire = tls.seal({cat("after key ", i)});
    for (const char byte : wire) {
      tls.send({&byte, 1});
      tls.read();
    }
    // The client's own keys change with the next that it sends.
    const std::string request = cat("request ", i);
    ASSERT_EQ(tls.client().write(std::as_bytes(std::span(request)), false)->count, request.size());
    tls.take();
    std::array<char, 100> into{};
    const int count = SSL_read(tls.server(), into.data(), static_cast<int>(into.size()));
    ASSERT_GT(count, 0);
    EXPECT_EQ(std::string_view(into.data(), static_cast<size_t>(count)), request);
  }
  EXPECT_EQ(tls.got, "after key 0after key 1after key 2");
}

TEST(TlsStream, RecordsThatFollowEachOtherShareSegments) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = bind_to_loopback(listener);
  ASSERT_EQ(::listen(listener, 1), 0);
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  ASSERT_EQ(::connect(client, at, sizeof address), 0);
  const int server = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  ::close(listener);
  const int on = 1;
  ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(client, F_SETFL, O_NONBLOCK);
  PacedTls tls(TLS1_3_VERSION, {server, client});
  const auto segments = [client] {
    tcp_info info{};
    socklen_t info_size = sizeof info;
    EXPECT_EQ(::getsockopt(client, IPPROTO_TCP, TCP_INFO, &info, &info_size), 0);
    return info.tcpi_data_segs_out;
  };
  const uint32_t before = segments();
  constexpr uint32_t kRecords = 6;
  const std::string body = some_bytes(kRecords * 16 * kKiB);
  for (std::span<const std::byte> left = std::as_bytes(std::span(body)); !left.empty();) {
    const TlsStream::Step step = tls.client().write(left, /*more=*/false).value();
    ASSERT_GT(step.count, 0u);
    left = left.subspan(step.count);
  }
  EXPECT_LT(segments() - before, kRecords);
}

class TlsTest : public ::testing::Test {
 protected:
  std::shared_ptr<ObjectStore> open() { return open(server_); }
  std::shared_ptr<ObjectStore> open(const FaultServer& server) {
    if (options_.endpoint.empty()) options_.endpoint = server.url();
    options_.retry.initial_backoff = options_.retry.max_backoff = std::chrono::milliseconds(1);
    Result<std::shared_ptr<ObjectStore>> store =
        engine_.open({.scheme = Scheme::kGs, .bucket = std::string(kBucket)}, options_);
    EXPECT_TRUE(store.has_value()) << store.error().to_string();
    return *store;
  }

  FaultServer server_{certificates().server("here")};
  Engine engine_{{.io_threads = 2, .memory_budget_bytes = 256 * kMiB}};
  StoreOptions options_ = {.tls = {.ca_file = certificates().path("ca.pem")}};
  const std::string bytes_ = some_bytes(100'000);
  const ObjectInfo object_ = server_.put("a", bytes_);
};

TEST_F(TlsTest, ACertificateOfACaInTheFileIsAccepted) {
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  EXPECT_EQ(server_.stat("/tls_handshakes_full"), 1u);
}

TEST_F(TlsTest, ACertificateOfAnotherCaIsRefusedOnceAndTheRemedyNamed) {
  options_.tls.ca_file = certificates().path("stranger.pem");
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kPermissionDenied,
                        AllOf(HasSubstr("certificate was refused"), HasSubstr("SSL_CERT_FILE"),
                              HasSubstr("ca_file"), HasSubstr("1 attempt"))));
  EXPECT_EQ(server_.stat("/connections_opened"), 1u);
}

TEST_F(TlsTest, ACertificateForAnotherHostIsRefused) {
  FaultServer server(certificates().server("elsewhere"));
  EXPECT_THAT(read(*open(server), named("a")),
              FailsWith(Code::kPermissionDenied, HasSubstr("certificate was refused")));
  EXPECT_EQ(server.stat("/requests"), 0u);
}

TEST_F(TlsTest, ACaFileThatIsNotThereIsSaidAtOnce) {
  options_.endpoint = server_.url();
  options_.tls.ca_file = "/nonexistent/ca.pem";
  EXPECT_THAT(engine_.open({.scheme = Scheme::kGs, .bucket = "bucket"}, options_),
              FailsWith(Code::kInvalidArgument, HasSubstr("/nonexistent/ca.pem")));
}

// ── Certificates of clients ──────────────────────────────────────────────────────────────────

TEST(TlsContext, FilesThatCannotBeUsedAreNamedWithWhatIsWrong) {
  const auto in = [](std::string_view name) { return certificates().path(name); };
  struct Case {
    TlsOptions options;
    std::vector<std::string> said;
  };
  const std::vector<Case> cases = {
      {{.client_cert_file = "/nonexistent/c.pem"},
       {"client certificate /nonexistent/c.pem", "No such file"}},
      {{.client_cert_file = in("here.key")}, {in("here.key"), "no certificate in PEM form"}},
      {{.client_cert_file = in("here.pem")}, {in("here.pem"), "no private key in PEM form"}},
      {{.client_cert_file = in("here.pem"), .client_key_file = "/nonexistent/k.pem"},
       {"key of the client certificate /nonexistent/k.pem", "No such file"}},
      {{.client_cert_file = in("here.pem"), .client_key_file = in("elsewhere.key")},
       {in("elsewhere.key"), "not that of the client certificate", in("here.pem")}},
      {{.client_cert_file = in("here.pem"), .client_key_file = in("encrypted.key")},
       {in("encrypted.key"), "encrypted"}},
      {{.client_key_file = in("here.key")}, {in("here.key"), "no certificate"}}};
  for (const Case& each : cases) {
    const Result<std::shared_ptr<TlsContext>> made = TlsContext::create(each.options);
    ASSERT_FALSE(made.has_value()) << each.said.front();
    EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
    for (const std::string& text : each.said) EXPECT_THAT(made.error().message(), HasSubstr(text));
  }
}

// Two ends of one connection. The server wants a certificate of the CA.
class MutualTls {
 public:
  explicit MutualTls(const TlsOptions& options) {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends_.data()),
              0);
    const ServerOptions files = certificates().server("here");
    SSL_CTX_use_certificate_chain_file(context_.get(), files.certificate_file.c_str());
    SSL_CTX_use_PrivateKey_file(context_.get(), files.key_file.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_load_verify_locations(context_.get(), certificates().path("ca.pem").c_str(), nullptr);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    server_.reset(SSL_new(context_.get()));
    SSL_set_fd(server_.get(), ends_[0]);
    client_ = TlsStream::create(TlsContext::create(options).value(), ends_[1], "localhost").value();
  }
  ~MutualTls() {
    client_.reset();
    for (const int end : ends_) ::close(end);
  }
  // What the client's first read says: with TLS 1.3 its handshake is over before the server judges.
  Result<TlsStream::Step> shake_and_read() {
    std::byte byte;
    bool accepted = false, connected = false;
    for (int turn = 0; turn < 1000; ++turn) {
      if (!connected) {
        Result<TlsStream::Step> step = client_->handshake();
        if (!step) return step;
        connected = step->need == TlsStream::Need::kNothing;
      } else {
        Result<TlsStream::Step> step = client_->read({&byte, 1});
        if (!step || step->count > 0) return step;
      }
      if (!accepted && SSL_accept(server_.get()) == 1) {
        accepted = true;
        SSL_write(server_.get(), "x", 1);
      }
    }
    return fail(Code::kInternal, "nothing happened");
  }

 private:
  std::array<int, 2> ends_{};
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{SSL_CTX_new(TLS_server_method()),
                                                                   &SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> server_{nullptr, &SSL_free};
  std::unique_ptr<TlsStream> client_;
};

TEST(TlsStream, AServerThatWantsACertificateGetsIt) {
  const std::string both = certificates().path("both.pem");
  std::ofstream(both) << std::ifstream(certificates().path("elsewhere.key")).rdbuf()
                      << std::ifstream(certificates().path("elsewhere.pem")).rdbuf();
  const std::string ca_file = certificates().path("ca.pem");
  for (const TlsOptions& options :
       {TlsOptions{.ca_file = ca_file,
                   .client_cert_file = certificates().path("elsewhere.pem"),
                   .client_key_file = certificates().path("elsewhere.key")},
        TlsOptions{.ca_file = ca_file, .client_cert_file = both}}) {
    const Result<TlsStream::Step> read = MutualTls(options).shake_and_read();
    ASSERT_TRUE(read.has_value()) << read.error().to_string();
    EXPECT_EQ(read->count, 1u);
  }
}

TEST(TlsStream, ACertificateThatIsMissingOrNotAcceptedIsSaidAndNotTriedAgain) {
  TlsOptions options{.ca_file = certificates().path("ca.pem")};
  EXPECT_THAT(MutualTls(options).shake_and_read(),
              FailsWith(Code::kPermissionDenied, HasSubstr("none was sent: set client_cert_file")));
  options.client_cert_file = certificates().path("stranger.pem");
  options.client_key_file = certificates().path("stranger.key");
  EXPECT_THAT(MutualTls(options).shake_and_read(),
              FailsWith(Code::kPermissionDenied,
                        AllOf(HasSubstr("does not accept the certificate of this client"),
                              HasSubstr(options.client_cert_file))));
}

TEST_F(TlsTest, WithoutVerificationAnyCertificateIsTakenAndThatIsSaidOnce) {
  options_.tls = {.ca_file = "/nonexistent/ca.pem", .skip_verify = true};
  FaultServer elsewhere(certificates().server("elsewhere"));
  elsewhere.put("a", bytes_);
  EXPECT_THAT(read(*open(elsewhere), named("a")), Gives(bytes_));
  options_.endpoint = "";
  EXPECT_THAT(read(*open(), named("a")), Gives(bytes_));
  std::vector<LogRecord> said = engine_.log()->take();
  std::erase_if(said, [](const LogRecord& each) { return !each.text.contains("not verified"); });
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].level, LogLevel::kWarning);
  EXPECT_THAT(said[0].text, HasSubstr(elsewhere.url()));
}

TEST_F(TlsTest, StoresThatVerifyDifferentlyShareNoConnections) {
  options_.tls.skip_verify = true;
  EXPECT_THAT(read(*open(), named("a")), Gives(bytes_));
  options_.tls.skip_verify = false;
  EXPECT_THAT(read(*open(), named("a")), Gives(bytes_));
  options_.tls.client_cert_file = certificates().path("elsewhere.pem");
  options_.tls.client_key_file = certificates().path("elsewhere.key");
  EXPECT_THAT(read(*open(), named("a")), Gives(bytes_));
  EXPECT_EQ(server_.stat("/connections_opened"), 3u);
  EXPECT_EQ(server_.stat("/tls_handshakes_full"), 3u);
  options_.tls.ca_file = certificates().path("stranger.pem");
  EXPECT_THAT(read(*open(), named("a")), FailsWith(Code::kPermissionDenied, HasSubstr("refused")));
}

// ── Connections ──────────────────────────────────────────────────────────────────────────────

TEST_F(TlsTest, SessionsAreResumedOnReconnect) {
  options_.initial_in_flight = options_.max_in_flight = 1;
  server_.faults(R"([{"match":{"kind":"media"},"action":{"close_after":"announced"}}])");
  const std::shared_ptr<ObjectStore> store = open();
  for (int i = 0; i < 6; ++i) EXPECT_THAT(read(*store, listed(object_)), Gives(bytes_));
  EXPECT_EQ(server_.stat("/tls_handshakes_full"), 1u);
  EXPECT_EQ(server_.stat("/tls_handshakes_resumed"), 5u);
  EXPECT_EQ(engine_.metrics().tls_resumed_total, 5u);
}

TEST_F(TlsTest, ConnectionsAreReused) {
  options_.initial_in_flight = options_.max_in_flight = 4;
  const std::vector<ReadTarget> targets(100, listed(object_));
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  open()->read(batch);
  wait_for(*batch);
  for (size_t i = 0; i < batch->size(); ++i) EXPECT_THAT(outcome(*batch, i), Gives(bytes_));
  EXPECT_EQ(server_.stat("/connections_opened"), 4u);
}

TEST_F(TlsTest, BigBodiesComeWholeBothWays) {
  const std::string large = some_bytes(24 * kMiB + 1);
  const std::shared_ptr<ObjectStore> store = open();
  const Result<ObjectInfo> written = take(
      store->write({.name = "big", .content_type = "", .content_encoding = "", .precondition = {}},
                   bytes_of(large)));
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_THAT(read(*store, listed(*written)), Gives(std::string_view(large)));
}

TEST_F(TlsTest, BodiesOfEverySizeComeWhole) {
  // About where bodies begin to be gathered in the socket, and where the last bit of them is not.
  uint64_t count = 0;
  for (const size_t about : {256 * kKiB, 352 * kKiB, 1024 * kKiB, 1120 * kKiB, 2144 * kKiB}) {
    for (const size_t more : {0u, 1u, 16'384u, 100'000u}) {
      const std::string bytes = some_bytes(about - 1 + more);
      EXPECT_THAT(read(*open(), listed(server_.put("o", bytes))), Gives(bytes)) << bytes.size();
      ++count;
    }
  }
  EXPECT_EQ(server_.stat("/by_kind/media"), count) << "at the first attempt";
  EXPECT_EQ(engine_.metrics().checksums_verified_total, count);
}

TEST_F(TlsTest, AHeadOfSeveralRecordsIsUnderstood) {
  const std::string padding(40'000, 'p');
  server_.faults(cat(R"([{"match":{"kind":"media"},"count":1,"action":{"garbage_head":
      "HTTP/1.1 200 OK\r\nx-goog-generation: 1\r\nx-padding: )",
                     padding, R"(\r\nContent-Length: 6\r\n\r\nabcdef"}}])"));
  EXPECT_THAT(read(*open(), named("a")), Gives("abcdef"));
}

TEST_F(TlsTest, ABodyCutInTheMiddleGoesOnByRange) {
  // Without a close_notify, as a broken network cuts.
  server_.faults(R"([{"match":{"kind":"media"},"count":1,"action":{"cut_after_bytes":30000}}])");
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  const std::vector<FaultServer::Entry> log = server_.log("media");
  ASSERT_THAT(log, SizeIs(2));
  EXPECT_EQ(log[1].headers.at("range"), "bytes=30000-99999");
}

TEST_F(TlsTest, ABodyOfUnknownLengthCutInTheMiddleIsNotTakenForWhole) {
  server_.faults(R"([{"match":{"kind":"media"},"count":1,
                      "action":{"chunked":true,"ignore_range":true,"cut_after_bytes":30000}}])");
  EXPECT_THAT(read(*open(), named("a")), Gives(bytes_));
}

TEST_F(TlsTest, ABodyThatEndsWithTheConnectionMustEndTls) {
  // Neither length, nor chunks, nor a sum: whoever can cut a connection could cut the object.
  server_.faults(R"([{"match":{"kind":"media"},"action":{"no_close_notify":true,"garbage_head":
      "HTTP/1.0 200 OK\r\nx-goog-generation: 1\r\n\r\nabcdef"}}])");
  options_.retry.max_attempts = 2;
  const std::shared_ptr<ObjectStore> store = open();
  EXPECT_THAT(read(*store, named("a")),
              FailsWith(Code::kUnavailable, HasSubstr("without the end of TLS")));
  server_.faults(R"([{"match":{"kind":"media"},"action":{"garbage_head":
      "HTTP/1.0 200 OK\r\nx-goog-generation: 1\r\n\r\nabcdef"}}])");
  EXPECT_THAT(read(*store, named("a")), Gives("abcdef")) << "which ended well";
}

TEST_F(TlsTest, ALargeBodyOfWhichLittleWasAskedForDoesNotStall) {
  const std::string large = some_bytes(2 * kMiB + 77);
  const ObjectInfo object = server_.put("big", large);
  server_.faults(R"([{"match":{"kind":"media"},"action":"ignore_range"}])");
  options_.timeout.stall = options_.timeout.first_byte = std::chrono::seconds(2);
  ReadTarget target = listed(object);
  for (const uint64_t begin : {5u, 100'000u, 2'000'000u}) {
    target.range = ByteRange{begin, begin + 10};
    EXPECT_THAT(read(*open(), target), Gives(large.substr(begin, 10)));
  }
  EXPECT_EQ(engine_.metrics().retries_total, 0u);
}

TEST_F(TlsTest, ClosedByTheServerWhileIdleCostsNoRetry) {
  server_.faults(R"([{"match":{"kind":"media"},"action":{"close_after":true}}])");
  const std::shared_ptr<ObjectStore> store = open();
  for (int i = 0; i < 10; ++i) EXPECT_THAT(read(*store, listed(object_)), Gives(bytes_));
  EXPECT_EQ(engine_.metrics().retries_total, 0u);
}

TEST_F(TlsTest, BytesThatNobodyAskedForDoNotAnswerTheNextRequest) {
  // In one record with the body: they are in OpenSSL's hands, or in ours.
  for (const size_t size : {8u, 8192u}) {
    const std::string body(size, 'z');
    server_.faults(cat(R"([{"match":{"kind":"media"},"count":1,"action":{"garbage_head":
        "HTTP/1.1 200 OK\r\nx-goog-generation: 1\r\nContent-Length: )",
                       size, "\\r\\n\\r\\n", body,
                       R"(HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nFORGED"}}])"));
    const std::shared_ptr<ObjectStore> store = open();
    EXPECT_THAT(read(*store, named("a")), Gives(body));
    EXPECT_THAT(read(*store, named("a")), Gives(bytes_));
  }
}

TEST_F(TlsTest, AChildThatIsForkedAmidHandshakesCanDoItsOwn) {
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "ThreadSanitizer allows no threads in a forked child";
#endif
  server_.faults(R"([{"match":{"kind":"media"},"action":{"close_after":"announced"}}])");
  const std::vector<ReadTarget> targets(400, listed(object_));
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  const std::shared_ptr<ObjectStore> store = open();
  store->read(batch);
  int forks = 0;
  for (; forks < 20 || !batch->done(); ++forks) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::alarm(60);  // a lock of OpenSSL's that nobody will ever release
      Engine engine({.io_threads = 1, .memory_budget_bytes = 64 * kMiB});
      const Result<std::shared_ptr<ObjectStore>> own =
          engine.open({.scheme = Scheme::kGs, .bucket = std::string(kBucket)}, options_);
      const Result<std::string> got = read(**own, listed(object_));
      ::_exit(got && *got == bytes_ ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "fork " << forks;
  }
  wait_for(*batch);
  for (size_t i = 0; i < batch->size(); ++i) EXPECT_THAT(outcome(*batch, i), Gives(bytes_));
  EXPECT_GE(forks, 20);
}

TEST_F(TlsTest, GoesThroughATunnelOfAProxy) {
  FaultServer proxy;
  options_.proxy.https_proxy = cat("http://user:pass@127.0.0.1:", proxy.port());
  EXPECT_THAT(read(*open(), listed(object_)), Gives(bytes_));
  const std::vector<FaultServer::Entry> log = proxy.log("connect");
  ASSERT_THAT(log, SizeIs(1));
  EXPECT_EQ(log[0].target, cat("127.0.0.1:", server_.port()));
  EXPECT_EQ(log[0].headers.at("proxy-authorization"), "Basic dXNlcjpwYXNz");
  const FaultServer::Entry entry = server_.log("media").at(0);
  EXPECT_FALSE(entry.absolute_form);
  EXPECT_FALSE(entry.headers.contains("proxy-authorization"));
}

}  // namespace
}  // namespace headrace
