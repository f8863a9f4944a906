// Names to addresses, with a name service of the test's own: getaddrinfo is defined here, and the
// linker takes this one.
#include "headrace/http/resolver.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <semaphore>

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

using Answer = Result<std::shared_ptr<const Resolver::Addresses>>;

// Asks, waits for the call, asks again.
Answer resolve(Resolver& resolver, const std::string& host) {
  const auto changed = std::make_shared<std::binary_semaphore>(0);
  Answer answer = resolver.resolve(host, [changed] { changed->release(); });
  if (answer && *answer == nullptr) {
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
    EXPECT_EQ(*answer, nullptr);
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
