#include "headrace/engine.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <semaphore>
#include <thread>

#include "headrace/store/fault_server_test_support.h"
#include "headrace/store/transfer/credentials.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

const Url kUrl = {.scheme = Scheme::kGs, .bucket = std::string(kBucket)};

class EngineTest : public ::testing::Test {
 protected:
  std::shared_ptr<ObjectStore> open(Engine& engine) {
    Result<std::shared_ptr<ObjectStore>> store = engine.open(kUrl, options_for(server_));
    EXPECT_TRUE(store.has_value()) << store.error().to_string();
    return *store;
  }
  FaultServer server_;
  const std::string bytes_ = some_bytes(10'000);
  const ObjectInfo object_ = server_.put("a", bytes_);
};

TEST_F(EngineTest, StartsAndStopsIdle) {
  for (const uint32_t threads : {1u, 2u, 7u}) {
    Engine engine({.io_threads = threads});
    EXPECT_TRUE(engine.usable_in_this_process());
    EXPECT_EQ(engine.metrics().requests_total, 0u);
  }
}

TEST_F(EngineTest, StopsTwice) {
  Engine engine;
  EXPECT_THAT(read(*open(engine), listed(object_)), Gives(bytes_));
  engine.stop();
  engine.stop();
  EXPECT_THAT(engine.open(kUrl, options_for(server_)),
              FailsWith(Code::kCancelled, HasSubstr("the engine was stopped")));
}

TEST_F(EngineTest, StoresOutliveItAndAnswerThatItWasStopped) {
  std::shared_ptr<ObjectStore> store;
  std::shared_ptr<ReadBatch> kept;
  {
    Engine engine;
    store = open(engine);
    const ReadTarget target = listed(object_);
    kept = batch_of(std::span(&target, 1));
    store->read(kept);
    wait_for(*kept);
  }
  EXPECT_THAT(outcome(*kept, 0), Gives(bytes_)) << "what was read stays";
  EXPECT_THAT(read(*store, listed(object_)), FailsWith(Code::kCancelled, HasSubstr("stopped")));
  EXPECT_THAT(take(store->stat("a")), FailsWith(Code::kCancelled, HasSubstr("stopped")));
  EXPECT_THAT(take(store->list({})), FailsWith(Code::kCancelled, HasSubstr("stopped")));
  kept.reset();
  store.reset();
}

TEST_F(EngineTest, TwoAreIndependent) {
  Engine one({.io_threads = 1}), other({.io_threads = 1});
  const std::shared_ptr<ObjectStore> at_one = open(one), at_other = open(other);
  EXPECT_THAT(read(*at_one, listed(object_)), Gives(bytes_));
  one.stop();
  EXPECT_THAT(read(*at_other, listed(object_)), Gives(bytes_));
  EXPECT_EQ(one.metrics().objects_read_total, 1u);
  EXPECT_EQ(other.metrics().objects_read_total, 1u);
}

TEST_F(EngineTest, IsUsedByManyThreadsAtOnce) {
  Engine engine({.io_threads = 2});
  const std::shared_ptr<ObjectStore> store = open(engine);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 20; ++round) {
          const std::vector<ReadTarget> targets(5, listed(object_));
          const std::shared_ptr<ReadBatch> batch = batch_of(targets);
          store->read(batch);
          wait_for(*batch);
          for (size_t slot = 0; slot < 5; ++slot) {
            EXPECT_THAT(outcome(*batch, slot), Gives(bytes_));
          }
        }
      });
    }
  }
  EXPECT_EQ(engine.metrics().objects_read_total, 800u);
  EXPECT_EQ(engine.metrics().checksums_verified_total, 800u);
  EXPECT_EQ(server_.stat("/by_kind/media"), 800u);
}

