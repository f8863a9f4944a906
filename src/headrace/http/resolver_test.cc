// Names to addresses, with a name service of the test's own: getaddrinfo is defined here, and the
// linker takes this one.
#include "headrace/http/resolver.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <semaphore>
#include <system_error>
#include <thread>

#include "headrace/store/fault_server_test_support.h"

namespace {

std::atomic<int> look_up_count = 0;
// Look-ups of "slow.test" say that they have begun, and end when the test lets them.
std::counting_semaphore<64> slow_began(0), slow_may_go_on(0);

void let_slow_look_up_end() {
  slow_began.acquire();
  slow_may_go_on.release();
}

addrinfo* entry_of(const char* text, addrinfo* next) {
  auto* entry = static_cast<addrinfo*>(std::calloc(1, sizeof(addrinfo) + sizeof(sockaddr_in6)));
  entry->ai_addr = reinterpret_cast<sockaddr*>(entry + 1);
  entry->ai_next = next;
  auto* v4 = reinterpret_cast<sockaddr_in*>(entry->ai_addr);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(entry->ai_addr);
  if (::inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    entry->ai_family = v4->sin_family = AF_INET;
  } else {
    ::inet_pton(AF_INET6, text, &v6->sin6_addr);
    entry->ai_family = v6->sin6_family = AF_INET6;
  }
  return entry;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int getaddrinfo(const char* name, const char*,
                                                                  const addrinfo*,
                                                                  addrinfo** found) {
  ++look_up_count;
  const std::string_view host = name;
  *found = nullptr;
  if (host == "slow.test") {
    slow_began.release();
    slow_may_go_on.acquire();
  }
  if (host == "both.test") {
    *found = entry_of("::1", entry_of("127.0.0.1", nullptr));
  } else if (host == "many.test") {
    *found = entry_of("127.0.0.1", entry_of("127.0.0.2", entry_of("::1", nullptr)));
  } else if (host == "pair.test") {
    *found = entry_of("127.0.0.1", entry_of("127.0.0.2", nullptr));
  } else if (host == "one.test" || host == "slow.test") {
    *found = entry_of("127.0.0.1", nullptr);
  } else if (host == "again.test") {
    return EAI_AGAIN;
  } else if (host != "empty.test") {
    return EAI_NONAME;
  }
  return 0;
}

extern "C" __attribute__((visibility("default"))) void freeaddrinfo(addrinfo* entry) {
  while (entry != nullptr) {
    addrinfo* next = entry->ai_next;
    std::free(entry);
    entry = next;
  }
}

namespace headrace {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Answer = Result<std::optional<Resolver::Addresses>>;

// Asks, waits for the call, asks again.
Answer resolve(Resolver& resolver, const std::string& host) {
  const auto changed = std::make_shared<std::binary_semaphore>(0);
  Answer answer = resolver.resolve(host, [changed] { changed->release(); });
  if (answer && !answer->has_value()) {
    changed->acquire();
    answer = resolver.resolve(host, [] {});
  }
  return answer;
}

std::vector<std::string> texts(const Resolver::Addresses& addresses) {
  std::vector<std::string> out;
  for (const asio::ip::address& address : addresses) out.push_back(address.to_string());
  return out;
}

TEST(Resolver, LiteralsAreKnownAtOnce) {
  Resolver resolver;
  const int before = look_up_count;
  for (const std::string host : {"127.0.0.1", "::1", "10.2.3.4"}) {
    const Answer answer = resolver.resolve(host, [] { FAIL() << "called"; });
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(texts(**answer), std::vector<std::string>{host});
  }
  EXPECT_EQ(look_up_count, before);
}

TEST(Resolver, FamiliesAlternate) {
  Resolver resolver;
  EXPECT_EQ(texts(**resolve(resolver, "many.test")),
            (std::vector<std::string>{"::1", "127.0.0.1", "127.0.0.2"}));
}

// The addresses in the order in which a connection made at `now` tries them.
std::vector<std::string> order(Resolver& resolver, Resolver::Clock::time_point now) {
  return texts(*resolver.resolve("many.test", [] { FAIL() << "called"; }, now).value());
}

class RotationTest : public ::testing::Test {
 protected:
  using Order = std::vector<std::string>;
  static asio::ip::address address(const char* text) { return asio::ip::make_address(text); }

  Resolver resolver_;
  const Order first_ = texts(**resolve(resolver_, "many.test"));
  const Resolver::Clock::time_point now_ = Resolver::Clock::now();
};

TEST_F(RotationTest, ConnectionsBeginWithEachAddressInTurn) {
  EXPECT_EQ(first_, (Order{"::1", "127.0.0.1", "127.0.0.2"}));
  EXPECT_EQ(order(resolver_, now_), (Order{"127.0.0.1", "127.0.0.2", "::1"}));
  EXPECT_EQ(order(resolver_, now_), (Order{"127.0.0.2", "::1", "127.0.0.1"}));
  EXPECT_EQ(order(resolver_, now_), first_);
}

TEST_F(RotationTest, AnAddressThatFailedIsTriedLast) {
  resolver_.failed("many.test", address("127.0.0.1"), now_);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(order(resolver_, now_).back(), "127.0.0.1");
  EXPECT_EQ(order(resolver_, now_).size(), 3u);
}

TEST_F(RotationTest, AfterAWhileOneConnectionBeginsWithItAndTheOthersWaitForTheOutcome) {
  resolver_.failed("many.test", address("127.0.0.1"), now_ - std::chrono::seconds(61));
  int began_with_it = 0;
  for (int i = 0; i < 9; ++i) began_with_it += order(resolver_, now_).front() == "127.0.0.1";
  EXPECT_EQ(began_with_it, 1);
}

TEST_F(RotationTest, AnAddressThatWorksAgainIsTriedAsBefore) {
  resolver_.failed("many.test", address("127.0.0.1"), now_);
  resolver_.worked("many.test", address("127.0.0.1"));
  int began_with_it = 0;
  for (int i = 0; i < 9; ++i) began_with_it += order(resolver_, now_).front() == "127.0.0.1";
  EXPECT_EQ(began_with_it, 3);
}

TEST_F(RotationTest, WhereAllFailedAllAreTried) {
  for (const char* each : {"::1", "127.0.0.1", "127.0.0.2"}) {
    resolver_.failed("many.test", address(each), now_);
  }
  EXPECT_EQ(order(resolver_, now_).size(), 3u);
}

TEST(Resolver, ALookUpWhoseThreadCannotStartIsTriedAnewByTheNext) {
  int calls = 0;
  Resolver resolver([&calls](std::function<void()> job) {
    if (++calls <= 2) throw std::system_error(EAGAIN, std::generic_category());
    std::thread(std::move(job)).detach();
  });
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(resolver.resolve("one.test", [] { FAIL() << "called"; }),
                FailsWith(Code::kUnavailable,
                          AllOf(HasSubstr("one.test"), HasSubstr("no thread for the look-up"))));
  }
  EXPECT_EQ(texts(**resolve(resolver, "one.test")), std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(calls, 3);
}

TEST(Resolver, KeepsAnswers) {
  Resolver resolver;
  const int before = look_up_count;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(resolve(resolver, "one.test").has_value());
  EXPECT_EQ(look_up_count - before, 1);
}

TEST(Resolver, LooksANameUpOnceForAllWhoAsk) {
  Resolver resolver;
  const int before = look_up_count;
  std::counting_semaphore<8> called(0);
  for (int i = 0; i < 5; ++i) {
    const Answer answer = resolver.resolve("slow.test", [&called] { called.release(); });
    ASSERT_TRUE(answer.has_value());
    EXPECT_FALSE(answer->has_value());
  }
  let_slow_look_up_end();
  for (int i = 0; i < 5; ++i) called.acquire();
  EXPECT_EQ(look_up_count - before, 1);
}

TEST(Resolver, NamesThatDoNotResolveAreErrorsThatNameThem) {
  Resolver resolver;
  for (const std::string host : {"none.test", "again.test", "empty.test"}) {
    EXPECT_THAT(resolve(resolver, host), FailsWith(Code::kUnavailable, HasSubstr(host)));
  }
}

TEST(Resolver, MayBeDestroyedWhileItLooksUp) {
  const auto changed = std::make_shared<std::binary_semaphore>(0);
  {
    Resolver resolver;
    ASSERT_TRUE(resolver.resolve("slow.test", [changed] { changed->release(); }).has_value());
  }
  let_slow_look_up_end();
  changed->acquire();
}

class ResolvedHost : public StoreTest {
 protected:
  void point_to(const std::string& host) {
    options_.endpoint = cat("http://", host, ":", server_.port());
  }
  const ObjectInfo object_ = server_.put("a", "abc");
};

TEST_F(ResolvedHost, IsReachedByTheAddressThatAnswers) {
  point_to("both.test");  // nobody listens at ::1
  options_.retry.max_attempts = 1;
  EXPECT_THAT(read(*open(), listed(object_)), Gives("abc"));
  EXPECT_EQ(server_.log("media").at(0).headers.at("host"), cat("both.test:", server_.port()));
  EXPECT_EQ(engine_.metrics().retries_total, 0u);
}

TEST_F(ResolvedHost, SpreadsItsConnectionsOverAllAddresses) {
  // 127.0.0.2 is the same machine; the server tells by which address it was reached.
  FaultServer second({.bind = "127.0.0.2", .port = server_.port()});
  second.put("a", "abc");
  options_.endpoint = cat("http://pair.test:", server_.port());
  options_.initial_in_flight = options_.max_in_flight = 8;
  for (FaultServer* server : {&server_, &second}) {
    server->faults(R"([{"match":{"kind":"media"},"action":{"close_after":"announced"}}])");
  }
  const std::shared_ptr<ObjectStore> store = open();
  for (int i = 0; i < 10; ++i) EXPECT_THAT(read(*store, named("a")), Gives("abc"));
  EXPECT_EQ(server_.stat("/by_kind/media"), 5u);
  EXPECT_EQ(second.stat("/by_kind/media"), 5u);
}

TEST_F(ResolvedHost, ThatIsUnknownIsAnErrorThatNamesIt) {
  point_to("none.test");
  options_.retry.max_attempts = 2;
  EXPECT_THAT(read(*open(), listed(object_)),
              FailsWith(Code::kUnavailable, AllOf(HasSubstr("cannot resolve host none.test"),
                                                  HasSubstr("gs://bucket/a"))));
}

TEST_F(ResolvedHost, WhoseNameServiceHangsIsTimedOutAndHoldsNobodyUp) {
  StoreOptions options = options_;
  point_to("slow.test");
  options_.timeout.connect = milliseconds(200);
  options_.retry.max_attempts = 1;
  const std::vector<ReadTarget> targets(20, listed(object_));
  const std::shared_ptr<ReadBatch> batch = batch_of(targets);
  open()->read(batch);
  EXPECT_THAT(read(*open(options), listed(object_)), Gives("abc"));
  wait_for(*batch);
  for (size_t i = 0; i < batch->size(); ++i) {
    EXPECT_THAT(outcome(*batch, i),
                FailsWith(Code::kTimedOut, HasSubstr("resolving host slow.test took longer than")));
  }
  let_slow_look_up_end();
}

TEST_F(ResolvedHost, WhoseNameServiceHangsMayBeCancelled) {
  point_to("slow.test");
  const ReadTarget target = listed(object_);
  const std::shared_ptr<ReadBatch> batch = batch_of(std::span(&target, 1));
  open()->read(batch);
  slow_began.acquire();
  batch->cancel();
  wait_for(*batch);
  EXPECT_THAT(outcome(*batch, 0), FailsWith(Code::kCancelled, HasSubstr("cancelled")));
  slow_may_go_on.release();
}

}  // namespace
}  // namespace headrace
