#include "headrace/store/reading/batch_get_attempt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "headrace/format/xxh64.h"
#include "headrace/store/batch_gets.h"
#include "headrace/store/reading/batch_get_test_support.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class BatchGetAttemptTest : public ::testing::Test {
 protected:
  struct Wanted {
    std::string name, content, memory, member = {};
    std::optional<ByteRange> range;
    Checksum sum;
  };

  // A target in the caller's memory.
  void want(std::string name, std::string content, std::optional<ByteRange> range = {},
            bool with_sum = true) {
    Wanted& wanted = wanted_.emplace_back();
    wanted.name = std::move(name);
    wanted.content = std::move(content);
    wanted.range = range;
    wanted.sum = with_sum ? sum_of(ChecksumKind::kXxh64, bytes_of(wanted.content)) : Checksum();
    const uint64_t size_bytes = range ? range->size_bytes() : wanted.content.size();
    wanted.memory.assign(size_bytes, '?');
  }
  std::string part_of(const Wanted& wanted) const {
    if (!wanted.range) return wanted.content;
    return wanted.content.substr(wanted.range->begin, wanted.range->size_bytes());
  }
  std::string whole_tar() const {
    std::string tar;
    for (const Wanted& wanted : wanted_) tar += tar_file(wanted.name, part_of(wanted));
    return tar + tar_end();
  }
  // What becomes of all slots.
  std::vector<bool> take(const BatchGetAnswer& answer) {
    get_ = std::make_shared<BatchGet>();
    get_->batch = ReadBatch::create(wanted_.size());
    get_->record = &record_;
    for (Wanted& wanted : wanted_) {
      wanted.memory.assign(wanted.memory.size(), '?');
      get_->batch->add({.name = wanted.name,
                        .member = wanted.member,
                        .size_bytes = wanted.content.size(),
                        .checksum = wanted.sum,
                        .range = wanted.range,
                        .into = std::as_writable_bytes(std::span(wanted.memory)),
                        .has_into = true});
      get_->slots.push_back({.index = static_cast<uint32_t>(get_->slots.size())});
    }
    BatchGetAttempt attempt(batch_get_protocol(), get_);
    request_.clear();
    attempt.build(request_);
    error_.reset();
    if (Result<void> taken = take_answer(attempt, answer); !taken) error_ = taken.error();
    const std::chrono::steady_clock::time_point now{std::chrono::hours(1)};
    EXPECT_FALSE(attempt.waits_in_vain(now));
    has_all_ = attempt.waits_in_vain(now + BatchGetAttempt::kEndWithin);
    std::vector<bool> came;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      came.push_back(get_->slots[i].came);
      if (came.back()) {
        EXPECT_EQ(wanted_[i].memory, part_of(wanted_[i])) << i;
      }
    }
    return came;
  }

  std::deque<Wanted> wanted_;
  BatchGetRecord record_;
  std::shared_ptr<BatchGet> get_;
  HttpRequest request_;
  std::optional<Error> error_;
  bool has_all_ = false;  // and would wait in vain for the end of the answer
};