TEST_F(EngineTest, RefusesOptionsAndUrlsThatCannotWork) {
  Engine engine;
  const auto fails = [&](auto change, const char* text) {
    StoreOptions options = options_for(server_);
    change(options);
    EXPECT_THAT(engine.open(kUrl, options), FailsWith(Code::kInvalidArgument, HasSubstr(text)));
  };
  using std::chrono::milliseconds;
  fails([](StoreOptions& options) { options.timeout.connect = milliseconds(0); },
        "timeout.connect");
  fails([](StoreOptions& options) { options.timeout.total = milliseconds(-1); }, "timeout.total");
  fails([](StoreOptions& options) { options.retry.max_attempts = 0; }, "retry.max_attempts");
  fails([](StoreOptions& options) { options.retry.backoff_multiplier = 0.5; }, "multiplier");
  fails([](StoreOptions& options) { options.max_in_flight = 0; }, "max_in_flight");
  fails([](StoreOptions& options) { options.range_bytes = 0; }, "range_bytes");
  fails([](StoreOptions& options) { options.range_bytes = kMinRangeBytes - 1; },
        "range_bytes is 65535; it must be at least 65536");
  EXPECT_THAT(engine.open({.scheme = Scheme::kFile, .name = "/tmp"}, {.range_bytes = 1}),
              FailsWith(Code::kInvalidArgument, HasSubstr("range_bytes is 1")));
  fails([](StoreOptions& options) { options.endpoint = "http://"; }, "http://");
  EXPECT_THAT(engine.open({.scheme = Scheme::kAis, .bucket = "b"}),
              FailsWith(Code::kInvalidArgument, HasSubstr("AIS_ENDPOINT")));
}

TEST_F(EngineTest, ListsPageByPageInOrder) {
  Engine engine;
  server_.post("synthetic", R"({"bucket":"bucket","count":2500,"size_bytes":10,"shape":"flat"})");
  const std::shared_ptr<ObjectStore> store = open(engine);
  std::vector<std::string> names;
  ListRequest request;
  int pages = 0;
  do {
    Result<ColumnPage> page = take(store->list(request));
    ASSERT_TRUE(page.has_value()) << page.error().to_string();
    for (const ObjectInfo& info : page->objects()) names.push_back(info.name);
    request.page_token = page->next_page_token;
    ++pages;
  } while (!request.page_token.empty());
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(names.size(), 2500u);
  EXPECT_TRUE(std::ranges::is_sorted(names));
}

// ── fork ─────────────────────────────────────────────────────────────────────────────────────

bool is(const Result<std::string>& got, const std::string& bytes) {
  return got.has_value() && *got == bytes;
}

int exit_status(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

TEST_F(EngineTest, AForkedChildHoldsNoneOfItsConnectionsOpen) {
  auto engine = std::make_unique<Engine>(EngineOptions{.io_threads = 2});
  {
    const std::shared_ptr<ObjectStore> store = open(*engine);
    const std::vector<ReadTarget> targets(200, listed(object_));
    const std::shared_ptr<ReadBatch> batch = batch_of(targets);
    store->read(batch);
    wait_for(*batch);
  }
  const uint64_t open_count = engine->metrics().connections_open;
  ASSERT_GT(open_count, 0u);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(pipe[1]);
    char end = 0;
    ::_exit(::read(pipe[0], &end, 1) == 0 ? 0 : 1);  // lives until the parent lets it go
  }
  ::close(pipe[0]);
  engine.reset();
  // The server sees every connection end while the child is alive.
  server_.wait_for("/connections_client_fin", open_count);
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0) << "the child has ended too early";
  ::close(pipe[1]);
  EXPECT_EQ(exit_status(child), 0);
}

TEST_F(EngineTest, AForkedChildMakesItsOwnAndBothGoOn) {
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "ThreadSanitizer allows no threads in a forked child";
#endif
  auto engine = std::make_unique<Engine>(EngineOptions{.io_threads = 2});
  std::shared_ptr<ObjectStore> store = open(*engine);
  const ReadTarget target = listed(object_);
  std::shared_ptr<ReadBatch> kept = batch_of(std::span(&target, 1));
  store->read(kept);
  wait_for(*kept);
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = !engine->usable_in_this_process();
    good = good && is(outcome(*kept, 0), bytes_);  // inherited bytes can be read ...
    kept.reset();                                  // ... and given up
    {
      Engine own({.io_threads = 1});
      good = good && is(read(*open(own), target), bytes_);
    }
    store.reset();
    engine.reset();
    ::_exit(good ? 0 : 1);
  }
  EXPECT_THAT(read(*store, target), Gives(bytes_));
  EXPECT_EQ(exit_status(child), 0);
  EXPECT_THAT(read(*store, target), Gives(bytes_));
}

