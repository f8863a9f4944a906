#include "headrace/store/transfer/credentials.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <semaphore>

#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

const auto kNothing = [] {};

// ── Alone ────────────────────────────────────────────────────────────────────────────────────

class QueuedCredentials : public ::testing::Test {
 protected:
  // True when the maker has been asked since the last call.
  bool asked() { return queue_->next(steady_clock::now(), MayBlock::on_this_thread()) != nullptr; }
  Credentials::Current current(steady_clock::time_point now) {
    return credentials_->current(now, [this] { ++called_; });
  }
  void provide(const char* text, steady_clock::duration life) {
    credentials_->provide({.authorization = text, .expires_at = start_ + life});
  }

  const std::shared_ptr<CredentialsQueue> queue_ = std::make_shared<CredentialsQueue>();
  const std::shared_ptr<Credentials> credentials_ = Credentials::from_queue(queue_, 1);
  const steady_clock::time_point start_ = steady_clock::now();
  int called_ = 0;
};

TEST_F(QueuedCredentials, AskOnceForAllWhoWait) {
  for (int i = 0; i < 3; ++i) {
    const Credentials::Current got = current(start_);
    EXPECT_EQ(got.credential, nullptr);
    EXPECT_FALSE(got.error);
  }
  EXPECT_TRUE(asked());
  EXPECT_FALSE(asked());
  EXPECT_EQ(called_, 0);
  provide("Bearer 1", hours(1));
  EXPECT_EQ(called_, 3);
  EXPECT_EQ(current(start_).credential->authorization, "Bearer 1");
}

TEST_F(QueuedCredentials, AreRenewedEarlyWhileTheOldTokenStillServes) {
  provide("Bearer 1", hours(1));
  EXPECT_NE(current(start_ + minutes(54)).credential, nullptr);
  EXPECT_FALSE(asked());
  EXPECT_EQ(current(start_ + minutes(56)).credential->authorization, "Bearer 1");
  EXPECT_TRUE(asked());
  EXPECT_EQ(current(start_ + minutes(57)).credential->authorization, "Bearer 1");
  EXPECT_FALSE(asked()) << "the first wish is not answered yet";
  provide("Bearer 2", hours(2));
  EXPECT_EQ(current(start_ + minutes(57)).credential->authorization, "Bearer 2");
  EXPECT_FALSE(asked());
}

TEST_F(QueuedCredentials, OfAShortLifeAreRenewedAfterThreeQuartersOfIt) {
  provide("Bearer 1", minutes(4));
  EXPECT_NE(current(start_ + seconds(170)).credential, nullptr);
  EXPECT_FALSE(asked());
  EXPECT_NE(current(start_ + seconds(190)).credential, nullptr);
  EXPECT_TRUE(asked());
}

TEST_F(QueuedCredentials, ThatHaveExpiredAreNotUsed) {
  provide("Bearer 1", minutes(10));
  EXPECT_EQ(current(start_ + minutes(10)).credential, nullptr);
  EXPECT_TRUE(asked());
}

TEST_F(QueuedCredentials, KeepTheOldTokenWhenRenewingFails) {
  provide("Bearer 1", hours(1));
  current(start_ + minutes(56));
  EXPECT_TRUE(asked());
  credentials_->fail(Error(Code::kUnavailable, "no network"));
  const Credentials::Current got = current(start_ + minutes(57));
  EXPECT_EQ(got.credential->authorization, "Bearer 1");
  EXPECT_FALSE(got.error);
  EXPECT_TRUE(asked()) << "it is tried again";
}

TEST_F(QueuedCredentials, AFailureReachesAllWhoWait) {
  for (int i = 0; i < 5; ++i) EXPECT_EQ(current(start_).credential, nullptr);
  credentials_->fail(Error(Code::kPermissionDenied, "no key"));
  EXPECT_EQ(called_, 5);
  const Credentials::Current got = current(start_);
  ASSERT_TRUE(got.error);
  EXPECT_EQ(got.error->message(), "no key");
  // Whoever comes later has it tried again.
  asked();
  EXPECT_FALSE(current(steady_clock::now() + seconds(2)).error);
  EXPECT_TRUE(asked());
}

