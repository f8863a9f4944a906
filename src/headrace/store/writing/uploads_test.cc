// Every way to send a large object, whatever happens to each of its requests: the object is there,
// whole, or it is not there, each call ends once, and nothing else is left.
#include "headrace/store/writing/uploads.h"

#include <algorithm>

#include "headrace/store/writing/played_service_test_support.h"

namespace headrace {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Way {
  std::string name, url;
  UploadMethod method = UploadMethod::kDefault;
  uint32_t part_count = 3;
  uint64_t part_bytes = 1000;
  std::vector<std::string> kinds = {};  // of its requests, sorted
  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
};

std::vector<std::string> kinds_of(const std::vector<std::pair<std::string, size_t>>& counts) {
  std::vector<std::string> kinds;
  for (const auto& [kind, count] : counts) kinds.insert(kinds.end(), count, kind);
  std::ranges::sort(kinds);
  return kinds;
}

class UploadTest : public PlayedServiceTest {
 protected:
  struct Ended {
    std::vector<Result<void>> parts;  // in the order of their ends
    std::optional<Result<ObjectInfo>> published;
    std::optional<Result<void>> cleaned;

    bool is_good() const { return published && published->has_value(); }
    // The first error, as a writer tells it.
    std::string error() const {
      for (const Result<void>& part : parts) {
        if (!part) return part.error().to_string();
      }
      return is_good() ? "" : published ? published->error().to_string() : "it was cancelled";
    }
  };

  void begin_way(const Way& way, StoreOptions options = {}) {
    way_ = way;
    if (way.url.starts_with("gs")) begin<PlayedGcs>(way.url, std::move(options));
    if (way.url.starts_with("s3")) {
      begin<PlayedS3>(way.url, std::move(options)).announces_sums = !way.name.contains("trial");
    }
    if (way.url.starts_with("ais")) {
      begin<PlayedAis>(way.url, std::move(options)).has_multipart = !way.name.contains("append");
    }
    Result<std::shared_ptr<Upload>> made =
        new_upload(remote_, way.method, {.name = "out/a", .content_type = ""});
    ASSERT_TRUE(made.has_value()) << made.error().to_string();
    upload_ = std::move(*made);
    ended_ = std::make_shared<Ended>();
    is_cancelled_ = false;
    whole_ = {};
    bytes_.clear();
  }

  // As a writer does it.
  const Ended& write() {
    for (uint32_t number = 1; number <= way_.part_count; ++number) send(number);
    run_until([this] { return ended_->parts.size() >= way_.part_count; });
    const bool failed = std::ranges::any_of(ended_->parts, [](const auto& each) { return !each; });
    if (!failed && !is_cancelled_) {
      upload_->publish(whole_, [ended = ended_](Result<ObjectInfo> published) {
        EXPECT_FALSE(ended->published.has_value()) << "it ended twice";
        ended->published = std::move(published);
      });
      run_until([this] { return ended_->published.has_value(); });
    }
    upload_->clean([ended = ended_](Result<void> cleaned) {
      EXPECT_FALSE(ended->cleaned.has_value()) << "it ended twice";
      ended->cleaned = std::move(cleaned);
    });
    run_until([this] { return ended_->cleaned.has_value(); });
    return *ended_;
  }

  std::shared_ptr<UploadPart> part(uint32_t number, uint64_t size_bytes) {
    auto part = std::make_shared<UploadPart>(
        UploadPart{.part_number = number, .offset_bytes = bytes_.size(), .size_bytes = size_bytes});
    part->blocks.push_back(engine_->pool->allocate(size_bytes));
    const std::span<std::byte> block = part->blocks.back().bytes().first(size_bytes);
    for (size_t i = 0; i < block.size(); ++i) {
      block[i] = static_cast<std::byte>(uint32_t{number} * 7 + i * 13);
    }
    part->spans.emplace_back(block);
    part->crc32c = Crc32c().extended(block);
    bytes_.append(reinterpret_cast<const char*>(block.data()), block.size());
    whole_.part_count = number;
    whole_.size_bytes += size_bytes;
    whole_.crc32c = whole_.crc32c.joined(part->crc32c, size_bytes);
    return part;
  }

