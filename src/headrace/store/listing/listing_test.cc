#include "headrace/store/listing/listing.h"

#include <thread>

#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

const MayBlock kMayBlock = MayBlock::on_this_thread();

class ListingTest : public StoreTest {
 protected:
  void make_bucket(uint64_t count, std::string_view shape) {
    server_.post("synthetic", cat(R"({"bucket":"bucket","count":)", count,
                                  R"(,"size_bytes":10,"shape":")", shape, "\"}"));
  }
  static Result<std::vector<std::string>> names_of(Listing& listing) {
    std::vector<std::string> names;
    while (true) {
      Result<std::optional<ColumnPage>> page = listing.take(kMayBlock);
      if (!page) return std::unexpected(page.error());
      if (!*page) return names;
      EXPECT_FALSE((*page)->empty());
      for (size_t i = 0; i < (*page)->size(); ++i) names.emplace_back((*page)->name(i));
    }
  }
  static std::vector<std::string> numbers(size_t count) {
    std::vector<std::string> names;
    for (size_t i = 0; i < count; ++i) {
      const std::string digits = std::to_string(i);
      names.push_back(std::string(7 - digits.size(), '0') + digits);
    }
    return names;
  }
};

TEST_F(ListingTest, GivesAllNamesInOrder) {
  make_bucket(20'000, "flat");
  for (const bool eager : {false, true}) {
    const auto listing = Listing::start(open(), {}, {.eager = eager});
    const Result<std::vector<std::string>> names = names_of(*listing);
    ASSERT_TRUE(names.has_value()) << names.error().to_string();
    EXPECT_EQ(*names, numbers(20'000));
    EXPECT_TRUE(listing->progress().complete);
    EXPECT_EQ(listing->progress().names, 20'000u);
    EXPECT_FALSE(listing->take(kMayBlock)->has_value());
  }
}

TEST_F(ListingTest, OnePageAtATimeGoesByTokens) {
  make_bucket(5'000, "flat");
  const auto listing = Listing::start(open(), {}, {.max_pages_in_flight = 1, .eager = true});
  EXPECT_EQ(names_of(*listing).value(), numbers(5'000));
  EXPECT_EQ(listing->progress().requests, 5u);
  const std::vector<FaultServer::Entry> log = server_.log("list");
  ASSERT_EQ(log.size(), 5u);
  for (size_t i = 1; i < log.size(); ++i) {
    EXPECT_THAT(log[i].target, HasSubstr("pageToken="));
    EXPECT_THAT(log[i].target, Not(HasSubstr("startOffset=")));
  }
}

TEST_F(ListingTest, PagesThatNobodyTakesStayWithinAQuarterOfTheBudget) {
  constexpr uint64_t kBudgetBytes = 4 * kMiB;
  constexpr uint64_t kPages = 100;
  make_bucket(kPages * 1000, "flat");
  for (const uint32_t max_pages_in_flight : {0u, 1u}) {
    Engine engine({.io_threads = 2, .memory_budget_bytes = kBudgetBytes});
    const std::shared_ptr<ObjectStore> store = open_in(engine, options_);
    const uint64_t before = server_.stat("/by_kind/list");
    const auto listing =
        Listing::start(store, {}, {.max_pages_in_flight = max_pages_in_flight, .eager = true});
    // It asks for pages only when others arrive, so it has come to rest when none is under way.
    const auto until = steady_clock::now() + kPatience;
    uint64_t answered = 0;
    do {
      ASSERT_LT(steady_clock::now(), until);
      answered = engine.metrics().requests_total;
      for (int i = 0; i < 4; ++i) static_cast<void>(take(store->stat("no")));
    } while (engine.metrics().in_flight != 0 || engine.metrics().requests_total != answered + 4);
    const uint64_t asked = server_.stat("/by_kind/list") - before;
    const uint64_t waiting_bytes = engine.pool().live_bytes();
    EXPECT_GE(asked, 4u);
    EXPECT_LE(asked, kPages / 4);
    EXPECT_GT(waiting_bytes, kBudgetBytes / 8);
    EXPECT_LE(waiting_bytes, kBudgetBytes / 4);
    EXPECT_FALSE(listing->progress().complete);

    EXPECT_EQ(names_of(*listing).value(), numbers(kPages * 1000));
    EXPECT_LE(engine.pool().use().peak_live_bytes, kBudgetBytes / 2) << "with those under way";
    wait_until_all_is_given_back(engine.pool());
  }
}

TEST_F(ListingTest, WhatCameFirstCanBeTakenWhileTheRestIsUnderWay) {
  make_bucket(50'000, "flat");
  server_.faults(R"([{"match":{"kind":"list"},"from":4,"action":"stall_head"}])");
  const auto listing = Listing::start(open(), {}, {.eager = true});
  EXPECT_EQ((*listing->take(kMayBlock))->name(0), "0000000");
  EXPECT_FALSE(listing->progress().complete);
  listing->cancel();
  EXPECT_THAT(listing->take(kMayBlock), FailsWith(Code::kCancelled, HasSubstr("cancelled")));
}

TEST_F(ListingTest, CancelLetsTheRequestsGo) {
  make_bucket(50'000, "flat");
  server_.faults(R"([{"match":{"kind":"list"},"from":4,"action":"stall_head"}])");
  std::weak_ptr<Listing> observer;
  {
    const auto listing = Listing::start(open(), {}, {.eager = true});
    observer = listing;
    server_.wait_for("/by_kind/list", 4);
    listing->cancel();
    listing->cancel();
    EXPECT_FALSE(names_of(*listing).has_value());
  }
  // Its last request has ended when nothing holds it any more.
  const auto until = steady_clock::now() + kPatience;
  while (!observer.expired() && steady_clock::now() < until) std::this_thread::yield();
  EXPECT_TRUE(observer.expired());
}

TEST_F(ListingTest, AnErrorIsGivenFromThenOn) {
  make_bucket(50'000, "flat");
  server_.faults(R"([{"match":{"kind":"list"},"from":6,"action":{"status":403}}])");
  const auto listing = Listing::start(open(), {}, {.eager = true});
  EXPECT_THAT(names_of(*listing), FailsWith(Code::kPermissionDenied, HasSubstr("gs://bucket/")));
  EXPECT_THAT(listing->take(kMayBlock), FailsWith(Code::kPermissionDenied, HasSubstr("403")));
}

TEST_F(ListingTest, StoppingTheEngineEndsIt) {
  make_bucket(50'000, "flat");
  server_.faults(R"([{"match":{"kind":"list"},"from":4,"action":"stall_head"}])");
  Engine engine({.io_threads = 2, .memory_budget_bytes = 64 * kMiB});
  const std::shared_ptr<ObjectStore> store = open_in(engine, options_);
  const auto listing = Listing::start(store, {}, {.eager = true});
  server_.wait_for("/by_kind/list", 4);
  engine.stop();
  EXPECT_THAT(names_of(*listing), FailsWith(Code::kCancelled, HasSubstr("")));
  const auto late = Listing::start(store, {});
  EXPECT_THAT(late->take(kMayBlock), FailsWith(Code::kCancelled, HasSubstr("stopped")));
}

}  // namespace
}  // namespace headrace