TEST_F(QueuedCredentials, ARejectedTokenIsReplacedOncePerVersion) {
  provide("Bearer 1", hours(1));
  const uint64_t version = current(start_).version;
  credentials_->reject(version);
  credentials_->reject(version);
  EXPECT_NE(credentials_->version(), version);
  EXPECT_EQ(current(start_).credential, nullptr);
  EXPECT_TRUE(asked());
  provide("Bearer 2", hours(1));
  credentials_->reject(version);  // a late answer to a request with the old token
  EXPECT_EQ(current(start_).credential->authorization, "Bearer 2");
}

TEST(CredentialsQueue, StopEndsTheWait) {
  CredentialsQueue queue;
  queue.stop();
  EXPECT_EQ(queue.next(steady_clock::now() + hours(1), MayBlock::on_this_thread()), nullptr);
}

TEST(Credentials, FromATokenAreForGood) {
  const std::shared_ptr<Credentials> credentials =
      Credentials::fixed({.authorization = "Bearer x"});
  const Credentials::Current got =
      credentials->current(steady_clock::now() + hours(9999), kNothing);
  EXPECT_EQ(got.credential->authorization, "Bearer x");
  credentials->reject(got.version);
  EXPECT_NE(credentials->current(steady_clock::now(), kNothing).credential, nullptr);
}

// ── With a store ─────────────────────────────────────────────────────────────────────────────

class AuthorizedTest : public StoreTest {
 protected:
  void use(std::function<Result<Credential>(int)> fetch) {
    options_.credentials = Credentials::from_callback(
        [calls = calls_, fetch = std::move(fetch)]() -> Result<Credential> {
          return fetch(++*calls);
        });
  }
  static Credential token(std::string_view text) {
    return {.authorization = cat("Bearer ", text), .expires_at = steady_clock::now() + hours(1)};
  }

  const std::shared_ptr<std::atomic<int>> calls_ = std::make_shared<std::atomic<int>>(0);
  const ObjectInfo object_ = server_.put("a", "abc");
};

TEST_F(AuthorizedTest, OneTokenServesAllRequests) {
  server_.post("auth", R"({"tokens":["T1"]})");
  use([](int) { return token("T1"); });
  const std::vector<ReadTarget> targets(50, listed(object_));
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  open()->read(batch);
  wait_for(*batch);
  for (size_t i = 0; i < batch->size(); ++i) EXPECT_THAT(outcome(*batch, i), Gives("abc"));
  EXPECT_EQ(*calls_, 1);
  EXPECT_EQ(server_.stat("/by_status/401"), 0u);
}

TEST_F(AuthorizedTest, ARefusedTokenIsReplacedOnce) {
  server_.post("auth", R"({"tokens":["T2"]})");
  use([](int call) { return token(cat("T", call)); });
  const std::shared_ptr<ObjectStore> store = open();
  EXPECT_THAT(read(*store, listed(object_)), Gives("abc"));
  EXPECT_THAT(read(*store, listed(object_)), Gives("abc"));
  EXPECT_EQ(*calls_, 2);
  EXPECT_EQ(server_.stat("/by_status/401"), 1u);
  EXPECT_EQ(server_.stat("/by_kind/media"), 3u);
}

TEST_F(AuthorizedTest, TwoRefusedTokensAreAnError) {
  server_.post("auth", R"({"tokens":["another"]})");
  use([](int call) { return token(cat("T", call)); });
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kPermissionDenied,
                        AllOf(HasSubstr("not authenticated"), HasSubstr("HTTP 401"))));
  EXPECT_EQ(*calls_, 2);
  EXPECT_EQ(server_.stat("/by_kind/media"), 2u);
}