  void send(uint32_t number) {
    const bool is_last = number == way_.part_count;
    std::shared_ptr<UploadPart> sent = part(number, way_.part_bytes + (is_last ? 500 : 0));
    // Memory that is lent must not be in use once its end is told. A session keeps what is no
    // multiple of its unit for the last request.
    const bool is_kept = is_last && way_.method == UploadMethod::kResumable;
    upload_->send(sent, [this, ended = ended_, is_kept,
                         weak = std::weak_ptr<UploadPart>(sent)](Result<void> result) {
      if (!is_kept) EXPECT_TRUE(weak.expired()) << "it is still held";
      const bool is_first_error =
          !result &&
          std::ranges::all_of(ended->parts, [](const auto& each) -> bool { return !!each; });
      ended->parts.push_back(std::move(result));
      if (is_first_error) upload_->cancel();
    });
  }

  void cancel() {
    is_cancelled_ = true;
    upload_->cancel();
  }

  // What is there besides the object.
  std::vector<std::string> left() {
    std::vector<std::string> left;
    for (const auto& [name, object] : service().objects) {
      if (name != "out/a") left.push_back(name);
    }
    for (const auto& [id, parts] : service().uploads) left.push_back("upload " + id);
    for (const auto& [id, bytes] : service().streams) left.push_back("stream " + id);
    return left;
  }
  // `hit`: the kind of request that something has happened to. Who cannot look at the object after
  // the last request does not know whether it is there.
  void expect_whole_or_not_there(const Ended& ended, const std::string& hit = "") {
    const auto found = service().objects.find("out/a");
    if (hit == "stat" && !ended.is_good() && found != service().objects.end()) {
      EXPECT_TRUE(found->second.bytes == bytes_);
      return;
    }
    if (ended.is_good()) {
      ASSERT_TRUE(found != service().objects.end());
      EXPECT_TRUE(found->second.bytes == bytes_);
      EXPECT_EQ((*ended.published)->size_bytes, bytes_.size());
    } else {
      EXPECT_TRUE(found == service().objects.end()) << ended.error();
    }
  }

