// Copies and renames of several requests, whatever happens to each of them.
#include <algorithm>

#include "headrace/store/remote/http_store.h"
#include "headrace/store/writing/played_service_test_support.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Objects above 1000 bytes are copied in parts of as many.
class CopyTest : public PlayedServiceTest {
 protected:
  static constexpr uint32_t kPartCount = 6;

  CopyTest() {
    options_.write_limits.max_copy_bytes = options_.write_limits.copied_part_bytes = 1000;
    for (size_t i = 0; i < kPartCount * 1000 - 200; ++i) {
      bytes_.push_back(static_cast<char>(i * 31 >> 3));
    }
  }
  void begin_at(const std::string& url) {
    if (url.starts_with("s3")) begin<PlayedS3>(url, options_);
    if (url.starts_with("ais")) ais_ = &begin<PlayedAis>(url, options_);
    service().objects["in"] = {.bytes = bytes_, .generation = 7};
    store_ = std::make_shared<HttpStore>(remote_, options_, nullptr);
    ended_.reset();
  }
  void start(bool moves) {
    CopyRequest request{.source_name = "in", .name = "out/a"};
    pending_ = moves ? store_->rename(std::move(request)) : store_->copy(std::move(request));
    pending_->then([this](Result<ObjectInfo> result) {
      EXPECT_FALSE(ended_.has_value()) << "it ended twice";
      ended_ = std::move(result);
    });
  }
  const Result<ObjectInfo>& finish() {
    run_until([this] { return ended_.has_value(); });
    run_until([this] { return is_idle(); });
    return *ended_;
  }
  const Result<ObjectInfo>& run(bool moves) {
    start(moves);
    return finish();
  }
  bool is_there(const std::string& name) {
    return service().objects.contains(name) && service().objects[name].bytes == bytes_;
  }
  std::vector<std::string> left() {
    std::vector<std::string> left;
    for (const auto& [name, object] : service().objects) {
      if (name != "out/a" && name != "in") left.push_back(name);
    }
    for (const auto& [id, parts] : service().uploads) left.push_back("upload " + id);
    return left;
  }

  StoreOptions options_;
  std::string bytes_;
  PlayedAis* ais_ = nullptr;
  std::shared_ptr<HttpStore> store_;
  std::shared_ptr<Pending<ObjectInfo>> pending_;
  std::optional<Result<ObjectInfo>> ended_;
};

struct CopyWay {
  std::string name, url;
  bool moves = false;
  friend void PrintTo(const CopyWay& way, std::ostream* out) { *out << way.name; }
};

class EveryCopy : public CopyTest, public ::testing::WithParamInterface<CopyWay> {
 protected:
  size_t request_count() {
    begin_at(GetParam().url);
    run(GetParam().moves);
    return kinds.size();
  }
  // Anew for each request; `what` says what becomes of it.
  void for_each_request(const std::function<Mishap(const std::string& kind)>& what,
                        const std::function<void(const std::string& kind)>& check) {
    const size_t count = request_count();
    for (size_t number = 1; number <= count; ++number) {
      begin_at(GetParam().url);
      std::string hit;
      mishap = [&, number](size_t n, const PlayedRequest& request) {
        if (n != number) return Mishap::kNone;
        hit = request.kind;
        return what(hit);
      };
      run(GetParam().moves);
      SCOPED_TRACE(
          cat("request ", number, ", ", hit, ": ", *ended_ ? "good" : ended_->error().to_string()));
      EXPECT_TRUE(is_there("in") || is_there("out/a")) << "one of them is always there";
      if (ended_->has_value()) {
        EXPECT_TRUE(is_there("out/a"));
        EXPECT_EQ(is_there("in"), !GetParam().moves);
      } else if (!service().objects["out/a"].bytes.empty()) {
        EXPECT_TRUE(is_there("out/a")) << "whole or not there";
      }
      check(hit);
      mishap = [](size_t, const PlayedRequest&) { return Mishap::kNone; };
      if (HasFailure()) return;
    }
  }
};

TEST_P(EveryCopy, IsWholeAndLeavesNothingElse) {
  begin_at(GetParam().url);
  const Result<ObjectInfo>& copied = run(GetParam().moves);
  ASSERT_TRUE(copied.has_value()) << copied.error().to_string();
  EXPECT_TRUE(is_there("out/a"));
  EXPECT_EQ(is_there("in"), !GetParam().moves);
  EXPECT_THAT(left(), IsEmpty());
}

TEST_P(EveryCopy, ARefusedRequestEndsItAndNothingIsLeft) {
  for_each_request([](const std::string&) { return Mishap::kRefused; },
                   [this](const std::string&) {
                     EXPECT_THAT(left(), IsEmpty());
                     if (!*ended_) EXPECT_EQ(ended_->error().http_status(), 403);
                   });
}