TEST_F(AuthorizedTest, AnAnonymousRequestThatIsRefusedIsAskedOnce) {
  server_.post("auth", R"({"tokens":["T"]})");
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kPermissionDenied, HasSubstr("not authenticated")));
  EXPECT_EQ(server_.stat("/by_kind/media"), 1u);
}

TEST_F(AuthorizedTest, AMakerThatBlocksHoldsUpNobodyElse) {
  StoreOptions anonymous = options_;
  // Shared: the maker's thread may come to it after the test has ended.
  const auto let_go = std::make_shared<std::binary_semaphore>(0);
  use([let_go](int) -> Result<Credential> {
    let_go->acquire();
    return token("T1");
  });
  options_.timeout.total = milliseconds(300);
  const std::vector<ReadTarget> targets(20, listed(object_));
  const std::shared_ptr<ReadBatch> parked = batch_of(targets);
  open()->read(parked);
  EXPECT_THAT(read(*open(anonymous), listed(object_)), Gives("abc"));
  wait_for(*parked);
  for (size_t i = 0; i < parked->size(); ++i) {
    EXPECT_THAT(outcome(*parked, i),
                FailsWith(Code::kTimedOut, HasSubstr("while waiting for credentials")));
  }
  EXPECT_EQ(server_.stat("/by_kind/media"), 1u);
  let_go->release();
}

TEST_F(AuthorizedTest, AMakerThatBlocksDoesNotHoldUpCancelling) {
  // Shared: the maker's thread may come to it after the test has ended.
  const auto let_go = std::make_shared<std::binary_semaphore>(0);
  use([let_go](int) -> Result<Credential> {
    let_go->acquire();
    return token("T1");
  });
  const ReadTarget target = listed(object_);
  const std::shared_ptr<ReadBatch> parked = batch_of(std::span(&target, 1));
  open()->read(parked);
  parked->cancel();
  wait_for(*parked);
  EXPECT_THAT(outcome(*parked, 0), FailsWith(Code::kCancelled, HasSubstr("cancelled")));
  let_go->release();
}

TEST_F(AuthorizedTest, AFailureOfTheMakerReachesAllWhoWait) {
  // Shared: the maker's thread may come to it after the test has ended.
  const auto let_go = std::make_shared<std::binary_semaphore>(0);
  use([let_go](int call) -> Result<Credential> {
    if (call == 1) let_go->acquire();
    return fail(Code::kPermissionDenied, "the key file is not readable");
  });
  const std::vector<ReadTarget> targets(30, listed(object_));
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  open()->read(batch);
  let_go->release();
  wait_for(*batch);
  for (size_t i = 0; i < batch->size(); ++i) {
    EXPECT_THAT(outcome(*batch, i),
                FailsWith(Code::kPermissionDenied, AllOf(HasSubstr("the key file is not readable"),
                                                         HasSubstr("gs://bucket/a"))));
  }
  EXPECT_EQ(server_.stat("/by_kind/media"), 0u);
}

TEST_F(AuthorizedTest, WritesAndListsAreAuthorizedToo) {
  server_.post("auth", R"({"tokens":["T1"]})");
  use([](int) { return token("T1"); });
  const std::shared_ptr<ObjectStore> store = open();
  EXPECT_EQ(take(store->list({}))->size(), 1u);
  EXPECT_TRUE(
      take(store->write(
               {.name = "b", .content_type = "", .content_encoding = "", .precondition = {}},
               bytes_of("xyz")))
          .has_value());
  EXPECT_EQ(server_.object("b"), "xyz");
}

TEST(CredentialsAfterFork, AChildLetsGoOfThemWithoutTheirThread) {
  std::shared_ptr<Credentials> credentials = Credentials::from_callback(
      []() -> Result<Credential> { return Credential{.authorization = "a"}; });
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // a child that waits for a thread that it does not have
    credentials.reset();
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace headrace