TEST_F(EngineTest, AForkWithReadsInFlightHarmsNeither) {
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "ThreadSanitizer allows no threads in a forked child";
#endif
  Engine engine({.io_threads = 2});
  const std::shared_ptr<ObjectStore> store = open(engine);
  const std::vector<ReadTarget> targets(300, listed(object_));
  for (int round = 0; round < 5; ++round) {
    const std::shared_ptr<ReadBatch> batch = batch_of(targets);
    store->read(batch);
    const pid_t child = ::fork();
    if (child == 0) {
      Engine own({.io_threads = 1});
      ::_exit(is(read(*open(own), targets[0]), bytes_) ? 0 : 1);
    }
    wait_for(*batch);
    for (size_t i = 0; i < batch->size(); ++i) EXPECT_THAT(outcome(*batch, i), Gives(bytes_));
    EXPECT_EQ(exit_status(child), 0);
  }
}

// ── Idle ─────────────────────────────────────────────────────────────────────────────────────

// How often the I/O threads have slept: it changes with every wake-up.
std::string io_thread_switches() {
  std::string all;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (!name.starts_with("headrace-io-")) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("voluntary_ctxt_switches")) all += cat(name, " ", line, "\n");
    }
  }
  return all;
}

TEST_F(EngineTest, IdleWakesNobody) {
  Engine engine({.io_threads = 2});
  EXPECT_THAT(read(*open(engine), listed(object_)), Gives(bytes_));
  // The sweep ends by itself once nothing is in progress; from then on a whole second is quiet.
  const auto wait_a_second = [] {
    std::binary_semaphore never(0);
    static_cast<void>(never.try_acquire_for(std::chrono::seconds(1)));
  };
  std::string before, after = io_thread_switches();
  ASSERT_THAT(after, HasSubstr("voluntary_ctxt_switches"));
  for (int second = 0; second < 5 && before != after; ++second) {
    before = after;
    wait_a_second();
    after = io_thread_switches();
  }
  EXPECT_EQ(before, after);
}