  Way way_;
  std::shared_ptr<Upload> upload_;
  std::shared_ptr<Ended> ended_;
  bool is_cancelled_ = false;
  Upload::Whole whole_;
  std::string bytes_;
};

class EveryWay : public UploadTest, public ::testing::WithParamInterface<Way> {
 protected:
  // The requests of an upload that goes well.
  size_t request_count() {
    begin_way(GetParam());
    write();
    return kinds.size();
  }
  // Writes it anew for each request, to which this happens.
  void for_each_request(Mishap what,
                        const std::function<void(const Ended&, const std::string&)>& check) {
    const size_t count = request_count();
    for (size_t number = 1; number <= count; ++number) {
      std::string hit;
      begin_way(GetParam());
      mishap = [&hit, number, what](size_t n, const PlayedRequest& request) {
        if (n != number) return Mishap::kNone;
        hit = request.kind;
        return what;
      };
      const Ended& ended = write();
      SCOPED_TRACE(cat("request ", number, ", ", hit));
      ASSERT_EQ(ended.parts.size(), GetParam().part_count);
      expect_whole_or_not_there(ended, hit);
      check(ended, hit);
      if (HasFatalFailure() || HasFailure()) return;
    }
    mishap = [](size_t, const PlayedRequest&) { return Mishap::kNone; };
  }
  static bool removes(const std::string& kind) {
    return kind == "delete" || kind == "abort" || kind == "cancel";
  }
};

TEST_P(EveryWay, MakesTheObjectByTheseRequestsAndLeavesNothingElse) {
  begin_way(GetParam());
  const Ended& ended = write();
  EXPECT_EQ(ended.error(), "");
  expect_whole_or_not_there(ended);
  EXPECT_TRUE(ended.cleaned->has_value());
  EXPECT_THAT(left(), IsEmpty());
  std::ranges::sort(kinds);
  EXPECT_EQ(kinds, GetParam().kinds);
}

TEST_P(EveryWay, ARefusedRequestEndsItAndNothingIsLeft) {
  for_each_request(Mishap::kRefused, [this](const Ended& ended, const std::string& kind) {
    if (removes(kind) && ended.is_good()) {
      EXPECT_THAT(left(), Not(IsEmpty()));
      EXPECT_FALSE(ended.cleaned->has_value()) << "what is left is told";
      return;
    }
    EXPECT_THAT(left(), IsEmpty());
    // Whoever is refused a look may go on without.
    if (!ended.is_good()) EXPECT_THAT(ended.error(), HasSubstr("HTTP 403"));
  });
}

TEST_P(EveryWay, AThrottledRequestIsSentAgain) {
  for_each_request(Mishap::kThrottled, [this](const Ended& ended, const std::string& kind) {
    EXPECT_THAT(left(), IsEmpty());
    if (kind == "append") {
      EXPECT_THAT(ended.error(), AnyOf("", HasSubstr("cannot be sent twice")));
    } else {
      EXPECT_EQ(ended.error(), "");
    }
  });
}

TEST_P(EveryWay, ARequestThatDoesNotArriveIsSentAgain) {
  for_each_request(Mishap::kReset, [this](const Ended& ended, const std::string& kind) {
    EXPECT_THAT(left(), IsEmpty());
    if (kind == "append") {
      EXPECT_THAT(ended.error(), HasSubstr("cannot be sent twice"));
    } else {
      EXPECT_EQ(ended.error(), "");
    }
  });
}

TEST_P(EveryWay, ALostAnswerIsSettled) {
  for_each_request(Mishap::kLost, [this](const Ended& ended, const std::string& kind) {
    if (kind == "append") {
      EXPECT_THAT(ended.error(), HasSubstr("cannot be sent twice"));
    } else {
      EXPECT_EQ(ended.error(), "");
    }
    // What was begun without anybody knowing its name has no bytes, or ends by itself.
    if (kind != "start" && kind != "append") EXPECT_THAT(left(), IsEmpty());
    EXPECT_LE(left().size(), 1u);
  });
}

TEST_P(EveryWay, CancelledAtAnyRequestItEndsAndNothingIsLeft) {
  const size_t count = request_count();
  for (size_t number = 1; number <= count; ++number) {
    begin_way(GetParam());
    std::string hit;
    mishap = [&, number](size_t n, const PlayedRequest& request) {
      if (n != number) return Mishap::kNone;
      hit = request.kind;
      cancel();
      return removes(request.kind) ? Mishap::kNone : Mishap::kSilent;
    };
    const Ended& ended = write();
    SCOPED_TRACE(cat("request ", number, ", ", hit));
    ASSERT_EQ(ended.parts.size(), GetParam().part_count);
    expect_whole_or_not_there(ended, hit);
    EXPECT_THAT(left(), IsEmpty());
    EXPECT_TRUE(ended.cleaned->has_value());
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(EveryWay, CancelledBeforeItBeginsItSendsNothingThatStays) {
  begin_way(GetParam());
  cancel();
  const Ended& ended = write();
  for (const Result<void>& part : ended.parts) EXPECT_EQ(part.error().code(), Code::kCancelled);
  EXPECT_THAT(left(), IsEmpty());
  EXPECT_TRUE(ended.cleaned->has_value());
}

TEST_P(EveryWay, TheEndOfTheEngineEndsEveryCall) {
  const size_t count = request_count();
  for (size_t number = 1; number <= count; ++number) {
    begin_way(GetParam());
    std::string hit;
    mishap = [&, number](size_t n, const PlayedRequest& request) {
      if (n != number) return Mishap::kNone;
      hit = request.kind;
      stop();
      return Mishap::kSilent;
    };
    const Ended& ended = write();
    SCOPED_TRACE(cat("request ", number, ", ", hit));
    ASSERT_EQ(ended.parts.size(), GetParam().part_count);
    ASSERT_TRUE(ended.cleaned.has_value());
    expect_whole_or_not_there(ended, hit);
    EXPECT_TRUE(is_idle()) << "the engine need not wait";
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(EveryWay, DroppedWhileItIsInProgressItEndsByItself) {
  begin_way(GetParam());
  for (uint32_t number = 1; number <= way_.part_count; ++number) send(number);
  const std::weak_ptr<Upload> weak = upload_;
  upload_.reset();
  run_until([this] { return ended_->parts.size() == way_.part_count; });
  poll();
  EXPECT_TRUE(weak.expired());
}

TEST_F(UploadTest, ObjectsOfOnePartAreSentByAllThreadsInTurn) {
  begin_way({.name = "parts", .url = "gs://bucket"});
  for (uint32_t number = 1; number <= 4; ++number) {
    const std::shared_ptr<Upload> upload =
        *new_upload(remote_, UploadMethod::kDefault, {.name = cat("out/", number)});
    std::optional<Result<ObjectInfo>> published;
    upload->publish_single(part(1, 1000), [&](Result<ObjectInfo> info) { published = info; });
    run_until([&] { return published.has_value(); });
    EXPECT_TRUE(published->has_value());
  }
  EXPECT_THAT(threads, AnyOf(ElementsAre(0, 1, 0, 1), ElementsAre(1, 0, 1, 0)));
}

// 34 groups of 32, which are joined by twos of 32, and 12 parts that are joined with the last
// group.
TEST_F(UploadTest, PartObjectsAreJoinedInAsManyLevelsAsItTakes) {
  begin_way({.name = "parts", .url = "gs://bucket", .part_count = 1100, .part_bytes = 1});
  const Ended& ended = write();
  EXPECT_EQ(ended.error(), "");
  expect_whole_or_not_there(ended);
  EXPECT_THAT(left(), IsEmpty());
  EXPECT_EQ(std::ranges::count(kinds, "compose"), 34 + 2 + 1);
}

TEST_F(UploadTest, AFirstPartThatIsRefusedTakesThoseWithItThatWaitForWhatItShows) {
  begin_way({.name = "s3_trial", .url = "s3://bucket"});
  mishap = [](size_t, const PlayedRequest& request) {
    return request.kind == "part" ? Mishap::kRefused : Mishap::kNone;
  };
  write();
  EXPECT_THAT(kinds, ElementsAre("start", "part", "abort"));
  for (const Result<void>& part : ended_->parts) {
    EXPECT_THAT(part.error().to_string(), HasSubstr("its part 1"));
  }
}

TEST_F(UploadTest, WhatIsAppendedIsSentInTheOrderOfItsPartsWhateverTheirTurn) {
  begin_way({.name = "ais_append", .url = "ais://bucket"});
  std::vector<std::shared_ptr<UploadPart>> parts;
  for (uint32_t number = 1; number <= 3; ++number) parts.push_back(part(number, 1000));
  for (auto each = parts.rbegin(); each != parts.rend(); ++each) {
    upload_->send(*each, [this](Result<void> result) { ended_->parts.push_back(result); });
  }
  run_until([this] { return ended_->parts.size() == 3; });
  way_.part_count = 0;
  EXPECT_EQ(write().error(), "");
  EXPECT_TRUE(service().objects["out/a"].bytes == bytes_);
}

INSTANTIATE_TEST_SUITE_P(
    , EveryWay,
    ::testing::Values(
        Way{.name = "parts",
            .url = "gs://bucket",
            .kinds = kinds_of({{"write", 3}, {"compose", 1}, {"delete", 3}})},
        Way{.name = "many_parts",
            .url = "gs://bucket",
            .part_count = 40,
            .part_bytes = 10,
            .kinds = kinds_of({{"write", 40}, {"compose", 2}, {"delete", 41}})},
        Way{.name = "staged",
            .url = "gs://bucket",
            .method = UploadMethod::kMultipart,
            .kinds = kinds_of({{"start", 1},
                               {"part", 3},
                               {"complete", 1},
                               {"stat", 1},
                               {"compose", 1},
                               {"delete", 1}})},
        Way{.name = "resumable",
            .url = "gs://bucket",
            .method = UploadMethod::kResumable,
            .part_bytes = 256 * kKiB,
            .kinds = kinds_of({{"start", 1}, {"put", 4}})},
        Way{.name = "s3",
            .url = "s3://bucket",
            .kinds = kinds_of({{"start", 1}, {"part", 3}, {"complete", 1}})},
        Way{.name = "s3_trial",
            .url = "s3://bucket",
            .kinds = kinds_of({{"start", 1}, {"part", 3}, {"complete", 1}})},
        Way{.name = "ais",
            .url = "ais://bucket",
            .kinds =
                kinds_of({{"map", 1}, {"start", 1}, {"part", 3}, {"complete", 1}, {"stat", 1}})},
        Way{.name = "ais_append",
            .url = "ais://bucket",
            .kinds = kinds_of({{"map", 1},
                               {"start", 1},
                               {"append", 3},
                               {"flush", 1},
                               {"stat", 3},
                               {"rename", 1}})}),
    [](const auto& given) { return given.param.name; });

}  // namespace
}  // namespace headrace