TEST_P(EveryCopy, AThrottledRequestIsSentAgain) {
  for_each_request([](const std::string&) { return Mishap::kThrottled; },
                   [this](const std::string&) {
                     EXPECT_THAT(left(), IsEmpty());
                     EXPECT_TRUE(ended_->has_value());
                   });
}

// Of an object that was made of copied parts, this service tells nothing to compare.
TEST_P(EveryCopy, ALostAnswerIsSettledOrToldAsSuch) {
  for_each_request([](const std::string&) { return Mishap::kLost; },
                   [this](const std::string& kind) {
                     if (kind == "complete" && !*ended_) {
                       EXPECT_THAT(ended_->error().to_string(), HasSubstr("is unknown"));
                     } else {
                       EXPECT_TRUE(ended_->has_value());
                     }
                     EXPECT_LE(left().size(), kind == "start" ? 1u : 0u);
                   });
}

TEST_P(EveryCopy, CancelledAtAnyRequestItEndsAndNothingIsLeft) {
  for_each_request(
      [this](const std::string&) {
        pending_->cancel();
        return Mishap::kSilent;
      },
      [this](const std::string& kind) {
        EXPECT_THAT(left(), IsEmpty());
        // A map is fetched for others, too.
        if (kind != "map") EXPECT_EQ(ended_->error().code(), Code::kCancelled);
      });
}

TEST_P(EveryCopy, TheEndOfTheEngineEndsIt) {
  for_each_request(
      [this](const std::string&) {
        stop();
        return Mishap::kSilent;
      },
      [this](const std::string&) { EXPECT_FALSE(ended_->has_value()); });
}

INSTANTIATE_TEST_SUITE_P(
    , EveryCopy,
    ::testing::Values(CopyWay{.name = "parts", .url = "s3://bucket"},
                      CopyWay{.name = "relayed", .url = "ais://bucket"},
                      CopyWay{.name = "moved", .url = "s3://bucket", .moves = true}),
    [](const auto& given) { return given.param.name; });

class RelayedCopyTest : public CopyTest {
 protected:
  RelayedCopyTest() { begin_at("ais://bucket"); }
};

TEST_F(RelayedCopyTest, EachPartIsReadAndSentAndFourAreInFlight) {
  size_t reading = 0;
  mishap = [&](size_t, const PlayedRequest& request) {
    reading += request.kind == "read" ? 1 : 0;
    return request.kind == "read" ? Mishap::kSilent : Mishap::kNone;
  };
  start(false);
  poll();
  EXPECT_EQ(reading, 4u);
  mishap = [](size_t, const PlayedRequest&) { return Mishap::kNone; };
  EXPECT_TRUE(finish().has_value());
  EXPECT_TRUE(is_there("out/a"));
  EXPECT_EQ(std::ranges::count(kinds, "part"), kPartCount);
}

// Those behind it are read, and wait for their turn, which never comes.
TEST_F(RelayedCopyTest, APartThatCannotBeReadEndsThoseBehindIt) {
  mishap = [](size_t, const PlayedRequest& request) {
    const bool is_first = request.headers.contains("Range: bytes=0-");
    return request.kind == "read" && is_first ? Mishap::kRefused : Mishap::kNone;
  };
  EXPECT_FALSE(run(false).has_value());
  EXPECT_EQ(ended_->error().http_status(), 403);
  EXPECT_EQ(std::ranges::count(kinds, "part"), 0);
  EXPECT_THAT(left(), IsEmpty());
  EXPECT_EQ(engine_->pool->live_bytes(), 0u);
}

TEST_F(RelayedCopyTest, APartThatGetsNoMemoryEndsIt) {
  ais_->claimed_bytes = uint64_t{1} << 61;
  const Result<ObjectInfo>& copied = run(false);
  ASSERT_FALSE(copied.has_value());
  EXPECT_EQ(copied.error().code(), Code::kExhausted);
  EXPECT_THAT(copied.error().to_string(),
              AllOf(HasSubstr("ais://bucket/out/a"), HasSubstr("the system has no memory")));
  EXPECT_EQ(std::ranges::count(kinds, "read"), 0);
  EXPECT_THAT(left(), IsEmpty());
}

TEST_F(RelayedCopyTest, AnObjectOfOnePartIsWrittenByOneRequest) {
  for (const std::string& bytes : {std::string(), std::string("few")}) {
    bytes_ = bytes;
    begin_at("ais://bucket");
    ASSERT_TRUE(run(false).has_value()) << ended_->error().to_string();
    EXPECT_EQ(service().objects["out/a"].bytes, bytes);
    EXPECT_EQ(std::ranges::count(kinds, "write"), 1);
    EXPECT_EQ(std::ranges::count(kinds, "start"), 0);
  }
}

}  // namespace
}  // namespace headrace