TEST_F(EngineTest, StoresShareConnectionsUnlessTheirHostOptionsDiffer) {
  Engine engine({.io_threads = 1});
  const StoreOptions usual = options_for(server_);
  const auto connections_after_reading_with = [&](const StoreOptions& options) {
    EXPECT_THAT(read(**engine.open(kUrl, options), listed(object_)), Gives(bytes_));
    return engine.metrics().connections_opened_total;
  };
  EXPECT_EQ(connections_after_reading_with(usual), 1u);
  StoreOptions same = usual;
  same.range_bytes = 1 * kMiB;
  same.retry.max_attempts = 3;
  EXPECT_EQ(connections_after_reading_with(same), 1u);
  uint64_t expected = 1;
  const auto differs = [&](auto change) {
    StoreOptions other = usual;
    change(other);
    EXPECT_EQ(connections_after_reading_with(other), ++expected);
    EXPECT_EQ(connections_after_reading_with(other), expected);
  };
  using std::chrono::milliseconds;
  differs([](StoreOptions& options) { options.timeout.connect = milliseconds(4'321); });
  differs([](StoreOptions& options) { options.timeout.tls = milliseconds(4'321); });
  differs([](StoreOptions& options) { options.timeout.first_byte = milliseconds(4'321); });
  differs([](StoreOptions& options) { options.timeout.stall = milliseconds(4'321); });
  differs([](StoreOptions& options) { options.max_in_flight = 99; });
  differs([](StoreOptions& options) { options.initial_in_flight = 9; });
  differs([](StoreOptions& options) { options.retry.budget_tokens = 9; });
  differs([](StoreOptions& options) { options.user_agent_suffix = "me"; });
}

TEST_F(EngineTest, OfTheHostsThatNobodyUsesTheLastAreKept) {
  constexpr int kKept = 32, kMade = 40;
  Engine engine({.io_threads = 1});
  const auto open_as = [&](const std::string& name) {
    StoreOptions options = options_for(server_);
    options.user_agent_suffix = name;  // a host of its own
    return engine.open(kUrl, options).value();
  };
  const auto connections_after_reading_by = [&](const std::shared_ptr<ObjectStore>& store) {
    EXPECT_THAT(read(*store, listed(object_)), Gives(bytes_));
    return engine.metrics().connections_opened_total;
  };
  const std::shared_ptr<ObjectStore> in_use = open_as("in-use");
  EXPECT_EQ(connections_after_reading_by(in_use), 1u);
  for (int i = 0; i < kMade; ++i) connections_after_reading_by(open_as(std::to_string(i)));
  EXPECT_EQ(engine.metrics().connections_opened_total, 1u + kMade);
  for (int i = kMade - kKept; i < kMade; ++i) open_as(std::to_string(i));
  EXPECT_EQ(connections_after_reading_by(open_as(std::to_string(kMade - 1))), 1u + kMade);
  EXPECT_EQ(connections_after_reading_by(open_as(std::to_string(kMade - kKept))), 1u + kMade);
  EXPECT_EQ(connections_after_reading_by(in_use), 1u + kMade) << "somebody does";
  EXPECT_EQ(connections_after_reading_by(open_as("0")), 2u + kMade) << "it was let go";
}

TEST_F(EngineTest, HostsAreLetGoWhileOthersAreReadFrom) {
  Engine engine({.io_threads = 2});
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 4; ++reader) {
    readers.emplace_back([&, reader] {
      for (int i = 0; i < 60; ++i) {
        StoreOptions options = options_for(server_);
        options.user_agent_suffix = cat(reader, "-", i);
        const auto store = engine.open(kUrl, options).value();
        store->expect_reads(8);  // whose connections may be on their way when the store is gone
        if (i % 2 == 0) EXPECT_THAT(read(*store, listed(object_)), Gives(bytes_));
      }
    });
  }
  for (std::thread& each : readers) each.join();
}

TEST_F(EngineTest, TextsWithControlCharactersAreRefused) {
  Engine engine({.io_threads = 1});
  const auto refused = [&](std::string StoreOptions::* text, std::string_view name) {
    for (const char* bad : {"a\r\nX-Evil: 1", "a\nb", "a\tb", "\x7f"}) {
      StoreOptions options = options_for(server_);
      options.*text = bad;
      EXPECT_THAT(engine.open(kUrl, options), FailsWith(Code::kInvalidArgument, HasSubstr(name)));
    }
  };
  refused(&StoreOptions::user_agent_suffix, "user_agent_suffix");
  refused(&StoreOptions::endpoint, "endpoint");
  StoreOptions options = options_for(server_);
  options.gcs.user_project = "me\r\nX-Evil: 1";
  EXPECT_THAT(engine.open(kUrl, options),
              FailsWith(Code::kInvalidArgument, HasSubstr("user_project")));
  options.gcs.user_project = "";
  options.proxy.http_proxy = "http://proxy\r\n";
  EXPECT_THAT(engine.open(kUrl, options), FailsWith(Code::kInvalidArgument, HasSubstr("proxy")));
}

TEST_F(EngineTest, AServerThatIsNotThereIsToldWithinTwoSecondsWhileRetriesGoOn) {
  std::binary_semaphore told(0);
  Mutex mutex;
  std::vector<std::string> texts;
  Engine engine({.io_threads = 1, .on_log = [&](const LogRecord& record) {
                   const Lock lock(mutex);
                   texts.push_back(record.text);
                   told.release();
                 }});
  StoreOptions options;
  options.endpoint = "http://127.0.0.1:1";
  options.credentials = Credentials::fixed({.authorization = "Bearer very-secret"});
  options.retry.max_attempts = 1'000;
  const std::shared_ptr<Pending<ObjectInfo>> pending = (*engine.open(kUrl, options))->stat("a");
  EXPECT_TRUE(told.try_acquire_for(kPatience));
  EXPECT_FALSE(pending->wait_until(std::chrono::steady_clock::now(), MayBlock::on_this_thread()))
      << "retries go on";
  pending->cancel();
  EXPECT_THAT(take(pending), FailsWith(Code::kCancelled, HasSubstr("refused")));
  const Lock lock(mutex);
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_THAT(texts[0], HasSubstr("http://127.0.0.1:1 has given no good answer for "));
  EXPECT_THAT(texts[0], HasSubstr("Connection refused"));
  EXPECT_THAT(texts[0], ::testing::ContainsRegex("gives up after another 2[0-9]"));
  EXPECT_THAT(texts[0], ::testing::Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace headrace