TEST_F(BatchGetAttemptTest, AfterTheLastSlotsMemberTheEndIsNotWaitedForLong) {
  want("a/1", "one");
  want("a/2", "two");
  const std::string first = tar_file("a/1", "one"), second = tar_file("a/2", "two");
  EXPECT_THAT(take({.body = first}), ElementsAre(true, false));
  EXPECT_FALSE(has_all_);
  EXPECT_THAT(take({.body = first + second.substr(0, 513)}), ElementsAre(true, false));
  EXPECT_FALSE(has_all_);
  EXPECT_THAT(take({.body = first + second}), ElementsAre(true, true));
  EXPECT_TRUE(has_all_);
  EXPECT_THAT(take({.body = second + std::string(100'000, '\0')}), ElementsAre(false, true));
  EXPECT_TRUE(has_all_);
}

TEST_F(BatchGetAttemptTest, AsksForAllByOneRequest) {
  want("a/1", "one");
  want("b#?%", "three", ByteRange{1, 3});
  take({.body = whole_tar()});
  EXPECT_EQ(request_.method, "GET");
  EXPECT_EQ(request_.target, "/v1/ml/moss/bucket?provider=ais");
  EXPECT_EQ(request_.body_text,
            R"({"mime":".tar","in":[{"objname":"a/1"},{"objname":"b#?%","start":1,"length":2}],)"
            R"("coer":true,"onob":true,"strm":true})");
  EXPECT_EQ(request_.body_bytes(), request_.body_text.size());
}

TEST_F(BatchGetAttemptTest, PutsMembersOfAllSizesIntoTheirPlacesHoweverTheyArrive) {
  std::mt19937 rng(1);
  for (const size_t size : {0u, 1u, 511u, 512u, 513u, 10'240u, 16'384u, 50'000u, 300'000u, 3u}) {
    std::string content(size, '\0');
    for (char& c : content) c = static_cast<char>(rng());
    want("n" + std::to_string(size), content);
  }
  want("part", std::string(100'000, 'p') + "q", ByteRange{99'999, 100'001});
  for (const size_t piece : {size_t{1}, size_t{100}, size_t{4096}, size_t{70'000}, SIZE_MAX}) {
    EXPECT_THAT(take({.body = whole_tar(), .piece_bytes = piece}), AllOf(SizeIs(11), Each(true)))
        << piece;
    EXPECT_FALSE(error_);
  }
  EXPECT_EQ(record_.taken.at(std::chrono::steady_clock::now()), Learned::Treatment::kTaken);
}

TEST_F(BatchGetAttemptTest, MembersOfShardsComeByBothNames) {
  want("s.tar", "one");
  want("s.tar", "three");
  want("s.tar", "0123456789", ByteRange{2, 4});
  wanted_[0].member = "a/x.jpg";
  wanted_[1].member = "y.cls";
  wanted_[2].member = "z";
  const std::string tar = tar_file("s.tar/a/x.jpg", "one") + tar_file("__404__/s.tar/y.cls", "") +
                          tar_file("s.tar/z", "23") + tar_end();
  EXPECT_THAT(take({.body = tar}), ElementsAre(true, false, true));
  EXPECT_THAT(request_.body_text, HasSubstr(R"({"objname":"s.tar","archpath":"a/x.jpg"},)"));
  EXPECT_THAT(request_.body_text, HasSubstr(R"("archpath":"z","start":2,"length":2})"));
}

TEST_F(BatchGetAttemptTest, WhatIsMissingIsSaidToBeMissing) {
  for (const char* name : {"a", "b", "c"}) want(name, name);
  const auto tar = tar_file("a", "a") + tar_file("__404__/b", "") + tar_file("c", "c") + tar_end();
  EXPECT_THAT(take({.body = tar}), ElementsAre(true, false, true));
  EXPECT_FALSE(error_);
}

TEST_F(BatchGetAttemptTest, AnAnswerThatEndsEarlyLeavesTheRestOut) {
  for (const char* name : {"a", "b", "c"}) want(name, name);
  EXPECT_THAT(take({.body = tar_file("a", "a") + tar_end()}), ElementsAre(true, false, false));
  EXPECT_FALSE(error_);
  EXPECT_THAT(take({.body = tar_end()}), ElementsAre(false, false, false));
  EXPECT_FALSE(error_);
  EXPECT_THAT(take({.body = ""}), ElementsAre(false, false, false));
  EXPECT_FALSE(error_);
}

TEST_F(BatchGetAttemptTest, ATornAnswerIsAnErrorAndLeavesWhatCame) {
  want("a", std::string(1000, 'a'));
  want("b", std::string(1000, 'b'));
  const std::string tar = whole_tar();
  EXPECT_THAT(take({.body = tar.substr(0, 2500)}), ElementsAre(true, false));
  ASSERT_TRUE(error_);
  EXPECT_EQ(error_->code(), Code::kCorrupt);
  EXPECT_THAT(error_->message(), HasSubstr("torn"));
  EXPECT_THAT(take({.body = tar.substr(0, 2500), .then_fails = "the body broke off"}),
              ElementsAre(true, false));
  EXPECT_THAT(take({.body = tar_file("a", wanted_[0].content) + std::string(512, 'x')}),
              ElementsAre(true, false));
  EXPECT_THAT(error_->message(), HasSubstr("tar"));
}

TEST_F(BatchGetAttemptTest, MembersAreFoundAfterThoseThatWereLeftOutSilently) {
  for (const char* name : {"a", "b", "c", "d"}) want(name, name);
  EXPECT_THAT(take({.body = tar_file("c", "c") + tar_file("d", "d") + tar_end()}),
              ElementsAre(false, false, true, true));
}

TEST_F(BatchGetAttemptTest, EqualNamesAreTakenInTurn) {
  want("a", "abc");
  want("a", "abc", ByteRange{1, 2});
  want("a", "abc");
  EXPECT_THAT(take({.body = whole_tar()}), ElementsAre(true, true, true));
}

TEST_F(BatchGetAttemptTest, MembersThatOnlyTheirOrderTellsApartCountOnceAllHaveCome) {
  want("a", "00112233", ByteRange{0, 2});
  want("a", "00112233", ByteRange{2, 4});
  want("b", "b");
  want("a", "00112233", ByteRange{4, 6});
  want("a", "00112233", ByteRange{6, 7});
  const std::string b = tar_file("b", "b"), last = tar_file("a", "3");
  EXPECT_THAT(take({.body = whole_tar()}), AllOf(SizeIs(5), Each(true)));
  const std::string first = tar_file("a", "00"), second = tar_file("a", "11"),
                    third = tar_file("a", "22");
  const auto others = ElementsAre(false, false, true, false, true);
  EXPECT_THAT(take({.body = first + tar_file("__404__/a", "") + b + third + last + tar_end()}),
              others);
  EXPECT_THAT(take({.body = first + b + third + last + tar_end()}), others);
  EXPECT_THAT(take({.body = second + b + third + last + tar_end()}), others);
  // The last one is taken for the one before it, which it is not.
  EXPECT_THAT(take({.body = first + second + b + last + tar_end()}),
              ElementsAre(false, false, true, false, false));
  EXPECT_THAT(take({.body = first + second + b + third.substr(0, 513)}),
              ElementsAre(false, false, true, false, false));
}

TEST_F(BatchGetAttemptTest, TwinsThatTheirSumProvesNeedNoOthers) {
  want("a", "abc");
  want("a", "xabc", ByteRange{1, 4});
  want("a", "abc");
  EXPECT_THAT(take({.body = tar_file("a", "abc") + tar_end()}), ElementsAre(true, false, false));
  EXPECT_THAT(take({.body = whole_tar()}), AllOf(SizeIs(3), Each(true)));
}

TEST_F(BatchGetAttemptTest, OtherNamesAndOrdersAreNotBelieved) {
  for (const char* name : {"a", "b"}) want(name, name);
  EXPECT_THAT(take({.body = tar_file("b", "b") + tar_file("a", "a") + tar_end()}),
              ElementsAre(false, true));
  EXPECT_THAT(take({.body = tar_file("x", "a") + tar_file("bucket/b", "b") + tar_end()}),
              ElementsAre(false, false));
  EXPECT_THAT(take({.body = tar_header("a", 1, '2') + tar_file("b", "b") + tar_end()}),
              ElementsAre(false, true));
  EXPECT_FALSE(error_);
  std::string flood;
  for (int i = 0; i < 5; ++i) flood += tar_file("x", "");
  take({.body = flood});
  ASSERT_TRUE(error_);
  EXPECT_THAT(error_->message(), HasSubstr("more members"));
}

TEST_F(BatchGetAttemptTest, AnotherSizeIsNotTaken) {
  want("a", "aaa");
  want("b", "bbb");
  EXPECT_THAT(take({.body = tar_file("a", "aa") + tar_file("b", "bbbb") + tar_end()}),
              ElementsAre(false, false));
  EXPECT_THAT(wanted_, Each(::testing::Field(&Wanted::memory, "???")));
  EXPECT_TRUE(record_.takes_ranges());
}

TEST_F(BatchGetAttemptTest, AWholeObjectInPlaceOfARangeEndsRanges) {
  want("a", "0123456789", ByteRange{2, 4});
  want("b", "b");
  EXPECT_THAT(take({.body = tar_file("a", "0123456789") + tar_file("b", "b") + tar_end()}),
              ElementsAre(false, true));
  EXPECT_FALSE(record_.takes_ranges());
}

TEST_F(BatchGetAttemptTest, OtherBytesOfTheSameSizeAreFoundByTheirSum) {
  want("a", "aaa");
  want("b", "bbb", {}, /*with_sum=*/false);
  EXPECT_THAT(take({.body = tar_file("a", "xxx") + tar_file("b", "bbb") + tar_end()}),
              ElementsAre(false, true));
}

TEST_F(BatchGetAttemptTest, ARefusalIsItsError) {
  want("a", "a");
  take({.body = R"({"message":"invalid request URI '/v1/ml/moss/bucket'","status":400})",
        .head = "HTTP/1.1 400 Bad Request\r\nContent-Length: 64\r\n\r\n"});
  ASSERT_TRUE(error_);
  EXPECT_EQ(error_->http_status(), 400);
  EXPECT_TRUE(batch_get_protocol().batch_gets()->is_absent(*error_));
  EXPECT_EQ(record_.taken.at(std::chrono::steady_clock::now()), Learned::Treatment::kUnknown);
}

}  // namespace
}  // namespace headrace
